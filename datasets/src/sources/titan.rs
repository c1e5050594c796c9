//! Titan's GPUs: every stay of a GPU at a place, with its end event, and one row a GPU.

use crate::csv::DelimitedFile;
use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::provenance::Population;
use crate::rows::GrowingTable;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::time;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "titan",
    title: "Titan GPU lifetimes (OLCF): stays of 30,207 GPUs, double-bit errors and GPUs off the bus, 2013-2019",
    citation: "G. Ostrouchov, D. Maxwell, R. Ashraf, C. Engelmann, M. Shankar, J. Rogers, GPU Lifetimes on Titan Supercomputer: Survival Analysis and Reliability, SC'20",
    home: "github.com/olcf/TitanGPULife",
    clock: "America/New_York wall clock without offset, counted as UTC; x_duration_s of a stay is the true elapsed time",
    traps: &[
        "naive subtraction of a stay's times is an hour off wherever the clock changed between them: use x_duration_s",
        "an event is not a replacement: one GPU can have a hundred",
        "stays end at the last inventory, 2019-08-01: x_out says whether the GPU left before",
        "events before 2014-01-01 are incomplete",
    ],
    role,
    read,
    finish,
    ..SourceFormat::PLAIN
};

fn role(head: &FileHead) -> Option<&'static str> {
    if head.has_columns(",", &["SN", "location", "insert", "remove", "duration", "event"]) {
        Some("stays and events")
    } else if head.has_columns(",", &["SN", "nlife", "nloc", "dbe", "otb", "dead"]) {
        Some("one row a GPU")
    } else {
        None
    }
}

fn read(role: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let Some(mut csv) = DelimitedFile::new(input, ",", load) else {
        return;
    };
    while csv.next(load) {
        let Some(gpu) = csv.need("SN", load) else {
            continue;
        };
        if role == "stays and events" {
            stay(&gpu, &csv, load);
        } else {
            gpu_row(&gpu, &csv, load);
        }
    }
}

fn stay(gpu: &str, csv: &DelimitedFile<'_>, load: &mut LoadState) {
    let insert = load.time("insert", csv.get("insert"), time::wall);
    let remove = load.time("remove", csv.get("remove"), time::wall);
    let duration = csv.num("duration", load);
    let place = csv.get("location");
    let event = csv.get("event");
    if insert.is_some() {
        load.row(TableKind::Outages)
            .text("node", gpu)
            .num("start", insert)
            .num("end", remove)
            .text("state", "up")
            .text("x_location", place)
            .num("x_duration_s", duration)
            .text("x_out", csv.get("out"))
            .text("x_event", event);
    }
    if !event.is_empty() {
        load.row(TableKind::Failures)
            .num("time", remove)
            .text("node", place)
            .text("device", gpu)
            .text("system", "Titan")
            .text("class", event)
            .num("x_stay_s", duration);
    } else if insert.is_none() {
        load.lose("missing", "insert", || {
            "neither a stay nor an event; passed over".to_owned()
        });
    }
}

fn gpu_row(gpu: &str, csv: &DelimitedFile<'_>, load: &mut LoadState) {
    let last = load.time("last", csv.get("last"), time::wall);
    let mut numbers = Vec::new();
    for name in [
        "time", "nlife", "nloc", "dbe", "otb", "col", "row", "cage", "slot", "node",
    ] {
        numbers.push((name, csv.num(name, load)));
    }
    let mut row = load
        .row(TableKind::Nodes)
        .text("node", gpu)
        .text("kind", "gpu")
        .text("system", "Titan")
        .num("removed", last)
        .num("gpus", 1.0);
    for (name, value) in numbers {
        let name = if name == "time" {
            "x_time_s".to_owned()
        } else {
            format!("x_{name}")
        };
        row = row.num(&name, value);
    }
    for name in ["out", "batch", "dead", "dead_otb", "dead_dbe"] {
        row = row.text(&format!("x_{name}"), csv.get(name));
    }
}

/// Sets the population: the file of one row a GPU is an inventory of failed and healthy GPUs.
fn finish(load: &mut LoadState) {
    let gpus = load.tables.get(&TableKind::Nodes).map_or(0, GrowingTable::len) as u64;
    load.population = (gpus > 0).then_some(Population {
        count: gpus,
        unit: "GPUs",
        from: "the file of one row a GPU, failed or not",
    });
}
