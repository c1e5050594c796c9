//! Matching of sends and receives between peers.
//!
//! Each rank counts its own operations, so numbers of two ranks are not comparable, except in a group of two, where
//! every operation of one has its counterpart on the other. Elsewhere the n-th pending send to a peer matches the
//! peer's n-th pending receive; an operation without a match was not called by the peer.

use std::collections::BTreeMap;

use crate::dump::DumpEntry;
use crate::operation::{OpKind, SequenceKind};

use super::combined::{CombinedDumps, GroupIndex, GroupView, RankOperation, kind};

/// Pending sends and receives from one rank to another in a group, as ascending operation indices.
#[derive(Default)]
pub(super) struct PendingTransfers {
    pub(super) sends: Vec<usize>,
    pub(super) receives: Vec<usize>,
}

pub(super) struct TransferTable {
    pairs: BTreeMap<(GroupIndex, u32, u32), PendingTransfers>,
}

/// Returns sender and receiver of an entry as global ranks. Entry names hold positions in the group; a name that does
/// not put this rank on its own side is read as global ranks.
pub(super) fn ends(group: &GroupView, rank: u32, entry: &DumpEntry) -> Option<(u32, u32)> {
    let (from, to, sends) = match kind(entry) {
        OpKind::Send { from, to } => (from, to, true),
        OpKind::Receive { from, to } => (from, to, false),
        _ => return None,
    };
    let at = |place: u32| group.ranks.get(place as usize).copied();
    let own = |from: u32, to: u32| if sends { from == rank } else { to == rank };
    match (at(from), at(to)) {
        (Some(from), Some(to)) if own(from, to) => Some((from, to)),
        _ => (own(from, to) && group.members.contains_key(&from) && group.members.contains_key(&to))
            .then_some((from, to)),
    }
}

impl TransferTable {
    pub(super) fn find(world: &CombinedDumps<'_>) -> TransferTable {
        let mut pairs: BTreeMap<_, PendingTransfers> = BTreeMap::new();
        for (rank, view) in &world.ranks {
            let Some(dump) = view.dump else { continue };
            for (at, op) in view.ops.iter().enumerate() {
                if op.lane != SequenceKind::PointToPoint || !op.pending() {
                    continue;
                }
                for entry in op.entries() {
                    let Some((from, to)) = ends(&world.groups[op.group], *rank, &dump.entries[entry]) else {
                        continue;
                    };
                    let pair = pairs.entry((op.group, from, to)).or_default();
                    if from == *rank {
                        pair.sends.push(at)
                    } else {
                        pair.receives.push(at)
                    }
                }
            }
        }
        TransferTable { pairs }
    }

    /// Returns the peers of an operation, and the peers that never called their side of it.
    pub(super) fn peers(&self, world: &CombinedDumps<'_>, rank: u32, at: usize) -> (Vec<u32>, Vec<u32>) {
        let mut peers = Vec::new();
        let mut absent = Vec::new();
        let Some(view) = world.ranks.get(&rank) else {
            return (peers, absent);
        };
        let (Some(dump), op) = (view.dump, &view.ops[at]) else {
            return (peers, absent);
        };
        for entry in op.entries() {
            let group = &world.groups[op.group];
            let Some((from, to)) = ends(group, rank, &dump.entries[entry]) else {
                continue;
            };
            let peer = if from == rank { to } else { from };
            if peer == rank {
                continue;
            }
            peers.push(peer);
            if self.is_absent(world, group, op, (rank, peer), (from, to), at) {
                absent.push(peer);
            }
        }
        for list in [&mut peers, &mut absent] {
            list.sort_unstable();
            list.dedup();
        }
        (peers, absent)
    }

    fn is_absent(
        &self,
        world: &CombinedDumps<'_>,
        group: &GroupView,
        op: &RankOperation,
        (rank, peer): (u32, u32),
        (from, to): (u32, u32),
        at: usize,
    ) -> bool {
        if world.ranks.get(&peer).is_none_or(|view| view.dump.is_none()) {
            return true;
        }
        let reached = group.members.get(&peer).and_then(|member| member.p2p_enqueued);
        if let (2, Some(reached)) = (group.ranks.len(), reached) {
            return reached < op.seq;
        }
        let Some(pair) = self.pairs.get(&(op.group, from, to)) else {
            return true;
        };
        let (mine, theirs) = if from == rank {
            (&pair.sends, &pair.receives)
        } else {
            (&pair.receives, &pair.sends)
        };
        let place = mine.binary_search(&at).unwrap_or_else(|place| place);
        theirs.len() <= place
    }

    /// Returns the pairs with equally many pending sends and receives, so that each send has its receive.
    pub(super) fn aligned(&self) -> impl Iterator<Item = (&(GroupIndex, u32, u32), &PendingTransfers)> {
        self.pairs
            .iter()
            .filter(|(_, pair)| !pair.sends.is_empty() && pair.sends.len() == pair.receives.len())
    }
}
