//! Parser of the entries of a dump.

use std::sync::Arc;

use crate::dump::{DumpEntry, OperationState};
use rankguard_pickle::{PickleTree, ValueId};

use super::DumpExtractor;

/// Maximum number of tensors of one entry.
const TENSORS: usize = 1 << 16;
/// Maximum number of dimensions of one tensor.
const DIMENSIONS: usize = 64;

impl DumpExtractor<'_, '_> {
    /// Parses the list of entries, up to the limit of work. Entries that are not in the order of `record_id` are
    /// sorted.
    pub(super) fn entries(&mut self, id: ValueId) -> Vec<DumpEntry> {
        let tree = self.tree;
        let Some(items) = tree.items(id) else {
            self.odd("entries", "no list");
            return Vec::new();
        };
        let mut entries = Vec::with_capacity(items.len().min(1 << 16));
        for (index, item) in items.iter().enumerate() {
            if !self.spend(32) {
                break;
            }
            entries.extend(self.entry(*item, index));
        }
        if !entries.is_sorted_by_key(|entry: &DumpEntry| entry.record_id) {
            self.odd("entries", "not in the order of their record_id; sorted");
            entries.sort_by_key(|entry| entry.record_id);
        }
        entries
    }

    /// Parses one entry. Returns `None`, and reports a problem, if it has no group, or is a collective without a
    /// number.
    fn entry(&mut self, id: ValueId, index: usize) -> Option<DumpEntry> {
        let tree = self.tree;
        let Some(fields) = tree.pairs(id) else {
            self.odd(format!("entries[{index}]"), "no dictionary; left out");
            return None;
        };
        let mut entry = DumpEntry {
            record_id: index as i64,
            pg_id: None,
            group: self.interner.text(""),
            description: self.interner.text(""),
            profiling_name: self.interner.text(""),
            collective_seq: -1,
            p2p_seq: -1,
            op_id: None,
            input_sizes: Arc::from([]),
            output_sizes: Arc::from([]),
            input_dtypes: Arc::from([]),
            output_dtypes: Arc::from([]),
            state: OperationState::Scheduled,
            time_created_ns: None,
            time_started_ns: None,
            time_completed_ns: None,
            timeout_ms: None,
            is_p2p: false,
            retired: false,
            frames: Arc::from([]),
            thread: None,
        };
        let mut p2p = None;
        let mut state = None;
        for (key, value) in fields.take(64) {
            match tree.bytes(key).unwrap_or_default() {
                b"record_id" | b"id" => entry.record_id = tree.integer(value).unwrap_or(index as i64),
                b"pg_id" => entry.pg_id = tree.integer(value),
                b"process_group" => self.process_group(value, &mut entry),
                b"profiling_name" => entry.profiling_name = self.name(value).unwrap_or(entry.profiling_name),
                b"collective_seq_id" => entry.collective_seq = tree.integer(value).unwrap_or(-1),
                // Formats before 2.1 have one counter.
                b"seq_id" if entry.collective_seq < 0 => entry.collective_seq = tree.integer(value).unwrap_or(-1),
                b"p2p_seq_id" => entry.p2p_seq = tree.integer(value).unwrap_or(-1),
                b"op_id" => entry.op_id = tree.integer(value),
                b"input_sizes" => entry.input_sizes = self.shapes(value),
                b"output_sizes" => entry.output_sizes = self.shapes(value),
                b"input_dtypes" => entry.input_dtypes = self.names(value),
                b"output_dtypes" => entry.output_dtypes = self.names(value),
                b"state" => state = tree.bytes(value),
                b"time_created_ns" => entry.time_created_ns = moment(tree, value),
                b"time_discovered_started_ns" => entry.time_started_ns = moment(tree, value),
                b"time_discovered_completed_ns" => entry.time_completed_ns = moment(tree, value),
                b"timeout_ms" => entry.timeout_ms = tree.integer(value),
                b"is_p2p" => p2p = tree.integer(value),
                b"retired" => entry.retired = tree.integer(value) == Some(1),
                b"frames" | b"stack_trace" | b"traceback" => entry.frames = self.stack(value),
                b"thread_name" if !tree.is_none(value) => entry.thread = self.name(value),
                _ => {}
            }
        }
        if entry.group.is_empty() {
            let Some(pg_id) = entry.pg_id else {
                self.odd(
                    format!("entries[{index}].process_group"),
                    "missing; the entry is left out",
                );
                return None;
            };
            entry.group = self.interner.text(&pg_id.to_string());
            self.odd(
                format!("entries[{index}].process_group"),
                "missing; pg_id stands for it",
            );
        }
        if entry.profiling_name.is_empty() {
            self.odd(format!("entries[{index}].profiling_name"), "missing");
        }
        entry.is_p2p = match p2p {
            Some(flag) => flag == 1,
            None => {
                let name = entry.profiling_name.rsplit(':').next().unwrap_or_default();
                name.starts_with("send ") || name.starts_with("recv ")
            }
        };
        if entry.is_p2p && entry.p2p_seq < 0 {
            entry.p2p_seq = entry.collective_seq;
        }
        if !entry.is_p2p && entry.collective_seq < 0 {
            self.odd(
                format!("entries[{index}].collective_seq_id"),
                "missing; the entry is left out",
            );
            return None;
        }
        entry.state = match state {
            Some(b"completed") => OperationState::Completed,
            Some(b"started") => OperationState::Started,
            Some(b"scheduled") => OperationState::Scheduled,
            other => {
                let text = other.map(|text| String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned());
                let what = text.map_or("missing".to_owned(), |text| format!("unknown state {text:?}"));
                self.odd(
                    format!("entries[{index}].state"),
                    format!("{what}; concluded from times"),
                );
                match (entry.time_started_ns, entry.time_completed_ns) {
                    (_, Some(_)) => OperationState::Completed,
                    (Some(_), _) => OperationState::Started,
                    _ => OperationState::Scheduled,
                }
            }
        };
        Some(entry)
    }

