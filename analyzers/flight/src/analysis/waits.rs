//! Operation that blocks each rank, and the ranks for which it waits.
//!
//! A rank usually has many operations enqueued. The first one that lacks a member, because the member never called
//! it, blocks the rank (`Missing`). If no operation of the rank lacks a member, its first pending operation waits for
//! members that are blocked earlier (`Blocked`), or for the only members without a started kernel (`NotStarted`); if
//! all members are in it, it runs or hangs by itself (`Joint`).

use std::collections::BTreeMap;

use crate::dump::OperationState;
use crate::operation::SequenceKind;

use super::combined::{CombinedDumps, GroupIndex, RankOperation};
use super::pairs::TransferTable;

/// Reason why an operation does not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitCause {
    Missing,
    Blocked,
    NotStarted,
    Joint,
}

/// Operation that blocks ranks.
pub(super) struct BlockedOperation {
    pub(super) group: GroupIndex,
    pub(super) lane: SequenceKind,
    pub(super) seq: i64,
    pub(super) cause: WaitCause,
    /// Blocked ranks, with the index of their operation.
    pub(super) waiters: Vec<(u32, usize)>,
    /// Ranks for which they wait.
    pub(super) targets: Vec<u32>,
}

pub(super) struct WaitIndex {
    pub(super) waits: Vec<BlockedOperation>,
    /// Index in `waits` of the operation that blocks each rank.
    pub(super) of_rank: BTreeMap<u32, usize>,
    /// Pending collectives with the ranks that called them.
    pub(super) pending: BTreeMap<(GroupIndex, i64), Vec<(u32, usize)>>,
    pub(super) pairs: TransferTable,
}

/// Identity of an operation: a collective is shared by its members, a send or receive belongs to one rank.
type OperationKey = (GroupIndex, SequenceKind, i64, Option<u32>);

fn key(rank: u32, op: &RankOperation) -> OperationKey {
    (
        op.group,
        op.lane,
        op.seq,
        (op.lane == SequenceKind::PointToPoint).then_some(rank),
    )
}

impl WaitIndex {
    pub(super) fn find(world: &CombinedDumps<'_>) -> WaitIndex {
        let mut pending: BTreeMap<(GroupIndex, i64), Vec<(u32, usize)>> = BTreeMap::new();
        for (rank, view) in &world.ranks {
            for (at, op) in view.ops.iter().enumerate() {
                if op.pending() && op.lane == SequenceKind::Collective {
                    pending.entry((op.group, op.seq)).or_default().push((*rank, at));
                }
            }
        }
        let mut waits = WaitIndex {
            waits: Vec::new(),
            of_rank: BTreeMap::new(),
            pending,
            pairs: TransferTable::find(world),
        };
        let mut known: BTreeMap<OperationKey, usize> = BTreeMap::new();
        let heads = waits.find_missing(world, &mut known);
        waits.find_blocked(world, &mut known, &heads);
        waits
    }

    fn hold(
        &mut self,
        known: &mut BTreeMap<OperationKey, usize>,
        rank: u32,
        at: usize,
        op: &RankOperation,
        cause: WaitCause,
        targets: Vec<u32>,
    ) {
        let index = *known.entry(key(rank, op)).or_insert_with(|| {
            let group = op.group;
            let lane = op.lane;
            let seq = op.seq;
            self.waits.push(BlockedOperation {
                group,
                lane,
                seq,
                cause,
                waiters: Vec::new(),
                targets,
            });
            self.waits.len() - 1
        });
        self.waits[index].waiters.push((rank, at));
        self.of_rank.insert(rank, index);
    }

