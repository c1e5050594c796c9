//! All dumps combined: groups with their members, and operations of each rank with their known state.
//!
//! A rank's own state can be stale: a hanging watchdog sees no completion. So an operation also counts as done if
//! another member completed it, or a later one that cannot complete without all members (`proven`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dump::{DumpEntry, OperationState, RecorderDump};
use crate::operation::{OpKind, OperationName, SequenceKind};

/// Index of a group in [`CombinedDumps::groups`].
pub(super) type GroupIndex = usize;

pub(super) struct GroupView {
    pub(super) id: Arc<str>,
    pub(super) description: Arc<str>,
    /// Global ranks of the members, ascending.
    pub(super) ranks: Arc<[u32]>,
    pub(super) members: BTreeMap<u32, MemberView>,
}

/// Known state of one member of one group.
#[derive(Debug, Clone, Default)]
pub(super) struct MemberView {
    /// Last collective called; `None` if unknown.
    pub(super) enqueued: Option<i64>,
    pub(super) started: Option<i64>,
    /// Last collective that the rank itself saw complete.
    pub(super) completed: Option<i64>,
    /// Last point-to-point operation called.
    pub(super) p2p_enqueued: Option<i64>,
    /// Operations of the rank in this group, oldest first, as indices in [`RankView::ops`].
    pub(super) ops: Vec<usize>,
}

/// Operation of one rank; entries of one launch form one operation.
#[derive(Debug, Clone)]
pub(super) struct RankOperation {
    pub(super) group: GroupIndex,
    pub(super) lane: SequenceKind,
    pub(super) seq: i64,
    pub(super) kind: OpKind,
    /// Index of its first entry in the dump.
    pub(super) entry: usize,
    /// Indices of further entries of the same launch.
    pub(super) more: Vec<usize>,
    pub(super) state: OperationState,
    /// True if other members prove it done, regardless of the rank's own state.
    pub(super) proven: bool,
    /// True if the rank recorded later operations that are done: it is not blocked here.
    pub(super) overtaken: bool,
}

impl RankOperation {
    pub(super) fn pending(&self) -> bool {
        self.state != OperationState::Completed && !self.proven
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.entry).chain(self.more.iter().copied())
    }
}

pub(super) struct RankView<'d> {
    /// `None` for a rank that others name and that has no dump.
    pub(super) dump: Option<&'d RecorderDump>,
    pub(super) ops: Vec<RankOperation>,
    /// Number of operations that others prove done and the rank did not see end.
    pub(super) stale: usize,
}

impl RankView<'_> {
    pub(super) fn has_entries(&self) -> bool {
        self.dump.is_some_and(|dump| !dump.entries.is_empty())
    }
}

pub(super) struct CombinedDumps<'d> {
    pub(super) groups: Vec<GroupView>,
    pub(super) ranks: BTreeMap<u32, RankView<'d>>,
}

impl<'d> CombinedDumps<'d> {
    /// Marks the operations that other members prove done.
    pub(super) fn prove(&mut self) {
        for group in &self.groups {
            // The furthest completion, and the furthest of another rank: a rank does not prove its own.
            let mut furthest: [Option<(i64, u32)>; 2] = [None, None];
            for (rank, member) in &group.members {
                let seen = member.completed.map(|seq| (seq, *rank));
                if seen > furthest[0] {
                    furthest = [seen, furthest[0]];
                } else if seen > furthest[1] {
                    furthest[1] = seen;
                }
            }
            for (rank, member) in &group.members {
                let other = furthest.iter().flatten().find(|(_, by)| by != rank);
                let (Some((until, _)), Some(view)) = (other, self.ranks.get_mut(rank)) else {
                    continue;
                };
                let ops = &mut view.ops;
                let within = |op: &RankOperation| op.lane == SequenceKind::Collective && op.seq <= *until;
                let last = member
                    .ops
                    .iter()
                    .rposition(|at| within(&ops[*at]) && ops[*at].kind.proves_all());
                for at in member.ops.iter().take(last.map_or(0, |last| last + 1)) {
                    let op = &mut ops[*at];
                    if op.lane == SequenceKind::Collective && op.state != OperationState::Completed {
                        op.proven = true;
                        view.stale += 1;
                    }
                }
            }
        }
    }

    /// Marks pending operations that later ones overtook. On a rank that did not see its operations end, all
    /// operations before the last proven one count as done too, although no member proves them: sends and receives,
    /// and collectives of a group with only such ranks. A collective that is known to lack a member cannot be done.
    pub(super) fn mark_overtaken(&mut self) {
        let least = |group: &GroupView| group.members.values().filter_map(|member| member.enqueued).min();
        let reached: Vec<Option<i64>> = self.groups.iter().map(least).collect();
        for view in self.ranks.values_mut() {
            let Some(dump) = view.dump else { continue };
            let mut over = false;
            let mut proven = false;
            // A gap in the record numbers is a completed operation that was omitted.
            let mut next_id = dump.entries.last().map_or(0, |entry| entry.record_id + 1);
            for op in view.ops.iter_mut().rev() {
                let last = op.more.last().copied().unwrap_or(op.entry);
                over |= dump.entries[last].record_id + 1 < next_id;
                if op.pending() {
                    op.overtaken = over;
                    let complete =
                        op.lane == SequenceKind::PointToPoint || reached[op.group].is_none_or(|seq| seq >= op.seq);
                    op.proven = proven && complete;
                } else {
                    over = true;
                    proven |= op.proven;
                }
                next_id = dump.entries[op.entry].record_id;
            }
        }
    }

    pub(super) fn entry(&self, rank: u32, op: &RankOperation) -> Option<&'d DumpEntry> {
        self.ranks.get(&rank)?.dump?.entries.get(op.entry)
    }

    /// Formats `nccl:all_to_all`; a launch of several is named after its first.
    pub(super) fn op_name(&self, rank: u32, op: &RankOperation) -> String {
        let name = self.entry(rank, op).map_or("", |entry| &entry.profiling_name);
        match op.more.len() {
            0 => name.to_owned(),
            more => format!("{name} and {more} more in one launch"),
        }
    }

    pub(super) fn group_name(&self, group: GroupIndex) -> String {
        let group = &self.groups[group];
        crate::phrases::group_name(&group.id, &group.description)
    }
}

pub(super) fn kind(entry: &DumpEntry) -> OpKind {
    OperationName::parse(&entry.profiling_name).kind
}
