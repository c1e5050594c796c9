//! Torchrun's summary of failed workers: time, host and rank of each
//! (`torch/distributed/elastic/multiprocessing/errors/__init__.py`, `ChildFailedError.format_msg`).
//!
//! ```text
//!   time      : 2026-11-23_10:04:13
//!   host      : gpu-07
//!   rank      : 7 (local_rank: 7)
//!   exitcode  : 1 (pid: 4021)
//! ```
//!
//! Below `Root Cause (first observed failure)` is the worker that ended first; the others stand above this heading.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_diagnosis::{
    EXIT_STATUS_FIELD, FIRST_OF_SUMMARY, LATER_IN_SUMMARY, SUMMARY_FIELD, Signal, SignalMeaning,
};
use rankguard_faults::line::{LineClock, clean, parse};
use rankguard_model::{Entity, NodeId, Rank, Timestamp};

use crate::stream::PlacedObservation;

/// Maximum number of retained summaries; further ones are ignored.
const KEPT: usize = 65_536;

/// Heading of the worker that failed first.
const FIRST_FAILURE: &str = "Root Cause (first observed failure)";

/// Summaries of one stream.
#[derive(Debug, Default)]
pub(crate) struct WorkerFailures {
    /// True below the heading of the first failure, until its summary begins.
    is_below_heading: bool,
    /// Summary that is being read; its first line is 0 if there is none.
    open: WorkerSummary,
    /// Completed summaries with a rank, in line order.
    done: Vec<WorkerSummary>,
}

/// Summary of one worker, as far as its lines were read.
#[derive(Debug, Default)]
struct WorkerSummary {
    /// Line numbers, from 1; 0 before the first.
    first_line: u64,
    last_line: u64,
    at: Option<Timestamp>,
    host: Option<NodeId>,
    rank: Option<Rank>,
    /// Exit code, or the negative number of a signal.
    exit: Option<i32>,
    pid: Option<u32>,
    /// True for the worker that failed first.
    is_first: bool,
}

impl WorkerFailures {
    /// Reads a line if it is a field of a summary.
    pub(crate) fn read(&mut self, number: u64, line: &str) {
        if line.contains(FIRST_FAILURE) {
            self.close();
            self.is_below_heading = true;
            return;
        }
        // Only lines that may be a field are parsed.
        let is_open = self.open.first_line > 0;
        if !(line.contains(" : ") || is_open && line.contains("error_file: ")) {
            return;
        }
        let cleaned = clean(line);
        let parsed = parse(&cleaned, &LineClock::default());
        let Some((name, value)) = parsed.text.split_once(':') else {
            return;
        };
        let value = value.trim();
        match name.trim() {
            "time" => {
                self.close();
                self.open.at = parse(value, &LineClock::default()).at;
            }
            "host" if self.open.first_line > 0 => self.open.host = host(value),
            "rank" if self.open.first_line > 0 => {
                let digits = value.split_whitespace().next();
                self.open.rank = digits.and_then(|digits| digits.parse().ok()).map(Rank);
            }
            "exitcode" if self.open.first_line > 0 => {
                (self.open.exit, self.open.pid) = exit(value);
            }
            "error_file" | "traceback" if self.open.first_line > 0 => {}
            _ => return,
        }
        if self.open.first_line == 0 {
            self.open.first_line = number;
            self.open.is_first = std::mem::take(&mut self.is_below_heading);
        }
        self.open.last_line = number;
    }

    /// Completes the open summary; drops it if it names no rank.
    fn close(&mut self) {
        let done = std::mem::take(&mut self.open);
        if done.rank.is_some() && self.done.len() < KEPT {
            self.done.push(done);
        }
    }

    /// Sets times and nodes that observations lack: the time for lines within a summary and for the last error of its rank
    /// before it, the node for all signals of a rank.
    pub(crate) fn place(&mut self, seen: &mut [PlacedObservation]) {
        self.close();
        let hosts: BTreeMap<Rank, &NodeId> = self
            .done
            .iter()
            .filter_map(|summary| Some((summary.rank?, summary.host.as_ref()?)))
            .collect();
        if self.done.is_empty() {
            return;
        }
        for summary in &self.done {
            date_last_error(summary, seen);
        }
        let walls: Vec<(u64, Timestamp)> = seen.iter().filter_map(|one| Some((one.last_line, one.wall?))).collect();
        for one in seen {
            let lines = |summary: &&WorkerSummary| (summary.first_line..=summary.last_line).contains(&one.key_line);
            let own = self.done.iter().find(lines);
            if let (Some(at), None) = (own.and_then(|summary| summary.at), one.wall) {
                set_time(one, of_second(at, &walls, one.first_line));
            }
            let reported = one.signs.iter().find_map(|sign| self.of_process(sign));
            for sign in &mut one.signs {
                set_node(sign, &hosts);
                if let Some(summary) = own {
                    let has_first = self.has_first_below(summary);
                    set_fields(sign, summary, has_first);
                } else if let Some(summary) = reported {
                    set_fields(sign, summary, false);
                }
            }
        }
    }

