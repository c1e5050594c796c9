//! Reader of job accounting as CSV, with a mapping from a source's column names to the canonical table.

use std::collections::HashSet;

use crate::csv::DelimitedFile;
use crate::load::LoadState;
use crate::table::TableKind;
use crate::time;
use crate::words;

/// Column names of the source; an empty name is a column that the source lacks.
pub(crate) struct AccountingColumns {
    pub(crate) job: &'static str,
    pub(crate) user: &'static str,
    pub(crate) queue: &'static str,
    pub(crate) submit: &'static str,
    pub(crate) start: &'static str,
    pub(crate) end: &'static str,
    pub(crate) elapsed: &'static str,
    pub(crate) state: &'static str,
    pub(crate) nodes: &'static str,
    pub(crate) gpus: &'static str,
    /// States with a different meaning than elsewhere: mapped to `other`.
    pub(crate) other: &'static [&'static str],
    /// Text columns that are retained as `x_NAME`.
    pub(crate) texts: &'static [&'static str],
    /// Number columns that are retained as `x_NAME`.
    pub(crate) numbers: &'static [&'static str],
}

/// Parses a time. A file that mixes times with and without offset is reported, because they are not comparable.
pub(crate) fn instant(field: &str, text: &str, load: &mut LoadState) -> Option<f64> {
    if matches!(text, "" | "None" | "NULL" | "Unknown" | "NaT" | "nan" | "N/A" | "NA") {
        return None;
    }
    // Some files hold Unix seconds.
    if let Ok(seconds) = text.parse::<f64>() {
        return unix(field, seconds, load);
    }
    let Some((seconds, offset)) = time::iso(text) else {
        return load.time(field, text, |_| None);
    };
    load.offset(field, offset.is_some(), "count as UTC");
    Some(seconds)
}
/// Reads jobs to the end of the file.
pub(crate) fn read(csv: &mut DelimitedFile<'_>, columns: &AccountingColumns, load: &mut LoadState) {
    let mut jobs = HashSet::new();
    let named = [
        columns.user,
        columns.queue,
        columns.submit,
        columns.start,
        columns.end,
        columns.elapsed,
        columns.nodes,
    ];
    // A source's own texts may be in only some of its files, so they are not checked.
    for name in named.iter().chain(columns.numbers) {
        // An empty name is a column that the source never has.
        if !name.is_empty() && !csv.header().iter().any(|column| column == name) {
            load.report_kept_row("columns", name, || {
                "the file has no such column; null in every row".to_owned()
            });
        }
    }
    while csv.next(load) {
        let Some(job) = csv.need(columns.job, load) else {
            continue;
        };
        let submit = instant(columns.submit, csv.get(columns.submit), load);
        let start = instant(columns.start, csv.get(columns.start), load);
        let end = instant(columns.end, csv.get(columns.end), load);
        let elapsed = csv.num(columns.elapsed, load);
        check_span(columns.end, start, end, elapsed, load);
        let nodes = csv.num(columns.nodes, load);
        let gpus = csv.num(columns.gpus, load);
        let numbers: Vec<_> = columns
            .numbers
            .iter()
            .map(|name| (*name, csv.num(name, load)))
            .collect();
        if !jobs.insert(job.clone()) {
            load.report_kept_row("reused-id", columns.job, || {
                "the id of an earlier row: an array or a new try; the row is kept, the id is no key".to_owned()
            });
        }
        let raw = csv.get(columns.state);
        let state = match raw {
            "" => "",
            raw if columns.other.contains(&raw) => "other",
            raw => words::state(raw),
        };
        let mut row = load
            .row(TableKind::Jobs)
            .text("job", &job)
            .text("user", csv.get(columns.user))
            .text("queue", csv.get(columns.queue))
            .num("submit", submit)
            .num("start", start)
            .num("end", end)
            .num("elapsed_s", elapsed)
            .text("state", state)
            .text("state_raw", raw)
            .num("nodes", nodes)
            .num("gpus", gpus);
        for name in columns.texts {
            row = row.text(&format!("x_{name}"), csv.get(name));
        }
        for (name, value) in numbers {
            row = row.num(&format!("x_{name}"), value);
        }
    }
}

/// Year 5138 in seconds: a larger number is in a smaller unit.
const NO_SECONDS: f64 = 1e11;

/// Checks seconds since 1970, or since a zero of the file's own; reports values too large for seconds.
pub(crate) fn unix(field: &str, seconds: f64, load: &mut LoadState) -> Option<f64> {
    if seconds.abs() > NO_SECONDS {
        load.report_kept_row("unit", field, || {
            format!("{seconds} s lie beyond the year 5000: milliseconds? read as seconds")
        });
    }
    Some(seconds).filter(|seconds| seconds.is_finite())
}

/// Reports an inconsistent span of a row: it ends before it starts, or its elapsed time differs from the clock
/// times. A difference of an hour is a change of the clock, and the elapsed time is right.
pub(crate) fn check_span(
    field: &str,
    start: Option<f64>,
    end: Option<f64>,
    elapsed: Option<f64>,
    load: &mut LoadState,
) {
    if elapsed.is_some_and(|elapsed| elapsed < 0.0) {
        load.report_kept_row("negative", field, || "takes less than no time; kept".to_owned());
    }
    let Some((start, end)) = start.zip(end) else {
        return;
    };
    if end < start {
        load.report_kept_row("backwards", field, || "ends before it starts; kept".to_owned());
    }
    let Some(off) = elapsed.map(|elapsed| end - start - elapsed) else {
        return;
    };
    if (off.abs() - 3_600.0).abs() <= CLOSE_S {
        load.report_kept_row("clock", field, || {
            "an hour off the time that it took: the clock changed meanwhile; the time that it took is right".to_owned()
        });
    } else if off.abs() > CLOSE_S.max(0.01 * (end - start).abs()) {
        load.report_kept_row("elapsed", field, || {
            format!(
                "end minus start is {} s and it took {} s: another unit, or time that does not count",
                end - start,
                end - start - off
            )
        });
    }
}

/// Tolerance in seconds between elapsed and clock time: schedulers write them at different moments.
const CLOSE_S: f64 = 60.0;
