//! Excerpt of a dump, small enough to send: the newest operations of every group, and all groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::dump::{DumpEntry, OperationState, RecorderDump, StackFrame};
use crate::phrases;

/// Maximum number of operations of one group and one lane (collectives, point to point), if space allows.
const NEWEST: usize = 64;

/// Excerpt of a dump in the recorder's own JSON form, readable by [`RecorderDump::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpExcerpt {
    /// JSON text of the excerpt.
    pub text: String,
    /// Number of omitted operations.
    pub left_out: usize,
}

impl RecorderDump {
    /// Reduces a dump to at most `bytes` of text; `None` if not even the newest operation of each group fits.
    ///
    /// Ranks wait at the front of a group: its newest operations, and the oldest incomplete ones if a rank ran ahead,
    /// show which rank waits for which. Operations that completed long ago do not. Stacks are reduced to the
    /// program's own line.
    pub fn brief(&self, bytes: usize) -> Option<DumpExcerpt> {
        let mut newest = NEWEST;
        while newest > 0 {
            let kept = self.front(newest);
            let text = serde_json::to_string(&self.written(&kept)).ok()?;
            if text.len() <= bytes {
                let left_out = self.entries.len() - kept.len();
                return Some(DumpExcerpt { text, left_out });
            }
            newest /= 2;
        }
        None
    }

    /// Returns for each group and lane the newest operations and the oldest incomplete ones, in record order, each
    /// with its number in the excerpt.
    ///
    /// A gap in the numbers means that the omitted operation is done. So operations are renumbered, with a gap where
    /// the record had one or a completed operation was omitted, and none where an incomplete one was.
    fn front(&self, most: usize) -> Vec<(i64, &DumpEntry)> {
        let mut newest = OperationQuota::default();
        let mut oldest = OperationQuota::default();
        let recent: Vec<bool> = self
            .entries
            .iter()
            .rev()
            .map(|entry| newest.take(entry, most))
            .collect();
        let mut kept = Vec::new();
        let mut number = 0;
        let mut over = false;
        let mut before = None;
        for (entry, recent) in self.entries.iter().zip(recent.into_iter().rev()) {
            let complete = entry.state == OperationState::Completed;
            over |= before.is_some_and(|before: i64| entry.record_id > before.saturating_add(1));
            before = Some(entry.record_id);
            if recent || !complete && oldest.take(entry, most) {
                number += 1 + i64::from(over);
                over = false;
                kept.push((number, entry));
            } else {
                over |= complete;
            }
        }
        kept
    }

    fn written<'a>(&'a self, entries: &[(i64, &'a DumpEntry)]) -> ExcerptDocument<'a> {
        let group = |config: &'a crate::GroupConfig| {
            let ranks = format!("{:?}", config.ranks);
            (
                &*config.id,
                ExcerptGroup {
                    desc: &config.description,
                    ranks,
                },
            )
        };
        ExcerptDocument {
            version: &self.version,
            rank: self.rank,
            nccl_version: self.library_version.as_deref(),
            pg_config: self.groups.iter().map(group).collect(),
            pg_status: self
                .status
                .iter()
                .map(|(pg_id, status)| {
                    let written = ExcerptStatus {
                        last_enqueued_collective: status.last_enqueued,
                        last_started_collective: status.last_started,
                        last_completed_collective: status.last_completed,
                    };
                    (*pg_id, written)
                })
                .collect(),
            entries: entries
                .iter()
                .map(|(number, entry)| ExcerptEntry::of(*number, entry))
                .collect(),
        }
    }
}

/// Number of operations taken of each group and lane.
#[derive(Default)]
struct OperationQuota<'a> {
    taken: BTreeMap<(&'a str, bool), usize>,
}

impl<'a> OperationQuota<'a> {
    /// Counts an operation; returns true if it is among the first `most`.
    fn take(&mut self, entry: &'a DumpEntry, most: usize) -> bool {
        let taken = self.taken.entry((&*entry.group, entry.is_p2p)).or_default();
        *taken += 1;
        *taken <= most
    }
}

/// Excerpt with the field names of the recorder.
#[derive(Serialize)]
struct ExcerptDocument<'a> {
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nccl_version: Option<&'a str>,
    pg_config: BTreeMap<&'a str, ExcerptGroup<'a>>,
    pg_status: BTreeMap<i64, ExcerptStatus>,
    entries: Vec<ExcerptEntry<'a>>,
}

#[derive(Serialize)]
struct ExcerptGroup<'a> {
    desc: &'a str,
    ranks: String,
}

#[derive(Serialize)]
struct ExcerptStatus {
    last_enqueued_collective: Option<i64>,
    last_started_collective: Option<i64>,
    last_completed_collective: Option<i64>,
}

#[derive(Serialize)]
struct ExcerptEntry<'a> {
    record_id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pg_id: Option<i64>,
    process_group: [&'a str; 2],
    profiling_name: &'a str,
    collective_seq_id: i64,
    p2p_seq_id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    op_id: Option<i64>,
    input_sizes: &'a [Vec<i64>],
    output_sizes: &'a [Vec<i64>],
    input_dtypes: Vec<&'a str>,
    output_dtypes: Vec<&'a str>,
    state: &'static str,
    time_created_ns: i64,
    time_discovered_started_ns: i64,
    time_discovered_completed_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i64>,
    is_p2p: bool,
    retired: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    frames: Vec<ExcerptFrame<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_name: Option<&'a str>,
}

#[derive(Serialize)]
struct ExcerptFrame<'a> {
    name: &'a str,
    filename: &'a str,
    line: i64,
}

impl<'a> ExcerptEntry<'a> {
    fn of(record_id: i64, entry: &'a DumpEntry) -> Self {
        let names = |dtypes: &'a [Arc<str>]| dtypes.iter().map(|name| &**name).collect();
        let frame = |frame: &'a StackFrame| ExcerptFrame {
            name: &frame.function,
            filename: &frame.file,
            line: frame.line,
        };
        Self {
            record_id,
            pg_id: entry.pg_id,
            process_group: [&entry.group, &entry.description],
            profiling_name: &entry.profiling_name,
            collective_seq_id: entry.collective_seq,
            p2p_seq_id: entry.p2p_seq,
            op_id: entry.op_id,
            input_sizes: &entry.input_sizes,
            output_sizes: &entry.output_sizes,
            input_dtypes: names(&entry.input_dtypes),
            output_dtypes: names(&entry.output_dtypes),
            state: match entry.state {
                OperationState::Scheduled => "scheduled",
                OperationState::Started => "started",
                OperationState::Completed => "completed",
            },
            // The JSON form writes zero for a time that is absent.
            time_created_ns: entry.time_created_ns.unwrap_or(0),
            time_discovered_started_ns: entry.time_started_ns.unwrap_or(0),
            time_discovered_completed_ns: entry.time_completed_ns.unwrap_or(0),
            timeout_ms: entry.timeout_ms,
            is_p2p: entry.is_p2p,
            retired: entry.retired,
            frames: phrases::own_frame(&entry.frames).map(frame).into_iter().collect(),
            thread_name: entry.thread.as_deref(),
        }
    }
}
