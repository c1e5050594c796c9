//! Output of `sacct -P`, with any columns and `|` or `|#` as delimiter.

use std::collections::HashSet;

use crate::accounting::{check_span, instant};
use crate::csv::DelimitedFile;
use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::words;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "slurm",
    title: "Slurm accounting as sacct -P prints it; Meta's GCM test data among it",
    licence: "one's own; GCM's samples: MIT",
    citation: "for the samples: github.com/facebookresearch/gcm",
    home: "sacct -P -D -a --format=...; github.com/facebookresearch/gcm, gcm/tests/data",
    clock: "the cluster's wall clock without offset, counted as UTC; elapsed_s is ElapsedRaw, or Elapsed",
    traps: &[
        "records are jobs and steps: steps are attempts here, shares a record are not shares a job",
        "CANCELLED by UID is cancelled; End of a running job is Unknown, here null",
        "a comment may hold line breaks: short lines are joined with what follows",
        "GPUs are unknown where no record of a file is granted any: such a cluster does not track them (AccountingStorageTRES)",
    ],
    role: |head| delimiter(head).map(|_| "jobs and steps"),
    read,
    ..SourceFormat::PLAIN
};

fn delimiter(head: &FileHead) -> Option<&'static str> {
    // The longer one first, because it contains the shorter.
    ["|#", "|"]
        .into_iter()
        .find(|delimiter| head.has_columns(delimiter, &["JobID", "State"]))
}

fn read(_: &'static str, head: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let Some(mut csv) = DelimitedFile::unquoted(input, delimiter(head).unwrap_or("|"), load) else {
        return;
    };
    let mut jobs = HashSet::new();
    let begin = load.len(TableKind::Jobs);
    let mut tracks_gpus = false;
    let mut grants = false;
    while csv.next(load) {
        let Some(id) = csv.need("JobID", load) else {
            continue;
        };
        let granted = csv.get("AllocTRES");
        grants |= !granted.is_empty();
        tracks_gpus = tracks_gpus || kinds(granted).next().is_some();
        let time = |name: &str, load: &mut LoadState| instant(name, csv.get(name), load);
        let submit = time("Submit", load);
        let start = time("Start", load);
        let end = time("End", load);
        let raw = csv.get("State");
        let state = if raw.is_empty() { "" } else { words::state(raw) };
        if let Some((job, step)) = id.split_once('.') {
            load.row(TableKind::Attempts)
                .text("job", job)
                .text("attempt", step)
                .num("start", start)
                .num("end", end)
                .text("state", state)
                .text("node", csv.get("NodeList"))
                .text("x_state_raw", raw)
                .text("x_exit_code", csv.get("ExitCode"));
            continue;
        }
        let elapsed = match csv.get("ElapsedRaw") {
            "" => load.time("Elapsed", csv.get("Elapsed"), elapsed),
            text => load.number("ElapsedRaw", text),
        };
        check_span("End", start, end, elapsed, load);
        let nodes = if csv.get("NNodes").is_empty() {
            "AllocNodes"
        } else {
            "NNodes"
        };
        let nodes = load.number(nodes, csv.get(nodes));
        let gpus = gpus(granted, load);
        if id.ends_with(']') {
            load.report_kept_row("array", "JobID", || {
                "one record for all tasks of an array that have not begun; it counts as one job".to_owned()
            });
        }
        if !jobs.insert(id.clone()) {
            load.report_kept_row("reused-id", "JobID", || {
                "the id of an earlier row: started again; kept, the id is no key".to_owned()
            });
        }
        load.row(TableKind::Jobs)
            .text("job", &id)
            .text("user", csv.get("User"))
            .text("queue", csv.get("Partition"))
            .num("submit", submit)
            .num("start", start)
            .num("end", end)
            .num("elapsed_s", elapsed)
            .text("state", state)
            .text("state_raw", raw)
            .num("nodes", nodes)
            .num("gpus", gpus)
            .text("exit_code", csv.get("ExitCode"))
            .text("x_nodes", csv.get("NodeList"));
    }
    if grants && !tracks_gpus {
        load.forget(TableKind::Jobs, "gpus", begin);
        load.report_kept_row("untracked", "AllocTRES", || {
            "no record is granted gres/gpu: the cluster does not track GPUs (AccountingStorageTRES), or has none; null in every row"
                .to_owned()
        });
    }
}

/// Parses `[DAYS-]HH:MM:SS` to seconds.
fn elapsed(text: &str) -> Option<f64> {
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let mut seconds = 0.0;
    for part in clock.split(':') {
        seconds = seconds * 60.0 + part.parse::<f64>().ok()?;
    }
    Some(days.parse::<f64>().ok()? * 86_400.0 + seconds)
}

/// Returns the GPU grants in `cpu=2,gres/gpu=8,gres/gpu:a100=8`: by kind with its `:NAME`, and for all kinds without
/// one.
fn kinds(granted: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = granted.split(',');
    let gpus = parts.filter_map(|part| part.strip_prefix("gres/gpu")?.split_once('='));
    // Excludes `gres/gpumem=80G`.
    gpus.filter(|(kind, _)| kind.is_empty() || kind.starts_with(':'))
}

/// Returns the number of granted GPUs: 0 if only other resources are granted, unknown if the field is empty.
fn gpus(granted: &str, load: &mut LoadState) -> Option<f64> {
    if granted.is_empty() {
        return None;
    }
    let mut all = None;
    let mut typed = None;
    for (kind, count) in kinds(granted) {
        let count = load.number("AllocTRES", count);
        // `gres/gpu:a100=8` beside `gres/gpu=8` are the same eight.
        if kind.is_empty() {
            all = count;
        } else {
            typed = Some(typed.unwrap_or(0.0) + count.unwrap_or(0.0));
        }
    }
    all.or(typed).or(Some(0.0))
}