    /// Parses name and description of a group from `("74", "EXPERT_MODEL_PARALLEL_GROUP")`, or the name alone in
    /// formats before 2.1.
    fn process_group(&mut self, id: ValueId, entry: &mut DumpEntry) {
        let tree = self.tree;
        let (name, description) = match tree.items(id) {
            Some(items) => (items.first().copied(), items.get(1).copied()),
            None => (Some(id), None),
        };
        if let Some(name) = name.and_then(|name| self.name(name)) {
            entry.group = name;
        }
        if let Some(description) = description.and_then(|text| self.name(text)) {
            entry.description = description;
        }
    }

    /// Parses the shape of each tensor; sizes that are no integers are left out.
    fn shapes(&mut self, id: ValueId) -> Arc<[Vec<i64>]> {
        let tree = self.tree;
        let mut shapes = Vec::new();
        for tensor in tree.items(id).unwrap_or_default().iter().take(TENSORS) {
            let dimensions = tree.items(*tensor).unwrap_or_default();
            if !self.spend(2 + dimensions.len() as u64) {
                break;
            }
            shapes.push(
                dimensions
                    .iter()
                    .take(DIMENSIONS)
                    .filter_map(|size| tree.integer(*size))
                    .collect(),
            );
        }
        self.interner.shapes(&shapes)
    }

    /// Parses a list of names; items that are neither text nor a number are left out.
    fn names(&mut self, id: ValueId) -> Arc<[Arc<str>]> {
        let tree = self.tree;
        let mut names = Vec::new();
        for item in tree.items(id).unwrap_or_default().iter().take(TENSORS) {
            let Some(name) = self.name(*item) else { continue };
            names.push(name);
        }
        self.interner.list(&names)
    }
}

/// Parses a time, nanoseconds since the epoch. `None` if it is absent: the pickle writes `None`, the JSON form 0.
fn moment(tree: &PickleTree<'_>, id: ValueId) -> Option<i64> {
    tree.integer(id).filter(|nanoseconds| *nanoseconds > 0)
}