    /// Returns true if a summary stands in a table that names the first failure below it.
    fn has_first_below(&self, summary: &WorkerSummary) -> bool {
        let mut below = self.done.iter().filter(|other| other.first_line > summary.last_line);
        !summary.is_first && below.any(|other| other.is_first)
    }

    /// Returns the only summary of the process that a report of the launcher names by its number.
    fn of_process(&self, sign: &Signal) -> Option<&WorkerSummary> {
        let pid = sign.pid().filter(|_| sign.field("local_rank").is_some())?;
        let mut same = self.done.iter().filter(|summary| summary.pid == Some(pid));
        let summary = same.next()?;
        same.all(|other| other.rank == summary.rank).then_some(summary)
    }
}

/// Parses `-6 (pid: 4021)`: exit code and process.
fn exit(value: &str) -> (Option<i32>, Option<u32>) {
    let mut words = value.split_whitespace();
    let code = words.next().and_then(|word| word.parse().ok());
    let pid = words.find_map(|word| word.trim_end_matches(')').parse().ok());
    (code, pid)
}

/// Gives the last error of a rank without a time that of the summary below, which the launcher wrote as the rank ended.
fn date_last_error(summary: &WorkerSummary, seen: &mut [PlacedObservation]) {
    let (Some(at), Some(rank)) = (summary.at, summary.rank) else {
        return;
    };
    let is_own = |one: &&mut PlacedObservation| {
        let of_rank = one.signs.iter().any(|sign| sign.entity.rank() == Some(rank));
        of_rank && one.last_line < summary.first_line
    };
    let last = seen.iter_mut().rfind(is_own);
    if let Some(last) = last.filter(|last| last.own_clock.is_none()) {
        set_time(last, at);
    }
}

/// Returns the time of a line in a summary, which gives whole seconds: no earlier than the lines above it of that second.
fn of_second(at: Timestamp, walls: &[(u64, Timestamp)], line: u64) -> Timestamp {
    let above = walls.iter().filter(|(last, _)| *last < line).map(|(_, wall)| *wall);
    let is_of_second = |wall: &Timestamp| *wall >= at && wall.since(at) < Duration::from_secs(1);
    above.filter(is_of_second).max().unwrap_or(at)
}

/// Sets what a summary states of its process and the line itself does not repeat: rank, node, exit status, and whether the
/// process failed first. `has_first` is true if the table names another process as the first.
fn set_fields(sign: &mut Signal, summary: &WorkerSummary, has_first: bool) {
    if let SignalMeaning::Mark(mark) = &mut sign.what {
        if summary.is_first {
            mark.fields.fill(SUMMARY_FIELD, FIRST_OF_SUMMARY);
        } else if has_first {
            mark.fields.fill(SUMMARY_FIELD, LATER_IN_SUMMARY);
        }
        if let Some(exit) = summary.exit {
            mark.fields.fill(EXIT_STATUS_FIELD, exit.to_string());
        }
        if let Some(rank) = summary.rank {
            mark.fields.fill("rank", rank.to_string());
        }
        if let Some(host) = &summary.host {
            mark.fields.fill("node", host.as_str());
        }
    }
}

fn set_time(one: &mut PlacedObservation, at: Timestamp) {
    one.wall = Some(at);
    one.own_clock = one.own_clock.or(Some(at));
    for sign in &mut one.signs {
        sign.at = at;
        sign.timed = true;
    }
}

/// Sets the node of a rank's signal if it is unknown.
fn set_node(sign: &mut Signal, hosts: &BTreeMap<Rank, &NodeId>) {
    if let Entity::Rank { rank, node, .. } = &mut sign.entity
        && node.as_str().is_empty()
        && let Some(host) = hosts.get(rank)
    {
        *node = (*host).clone();
    }
}

/// Returns the host in a summary, a name without its domain; `None` for `<N/A>`.
fn host(text: &str) -> Option<NodeId> {
    let name = text.split_whitespace().next()?;
    let is_address = name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let short = if is_address { name } else { name.split('.').next()? };
    (!short.is_empty() && short != "<N/A>").then(|| NodeId::from(short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_time_host_and_rank() {
        let mut failures = WorkerFailures::default();
        let text = "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-23_10:04:13\n  host      : gpu-07.cluster.local\n  \
                    rank      : 7 (local_rank: 7)\n  exitcode  : 1 (pid: 4021)\n  error_file: <N/A>\n";
        for (number, line) in (1..).zip(text.lines()) {
            failures.read(number, line);
        }
        failures.close();
        let found = &failures.done[0];
        assert_eq!((found.first_line, found.last_line), (3, 7));
        assert_eq!(
            found.at.map(|at| at.to_string()),
            Some("2026-11-23T10:04:13.000Z".to_owned())
        );
        assert_eq!(
            (found.host.as_ref().map(NodeId::as_str), found.rank),
            (Some("gpu-07"), Some(Rank(7)))
        );
    }

    #[test]
    fn fields_without_a_summary_are_text() {
        let mut failures = WorkerFailures::default();
        for (number, line) in (1..).zip(["rank : 3", "host : a", "loss: 3", "time: never"]) {
            failures.read(number, line);
        }
        failures.close();
        assert!(failures.done.is_empty());
    }
}