    /// Finds operations that lack members. Returns the first pending operation of each other rank that has one.
    fn find_missing(
        &mut self,
        world: &CombinedDumps<'_>,
        known: &mut BTreeMap<OperationKey, usize>,
    ) -> BTreeMap<u32, usize> {
        // Up to the least number that every member reached, no member is missing.
        let reached: Vec<Option<i64>> = world
            .groups
            .iter()
            .map(|group| group.members.values().map(|m| m.enqueued).min().flatten())
            .collect();
        let mut heads = BTreeMap::new();
        for (rank, view) in &world.ranks {
            let pending = || view.ops.iter().enumerate().filter(|(_, op)| op.pending());
            // A send or receive that later operations overtook blocks no rank while another operation does.
            let aside = |op: &RankOperation| op.lane == SequenceKind::PointToPoint && op.overtaken;
            let order = || {
                pending()
                    .filter(|(_, op)| !aside(op))
                    .chain(pending().filter(|(_, op)| aside(op)))
            };
            let missing = order().find_map(|(at, op)| {
                let targets = match op.lane {
                    SequenceKind::Collective if reached[op.group].is_some_and(|seq| seq >= op.seq) => return None,
                    SequenceKind::Collective => missing(world, op.group, op.seq),
                    SequenceKind::PointToPoint => self.pairs.peers(world, *rank, at).1,
                };
                (!targets.is_empty()).then_some((at, targets))
            });
            match missing {
                Some((at, targets)) => self.hold(known, *rank, at, &view.ops[at], WaitCause::Missing, targets),
                None => heads.extend(order().next().map(|(at, _)| (*rank, at))),
            }
        }
        heads
    }

    fn find_blocked(
        &mut self,
        world: &CombinedDumps<'_>,
        known: &mut BTreeMap<OperationKey, usize>,
        heads: &BTreeMap<u32, usize>,
    ) {
        let lacking = self.of_rank.clone();
        for (rank, at) in heads {
            let op = &world.ranks[rank].ops[*at];
            if let Some(index) = known.get(&key(*rank, op)).copied() {
                self.waits[index].waiters.push((*rank, *at));
                self.of_rank.insert(*rank, index);
                continue;
            }
            let with: Vec<(u32, Option<usize>)> = match op.lane {
                SequenceKind::Collective => self.pending[&(op.group, op.seq)]
                    .iter()
                    .map(|(member, at)| (*member, Some(*at)))
                    .collect(),
                SequenceKind::PointToPoint => self
                    .pairs
                    .peers(world, *rank, *at)
                    .0
                    .into_iter()
                    .map(|peer| (peer, None))
                    .collect(),
            };
            let elsewhere = |member: &u32, own: &Option<usize>| match (heads.get(member), own) {
                (Some(head), Some(own)) => head != own,
                (Some(head), None) => !self.faces(world, *member, *head, *rank),
                (None, _) => false,
            };
            let lack = |(member, _): &(u32, Option<usize>)| lacking.contains_key(member);
            let mut cause = WaitCause::Blocked;
            let mut targets: Vec<u32> = with
                .iter()
                .filter(|member| lack(member))
                .map(|(member, _)| *member)
                .collect();
            if targets.is_empty() {
                targets = with
                    .iter()
                    .filter(|(m, own)| m != rank && elsewhere(m, own))
                    .map(|(m, _)| *m)
                    .collect();
            }
            if targets.is_empty() {
                let state = |(member, at): &(u32, Option<usize>)| Some(world.ranks[member].ops[(*at)?].state);
                let started = with
                    .iter()
                    .filter(|member| state(member) == Some(OperationState::Started))
                    .count();
                cause = if started > 0 && started < with.len() {
                    WaitCause::NotStarted
                } else {
                    WaitCause::Joint
                };
                if cause == WaitCause::NotStarted {
                    let late = with
                        .iter()
                        .filter(|member| state(member) == Some(OperationState::Scheduled));
                    targets = late.map(|(member, _)| *member).collect();
                }
            }
            self.hold(known, *rank, *at, op, cause, targets);
        }
        // A rank that is the only one with an unstarted kernel waits for no recorded rank.
        for wait in self.waits.iter_mut().filter(|wait| wait.cause == WaitCause::NotStarted) {
            wait.waiters.retain(|(rank, _)| !wait.targets.contains(rank));
            for target in &wait.targets {
                self.of_rank.remove(target);
            }
        }
    }

    /// Returns true if a rank's operation is a send or receive with that peer.
    fn faces(&self, world: &CombinedDumps<'_>, rank: u32, at: usize, peer: u32) -> bool {
        let lane = world.ranks[&rank].ops[at].lane;
        lane == SequenceKind::PointToPoint && self.pairs.peers(world, rank, at).0.contains(&peer)
    }
}

/// Returns the members that never called a collective of their group, or that have an unknown state.
pub(super) fn missing(world: &CombinedDumps<'_>, group: GroupIndex, seq: i64) -> Vec<u32> {
    let members = world.groups[group].members.iter();
    members
        .filter(|(_, member)| member.enqueued.is_none_or(|last| last < seq))
        .map(|(rank, _)| *rank)
        .collect()
}
