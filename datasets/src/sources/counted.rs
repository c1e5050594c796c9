//! Data for other commands (operation timings, flight-recorder dumps) or for human readers (logbooks): recognised and
//! counted, without a canonical table. DLRover's scrapes and events have one.

use crate::input::InputFile;
use crate::load::LoadState;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::time;

pub(super) const STRAGGLERS: SourceFormat = SourceFormat {
    name: "bytedance-stragglers",
    title: "ByteDance straggler traces: one row an operation of a training job (counted here, read by diagnose)",
    licence: "Apache-2.0",
    citation: "Understanding Stragglers in Large Model Training Using What-if Analysis, OSDI 2025",
    home: "github.com/ByteDance-Seed/StragglerAnalysis",
    clock: "relative: seconds within each step",
    traps: &["start_ts begins anew each step; rank is a pipeline worker, tensor-parallel ranks are folded"],
    role: |head| {
        let has = |name: &&str| head.columns.iter().any(|column| column == *name);
        ["dp_rank", "stage", "optype", "start_ts", "duration"]
            .iter()
            .all(has)
            .then_some("operations")
    },
    read: |_, head, _, load| {
        for _ in 0..head.parquet_rows {
            load.read_row();
        }
    },
    ..SourceFormat::PLAIN
};

pub(super) const FLIGHT: SourceFormat = SourceFormat {
    name: "nccl-flight-recorder",
    title: "PyTorch NCCL flight-recorder dumps (counted here as one row a dump, read by diagnose)",
    licence: "of NVIDIA's samples: Apache-2.0",
    citation: "for the samples: github.com/NVIDIA/nvidia-resiliency-ext",
    home: "TORCH_NCCL_DEBUG_INFO_TEMP_FILE; github.com/NVIDIA/nvidia-resiliency-ext, tests/attribution",
    clock: "nanoseconds of each node's own clock",
    traps: &[
        "a pickle can run code in Python: nothing is executed here",
        "a rank with an empty list of entries is a suspect, not a rank without data",
    ],
    role: |head| {
        let dump = head.bytes.starts_with(&[0x80]) || head.text.starts_with('{');
        let known = head.text.contains("pg_config") && head.text.contains("nccl_version");
        (dump && known).then_some("dump of one rank")
    },
    read: |_, _, _, load| load.read_row(),
    ..SourceFormat::PLAIN
};

pub(super) const DLROVER: SourceFormat = SourceFormat {
    name: "dlrover",
    title: "xpu_timer scrapes and trainer events (DLRover)",
    licence: "of DLRover's samples: Apache-2.0",
    citation: "for the samples: github.com/intelligent-machine-learning/dlrover",
    home: "xpu_timer's Prometheus port; github.com/intelligent-machine-learning/dlrover",
    clock: "events: wall clock without offset, counted as UTC; scrapes have no time",
    traps: &["consumed_train_samples begins anew after a step: a counter's reset, not lost work"],
    role: |head| {
        if head.text.starts_with('#') && head.text.contains("\n# TYPE ") && head.text.contains("XPU_TIMER_COMMON") {
            Some("scrape")
        } else {
            trainer_event(head.line(0)).map(|_| "trainer events")
        }
    },
    read: |role, _, input, load| {
        if role == "scrape" {
            scrape(input, load)
        } else {
            trainer_events(input, load)
        }
    },
    ..SourceFormat::PLAIN
};

pub(super) const CHRONICLES: SourceFormat = SourceFormat {
    name: "llm-chronicles",
    title: "Training logbooks: BLOOM (BigScience), OPT-175B (Meta); prose, counted in lines",
    licence: "BigScience: Apache-2.0; OPT: MIT",
    citation: "BigScience workshop, chronicles; S. Zhang et al., OPT chronicles",
    home: "github.com/bigscience-workshop/bigscience; github.com/facebookresearch/metaseq",
    clock: "dates in headings, times in several zones or none: not for machines",
    traps: &["only notable incidents are told"],
    role: |head| {
        let text = head.text.as_str();
        let prose = text.lines().any(|line| line.starts_with('#'));
        let about = [
            "OPT-175B",
            "175B Training Run",
            "tr1-13B",
            "tr8-104B",
            "tr8b-104B",
            "tr11-176B",
            "Prequel",
            "bigscience",
        ];
        (prose && about.iter().any(|word| text.contains(word))).then_some("prose")
    },
    read: |_, _, input, load| {
        while input.line(load).is_some() {
            load.read_row();
        }
    },
    ..SourceFormat::PLAIN
};

/// Parses `name{rank="3",...} value` of the Prometheus text format.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let (front, value) = line.trim().rsplit_once(' ')?;
    let value = value.parse().ok()?;
    match front.split_once('{') {
        Some((name, labels)) => Some((name, labels.trim_end_matches('}'), value)),
        None => Some((front, "", value)),
    }
}

fn scrape(input: &mut InputFile, load: &mut LoadState) {
    let file = load.file().to_owned();
    while let Some(line) = input.line(load) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        load.read_row();
        let Some((name, labels, value)) = sample(line) else {
            load.lose("bad-row", "", || "not `name{labels} value`; passed over".to_owned());
            continue;
        };
        let rank = labels.split(',').find_map(|label| label.strip_prefix("rank=\""));
        load.row(TableKind::Samples)
            .text("node", rank.unwrap_or("").trim_end_matches('"'))
            .text("metric", name)
            .num("value", value)
            .text("x_labels", labels)
            .text("x_file", &file);
    }
}

/// Parses `[time] [pid] [id] [target] [name] [type] {json}`.
fn trainer_event(line: &str) -> Option<(f64, &str, &str, &str, &str)> {
    let mut parts = line.strip_prefix('[')?.splitn(7, " [");
    let mut part = || parts.next()?.strip_suffix(']');
    let when = time::wall(part()?)?;
    let _ = part()?;
    let _ = part()?;
    let target = part()?;
    let name = part()?;
    let (kind, content) = parts.next()?.split_once(']')?;
    Some((when, target, name, kind, content.trim()))
}

fn trainer_events(input: &mut InputFile, load: &mut LoadState) {
    while let Some(line) = input.line(load) {
        if line.is_empty() {
            continue;
        }
        load.read_row();
        let Some((when, target, name, kind, content)) = trainer_event(line) else {
            load.lose("bad-row", "", || "not an event; passed over".to_owned());
            continue;
        };
        load.in_order(TableKind::Events, Some(when));
        load.row(TableKind::Events)
            .num("time", when)
            .text("label", name)
            .text("severity", kind)
            .text("message", content)
            .text("x_target", target);
    }
}
