//! SkyPilot's spot traces: available instances of a zone, tick by tick.

use serde::Deserialize;

use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::source::SourceFormat;
use crate::table::TableKind;

/// Maximum document size in bytes; the published ones are below one MiB.
const MOST: usize = 64 << 20;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "skypilot",
    title: "SkyPilot spot availability and preemption traces: instances available, tick by tick, by zone",
    citation: "Z. Wu et al., Can't Be Late: Optimizing Spot Instance Savings under Deadlines, NSDI 2024",
    home: "github.com/skypilot-org/spot-traces",
    clock: "relative: ticks of gap_seconds from the start of each file, here seconds; zones are not aligned",
    traps: &[
        "availability means that a probe could get an instance; a step down in it is no preemption",
        "x_gap_s is what a tick lasts: the folder's dates and the README's durations are not to be trusted",
        "count gains and losses apart: they differ by last minus first",
    ],
    role: |head| {
        let start = head.text.get(..200).unwrap_or(&head.text);
        (start.contains("\"gap_seconds\"") && start.contains("\"metadata\"")).then_some("ticks of a zone")
    },
    read,
    ..SourceFormat::PLAIN
};

#[derive(Deserialize)]
struct AvailabilityTrace {
    metadata: AvailabilityMetadata,
    data: Vec<Option<f64>>,
    #[serde(default)]
    prices: Vec<Option<f64>>,
}

#[derive(Deserialize)]
struct AvailabilityMetadata {
    gap_seconds: f64,
}

fn read(_: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let Some(bytes) = input.whole(MOST, load) else {
        return;
    };
    let trace: AvailabilityTrace = match serde_json::from_slice(&bytes) {
        Ok(trace) => trace,
        Err(problem) => {
            load.at(problem.line() as u64);
            return load.lose("bad-row", "", || format!("{problem}; the file is passed over"));
        }
    };
    let zone = load.file().trim_end_matches(".json").to_owned();
    let gap = trace.metadata.gap_seconds;
    if !trace.prices.is_empty() && trace.prices.len() != trace.data.len() {
        load.report_kept_row("width", "prices", || {
            format!("{} prices for {} ticks", trace.prices.len(), trace.data.len())
        });
    }
    for (tick, available) in trace.data.iter().enumerate() {
        load.read_row();
        if available.is_none() {
            load.report_kept_row("null", "data", || format!("tick {tick} is null"));
        }
        load.row(TableKind::Capacity)
            .num("time", tick as f64 * gap)
            .text("zone", &zone)
            .num("available", *available)
            .num("x_price", trace.prices.get(tick).copied().flatten())
            .num("x_gap_s", gap);
    }
}
