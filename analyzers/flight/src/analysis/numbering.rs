//! Assignment of status numbers to groups and to one of a group's two counters.
//!
//! A status is stored under the rank's own number of a group (`pg_id`), which only entries link to the group's name;
//! and collectives and point-to-point operations write the same status, each its own counter. A rank without entries,
//! often the culprit, has neither link. This module infers both.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dump::{OperationState, RecorderDump};
use crate::limits::DumpProblems;
use crate::operation::{OpKind, SequenceKind};

use super::combined::{CombinedDumps, GroupIndex, RankOperation, kind};

/// Fills in the members of all groups and the operations of all ranks.
pub(super) fn count(
    world: &mut CombinedDumps<'_>,
    meant: &BTreeMap<(u32, Arc<str>), GroupIndex>,
    problems: &mut DumpProblems,
) {
    let ranks: Vec<u32> = world.ranks.keys().copied().collect();
    for rank in &ranks {
        gather(world, *rank, meant);
    }
    let lanes = lanes(world);
    let told: BTreeMap<u32, BTreeMap<i64, GroupIndex>> = ranks
        .iter()
        .filter_map(|rank| Some((*rank, groups_by_number(world.ranks[rank].dump?, *rank, meant))))
        .collect();
    // The first number that the entries of any member give a group.
    let mut usual: BTreeMap<GroupIndex, i64> = BTreeMap::new();
    for (pg_id, index) in told.values().flatten() {
        usual.entry(*index).or_insert(*pg_id);
    }
    for rank in &ranks {
        let Some(dump) = world.ranks[rank].dump else { continue };
        let numbers = numbers(dump, *rank, &told[rank], meant, &usual, problems);
        for (pg_id, index) in numbers {
            let (Some(status), Some(member)) = (dump.status.get(&pg_id), world.groups[index].members.get_mut(rank))
            else {
                continue;
            };
            let known = |number: Option<i64>| number.filter(|number| *number >= 0);
            let lane = own_lane(dump, &world.ranks[rank].ops, member, status.last_enqueued).or(lanes[index]);
            match lane {
                Some(SequenceKind::Collective) => {
                    member.enqueued = member.enqueued.max(known(status.last_enqueued));
                    member.started = member.started.max(known(status.last_started));
                    member.completed = member.completed.max(known(status.last_completed));
                }
                Some(SequenceKind::PointToPoint) => {
                    member.p2p_enqueued = member.p2p_enqueued.max(known(status.last_enqueued));
                }
                None => {}
            }
        }
    }
}

/// Collects the entries of a rank; those of one launch become one operation.
fn gather(world: &mut CombinedDumps<'_>, rank: u32, meant: &BTreeMap<(u32, Arc<str>), GroupIndex>) {
    let Some(view) = world.ranks.get_mut(&rank) else { return };
    let Some(dump) = view.dump else { return };
    let mut last: Option<(&Arc<str>, GroupIndex)> = None;
    for (at, entry) in dump.entries.iter().enumerate() {
        let index = match last {
            Some((id, index)) if Arc::ptr_eq(id, &entry.group) => index,
            _ => match meant.get(&(rank, entry.group.clone())) {
                Some(index) => *index,
                None => continue,
            },
        };
        last = Some((&entry.group, index));
        let lane = if entry.is_p2p {
            SequenceKind::PointToPoint
        } else {
            SequenceKind::Collective
        };
        let seq = if entry.is_p2p {
            entry.p2p_seq
        } else {
            entry.collective_seq
        };
        let kind = kind(entry);
        let Some(member) = world.groups[index].members.get_mut(&rank) else {
            continue;
        };
        if entry.collective_seq >= 0 {
            member.enqueued = member.enqueued.max(Some(entry.collective_seq));
        }
        if entry.is_p2p {
            member.p2p_enqueued = member.p2p_enqueued.max(Some(seq));
        }
        let ended = entry.state == OperationState::Completed;
        if lane == SequenceKind::Collective && ended {
            member.completed = member.completed.max(Some(seq));
        }
        if lane == SequenceKind::Collective && (ended || entry.state == OperationState::Started) {
            member.started = member.started.max(Some(seq));
        }
        let same = member.ops.last().filter(|at| {
            let op: &RankOperation = &view.ops[**at];
            op.lane == lane && op.seq == seq
        });
        if let Some(same) = same {
            // Operations within a launch have no events of their own: they end with the last entry of the launch.
            let op = &mut view.ops[*same];
            let closes = kind == OpKind::Coalesced || entry.profiling_name.ends_with("_coalesced");
            op.state = if closes { entry.state } else { op.state.max(entry.state) };
            op.more.push(at);
            continue;
        }
        member.ops.push(view.ops.len());
        let state = entry.state;
        let overtaken = false;
        let proven = false;
        view.ops.push(RankOperation {
            group: index,
            lane,
            seq,
            kind,
            entry: at,
            more: Vec::new(),
            state,
            proven,
            overtaken,
        });
    }
}

