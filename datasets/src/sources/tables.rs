//! Published tables of counts and shares without raw data: every number is a sample.

use crate::csv::DelimitedFile;
use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::source::SourceFormat;
use crate::table::TableKind;

pub(super) const SUMMARIES: SourceFormat = SourceFormat {
    name: "gpu-cluster-summaries",
    title: "The authors' own summaries of Helios, Acme, Philly and PAI: shares by jobs and by GPU time",
    licence: "Helios: MIT; Acme: CC BY 4.0",
    citation: "Q. Hu et al., SC'21 (Helios); Q. Hu et al., NSDI 2024 (Acme)",
    home: "github.com/S-Lab-System-Group/HeliosArtifact; github.com/InternLM/AcmeTrace",
    clock: "none: a row is a cluster over its whole period",
    traps: &[
        "Philly has two published splits with different filters",
        "Acme counts TIMEOUT and NODE_FAIL as failed",
        "gpu_num of the Helios total is not the sum of its four clusters; rates are rounded to three digits",
    ],
    role: |head| {
        head.has_columns(",", &["id", "gpu_job_num", "complete_rate_gpu", "fail_gpu_time"])
            .then_some("clusters")
    },
    read,
    ..SourceFormat::PLAIN
};

pub(super) const PUBLISHED: SourceFormat = SourceFormat {
    name: "published-tables",
    title: "Published failure tables: Llama 3 interruptions, Summit GPU Xid counts",
    licence: "facts; the Summit table's repository is MIT",
    citation: "Meta, The Llama 3 Herd of Models, 2024, table 5; W. Shin et al., SC'21 artifacts",
    home: "github.com/at-aaims/sc21_summit_power_analysis_artifacts",
    clock: "none: counts over the whole period (Llama 3: 54 days; Summit: 2019-12-27 to 2021-01-31)",
    traps: &[
        "Llama 3 prints 30.1 % for 148 of 419, which is 35.3 %: show the printed and the computed share",
        "most of Summit's Xids are errors of users' code, and one node holds 8,462 of 8,736 NVLINK errors",
    ],
    role: |head| {
        let llama = head.has_columns(",", &["component", "category", "interruptions", "printed_percent"]);
        let summit = head.has_columns(",", &["error", "count", "max_on_one_node"]);
        (llama || summit).then_some("counts")
    },
    read,
    ..SourceFormat::PLAIN
};

/// Reads a table: the first column names the row, every other column of numbers is a metric.
fn read(_: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let file = load.file().to_owned();
    let Some(mut csv) = DelimitedFile::new(input, ",", load) else {
        return;
    };
    let metrics: Vec<String> = csv
        .header()
        .iter()
        .skip(1)
        .filter(|name| *name != "category")
        .cloned()
        .collect();
    while csv.next(load) {
        let subject = csv.at(0).to_owned();
        for metric in &metrics {
            let Some(value) = csv.num(metric, load) else {
                continue;
            };
            load.row(TableKind::Samples)
                .text("node", &subject)
                .text("metric", metric)
                .num("value", value)
                .text("unit", unit(metric))
                .text("x_category", csv.get("category"))
                .text("x_file", &file);
        }
    }
}

fn unit(metric: &str) -> &'static str {
    match metric {
        "printed_percent" => "percent",
        name if name.contains("rate") => "share",
        name if name.ends_with("gpu_time") => "GPU seconds",
        name if name.contains("time") => "seconds",
        _ => "count",
    }
}
