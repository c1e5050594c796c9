//! The part of a dump that decides, small enough to send: the front of every group, and all groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::dump::{Dump, Entry, Frame, State};
use crate::words;

/// Operations kept of one group and one lane (collectives, point to point) when there is room.
const NEWEST: usize = 64;

/// A dump cut down, in the recorder's own JSON form: [`Dump::read`] reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brief {
    /// The JSON text.
    pub text: String,
    /// Operations that were left out.
    pub left_out: usize,
}

impl Dump {
    /// Cuts a dump down to at most `bytes` of text; `None` where not even the newest operation of each group fits.
    ///
    /// Waiting happens at the front of a group: its newest operations, and the oldest that are not complete where a rank ran
    /// ahead, say who waits for whom. What was completed long ago says nothing of that. Stacks are cut to the program's own line.
    pub fn brief(&self, bytes: usize) -> Option<Brief> {
        let mut newest = NEWEST;
        while newest > 0 {
            let kept = self.front(newest);
            let text = serde_json::to_string(&self.written(&kept)).ok()?;
            if text.len() <= bytes {
                let left_out = self.entries.len() - kept.len();
                return Some(Brief { text, left_out });
            }
            newest /= 2;
        }
        None
    }

    /// Of each group and lane the newest operations and the oldest that are not complete, in the record's order, each with
    /// its number in the brief.
    ///
    /// A gap in the numbers says that what stood there is over. So numbers are given anew, with a gap where there was one and
    /// where something complete was left out, and none where something that is not complete was.
    fn front(&self, most: usize) -> Vec<(i64, &Entry)> {
        let (mut newest, mut oldest) = (Room::default(), Room::default());
        let recent: Vec<bool> = self
            .entries
            .iter()
            .rev()
            .map(|entry| newest.take(entry, most))
            .collect();
        let mut kept = Vec::new();
        let (mut number, mut over, mut before) = (0, false, None);
        for (entry, recent) in self.entries.iter().zip(recent.into_iter().rev()) {
            let complete = entry.state == State::Completed;
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

    fn written<'a>(&'a self, entries: &[(i64, &'a Entry)]) -> Written<'a> {
        let group = |config: &'a crate::GroupConfig| {
            let ranks = format!("{:?}", config.ranks);
            (
                &*config.id,
                WrittenGroup {
                    desc: &config.description,
                    ranks,
                },
            )
        };
        Written {
            version: &self.version,
            rank: self.rank,
            nccl_version: self.library_version.as_deref(),
            pg_config: self.groups.iter().map(group).collect(),
            pg_status: self
                .status
                .iter()
                .map(|(pg_id, status)| {
                    let written = WrittenStatus {
                        last_enqueued_collective: status.last_enqueued,
                        last_started_collective: status.last_started,
                        last_completed_collective: status.last_completed,
                    };
                    (*pg_id, written)
                })
                .collect(),
            entries: entries
                .iter()
                .map(|(number, entry)| WrittenEntry::of(*number, entry))
                .collect(),
        }
    }
}

/// How many operations of each group and lane were taken.
#[derive(Default)]
struct Room<'a> {
    taken: BTreeMap<(&'a str, bool), usize>,
}

impl<'a> Room<'a> {
    /// Whether there is room for one more beside those that were taken.
    fn take(&mut self, entry: &'a Entry, most: usize) -> bool {
        let taken = self.taken.entry((&*entry.group, entry.is_p2p)).or_default();
        *taken += 1;
        *taken <= most
    }
}

/// The recorder's names of fields.
#[derive(Serialize)]
struct Written<'a> {
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nccl_version: Option<&'a str>,
    pg_config: BTreeMap<&'a str, WrittenGroup<'a>>,
    pg_status: BTreeMap<i64, WrittenStatus>,
    entries: Vec<WrittenEntry<'a>>,
}

#[derive(Serialize)]
struct WrittenGroup<'a> {
    desc: &'a str,
    ranks: String,
}

#[derive(Serialize)]
struct WrittenStatus {
    last_enqueued_collective: Option<i64>,
    last_started_collective: Option<i64>,
    last_completed_collective: Option<i64>,
}

#[derive(Serialize)]
struct WrittenEntry<'a> {
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
    frames: Vec<WrittenFrame<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_name: Option<&'a str>,
}

#[derive(Serialize)]
struct WrittenFrame<'a> {
    name: &'a str,
    filename: &'a str,
    line: i64,
}

impl<'a> WrittenEntry<'a> {
    fn of(record_id: i64, entry: &'a Entry) -> Self {
        let names = |dtypes: &'a [Arc<str>]| dtypes.iter().map(|name| &**name).collect();
        let frame = |frame: &'a Frame| WrittenFrame {
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
                State::Scheduled => "scheduled",
                State::Started => "started",
                State::Completed => "completed",
            },
            // The JSON form writes zero for a moment that never came.
            time_created_ns: entry.time_created_ns.unwrap_or(0),
            time_discovered_started_ns: entry.time_started_ns.unwrap_or(0),
            time_discovered_completed_ns: entry.time_completed_ns.unwrap_or(0),
            timeout_ms: entry.timeout_ms,
            is_p2p: entry.is_p2p,
            retired: entry.retired,
            frames: words::own_frame(&entry.frames).map(frame).into_iter().collect(),
            thread_name: entry.thread.as_deref(),
        }
    }
}