/// Returns the counter of each group's statuses, if its members recorded only one kind.
fn lanes(world: &CombinedDumps<'_>) -> Vec<Option<SequenceKind>> {
    let mut lanes = Vec::with_capacity(world.groups.len());
    for group in &world.groups {
        let ops = group.members.iter().flat_map(|(rank, member)| {
            let view = &world.ranks[rank];
            member.ops.iter().map(|at| view.ops[*at].lane)
        });
        let mut collective = false;
        let mut p2p = false;
        for lane in ops {
            collective |= lane == SequenceKind::Collective;
            p2p |= lane == SequenceKind::PointToPoint;
        }
        lanes.push(match (collective, p2p) {
            (true, true) => None,
            (false, true) => Some(SequenceKind::PointToPoint),
            _ => Some(SequenceKind::Collective),
        });
    }
    lanes
}

/// Returns the counter of a rank's status, from its own last entry in the group.
fn own_lane(
    dump: &RecorderDump,
    ops: &[RankOperation],
    member: &super::combined::MemberView,
    enqueued: Option<i64>,
) -> Option<SequenceKind> {
    let last = &ops[*member.ops.last()?];
    let entry = &dump.entries[last.more.last().copied().unwrap_or(last.entry)];
    let enqueued = enqueued?;
    let collective = entry.collective_seq == enqueued;
    let p2p = entry.is_p2p && entry.p2p_seq == enqueued;
    match (collective, p2p) {
        (true, false) => Some(SequenceKind::Collective),
        (false, true) => Some(SequenceKind::PointToPoint),
        _ => Some(last.lane),
    }
}

/// Returns the group of each of a rank's own numbers, from its entries.
fn groups_by_number(
    dump: &RecorderDump,
    rank: u32,
    meant: &BTreeMap<(u32, Arc<str>), GroupIndex>,
) -> BTreeMap<i64, GroupIndex> {
    let mut told = BTreeMap::new();
    for entry in &dump.entries {
        if let Some(pg_id) = entry.pg_id
            && !told.contains_key(&pg_id)
            && let Some(index) = meant.get(&(rank, entry.group.clone()))
        {
            told.insert(pg_id, *index);
        }
    }
    told
}

/// Returns the group of each of a rank's own numbers: from its entries, and otherwise from the order of creation, in
/// which numbers and numeric names both ascend. The order is used only if it agrees with all entries. A rank without
/// entries and without such an order takes the number that other members have for a group, because members of a group
/// usually belong to the same number of groups.
fn numbers(
    dump: &RecorderDump,
    rank: u32,
    told: &BTreeMap<i64, GroupIndex>,
    meant: &BTreeMap<(u32, Arc<str>), GroupIndex>,
    usual: &BTreeMap<GroupIndex, i64>,
    problems: &mut DumpProblems,
) -> BTreeMap<i64, GroupIndex> {
    let mut names: Vec<(u64, GroupIndex)> = Vec::new();
    for config in &dump.groups {
        let (Ok(number), Some(index)) = (config.id.parse(), meant.get(&(rank, config.id.clone()))) else {
            continue;
        };
        names.push((number, *index));
    }
    names.sort_unstable();
    let ordered = names.len() == dump.status.len() && names.len() == dump.groups.len();
    let in_order: BTreeMap<i64, GroupIndex> = dump
        .status
        .keys()
        .copied()
        .zip(names.into_iter().map(|(_, index)| index))
        .collect();
    let agrees = told
        .iter()
        .all(|(pg_id, index)| in_order.get(pg_id).is_none_or(|other| other == index));
    if ordered && agrees {
        return in_order;
    }
    if !dump.entries.is_empty() || dump.status.is_empty() {
        return told.clone();
    }
    problems.add(
        Some(rank),
        "pg_status",
        "order of creation not known: tied to groups as other members number them",
    );
    let mine = dump
        .groups
        .iter()
        .filter_map(|config| meant.get(&(rank, config.id.clone())));
    mine.filter_map(|index| Some((*usual.get(index)?, *index))).collect()
}
