//! Description of each group in trouble.

use std::collections::{BTreeMap, BTreeSet};

use crate::operation::SequenceKind;
use crate::phrases;
use crate::report::{AnalysisReport, GroupFinding, GroupState, MemberState};

use super::combined::{CombinedDumps, GroupIndex};
use super::matching::BlamedMismatch;
use super::waits::{BlockedOperation, WaitCause, WaitIndex, missing};

pub(super) fn describe(
    world: &CombinedDumps<'_>,
    waits: &WaitIndex,
    mismatches: Vec<BlamedMismatch>,
    report: &mut AnalysisReport,
) {
    let mut troubled: BTreeMap<(GroupIndex, SequenceKind), GroupFinding> = BTreeMap::new();
    collectives(world, waits, &mut troubled);
    pairs(world, waits, &mut troubled);
    for found in mismatches {
        let group = troubled
            .entry((found.group, found.lane))
            .or_insert_with(|| blank(world, found.group));
        if group.collective.is_empty() {
            let first = found.mismatch.sides.first();
            group.seq = found.mismatch.seq;
            group.front_seq = found.mismatch.seq;
            let called = first.and_then(|side| side.what.split(' ').next()).unwrap_or_default();
            group.collective = called.to_owned();
            group.frame = first.and_then(|side| side.frame.clone());
            let mut ranks: Vec<u32> = found
                .mismatch
                .sides
                .iter()
                .flat_map(|side| side.ranks.clone())
                .collect();
            ranks.sort_unstable();
            group.waiting_ranks = ranks;
        }
        group.mismatches.push(found.mismatch);
    }
    if troubled.is_empty() {
        joint(world, waits, &mut troubled);
    }
    let held = waiting_counts(waits);
    let roots = roots(waits, report);
    for root in &roots {
        if let Some(group) = troubled.get_mut(root) {
            group.root = true;
        }
    }
    let mut groups: Vec<((GroupIndex, SequenceKind), GroupFinding)> = troubled.into_iter().collect();
    groups.sort_by_key(|(key, group)| {
        let number: u64 = group.id.parse().unwrap_or(u64::MAX);
        let place = roots.iter().position(|root| root == key).unwrap_or(usize::MAX);
        (
            place,
            std::cmp::Reverse(held.get(key).copied().unwrap_or(0)),
            number,
            group.id.clone(),
            key.1,
        )
    });
    report.groups = groups.into_iter().map(|(_, group)| group).collect();
    let mut states: Vec<GroupState> = world.groups.iter().map(state).collect();
    states.sort_by_cached_key(|state| (state.id.parse::<u64>().unwrap_or(u64::MAX), state.id.clone()));
    report.all_groups = states;
}

fn state(group: &super::combined::GroupView) -> GroupState {
    let members = group.members.iter().map(|(rank, member)| MemberState {
        rank: *rank,
        enqueued: member.enqueued,
        started: member.started,
        completed: member.completed,
        entries: member.ops.len(),
    });
    GroupState {
        id: group.id.to_string(),
        description: group.description.to_string(),
        members: members.collect(),
    }
}

fn blank(world: &CombinedDumps<'_>, index: GroupIndex) -> GroupFinding {
    let group = &world.groups[index];
    GroupFinding {
        name: world.group_name(index),
        id: group.id.to_string(),
        description: group.description.to_string(),
        members: group.ranks.to_vec(),
        ..GroupFinding::default()
    }
}

/// Fills in operation, size, type and frame of a call.
fn fill(world: &CombinedDumps<'_>, out: &mut GroupFinding, rank: u32, at: usize) {
    let op = &world.ranks[&rank].ops[at];
    out.seq = op.seq;
    if let Some(entry) = world.entry(rank, op) {
        out.collective = entry.profiling_name.to_string();
        out.size = entry
            .input_sizes
            .first()
            .map(|sizes| phrases::shape(sizes))
            .unwrap_or_default();
        out.dtype = entry
            .input_dtypes
            .first()
            .map(|name| name.to_string())
            .unwrap_or_default();
        out.frame = phrases::own_frame(&entry.frames).map(ToString::to_string);
    }
}

/// Adds groups with a collective that lacks members.
fn collectives(
    world: &CombinedDumps<'_>,
    waits: &WaitIndex,
    troubled: &mut BTreeMap<(GroupIndex, SequenceKind), GroupFinding>,
) {
    let mut by_group: BTreeMap<GroupIndex, Vec<i64>> = BTreeMap::new();
    for (index, seq) in waits.pending.keys() {
        by_group.entry(*index).or_default().push(*seq);
    }
    for (index, seqs) in by_group {
        let Some(front) = seqs.last().copied() else { continue };
        let behind = missing(world, index, front);
        let least = world.groups[index]
            .members
            .values()
            .map(|member| member.enqueued)
            .min()
            .flatten();
        let Some(first) = seqs.iter().copied().find(|seq| least.is_none_or(|least| least < *seq)) else {
            continue;
        };
        let mut out = blank(world, index);
        let Some((rank, at)) = waits.pending[&(index, first)].first().copied() else {
            continue;
        };
        fill(world, &mut out, rank, at);
        out.front_seq = front;
        out.missing_first_ranks = missing(world, index, first);
        let waiting: BTreeSet<u32> = seqs
            .iter()
            .flat_map(|seq| &waits.pending[&(index, *seq)])
            .map(|(rank, _)| *rank)
            .collect();
        let members = world.groups[index].ranks.iter().copied();
        out.healthy_ranks = members
            .filter(|rank| !waiting.contains(rank) && behind.binary_search(rank).is_err())
            .collect();
        out.waiting_ranks = waiting.into_iter().collect();
        if behind.len() > out.missing_first_ranks.len() {
            let later: Vec<u32> = behind
                .iter()
                .copied()
                .filter(|r| out.missing_first_ranks.binary_search(r).is_err())
                .collect();
            out.notes.push(format!(
                "{} called {first} and stopped before {front}",
                phrases::ranks(&later)
            ));
        }
        out.missing_ranks = behind;
        troubled.insert((index, SequenceKind::Collective), out);
    }
}

/// Adds groups with a send or receive that the peer never called.
fn pairs(
    world: &CombinedDumps<'_>,
    waits: &WaitIndex,
    troubled: &mut BTreeMap<(GroupIndex, SequenceKind), GroupFinding>,
) {
    let missing =
        |wait: &&BlockedOperation| wait.lane == SequenceKind::PointToPoint && wait.cause == WaitCause::Missing;
    let mut by_group: BTreeMap<GroupIndex, Vec<&BlockedOperation>> = BTreeMap::new();
    for wait in waits.waits.iter().filter(missing) {
        by_group.entry(wait.group).or_default().push(wait);
    }
    for (index, waits) in by_group {
        let mut out = blank(world, index);
        let mut waiting: Vec<(u32, usize)> = waits.iter().flat_map(|wait| &wait.waiters).copied().collect();
        waiting.sort_unstable();
        let Some((rank, at)) = waiting.first().copied() else {
            continue;
        };
        fill(world, &mut out, rank, at);
        out.front_seq = out.seq;
        out.missing_ranks = waits.iter().flat_map(|wait| &wait.targets).copied().collect();
        out.missing_ranks.sort_unstable();
        out.missing_ranks.dedup();
        out.missing_first_ranks = out.missing_ranks.clone();
        out.waiting_ranks = waiting.iter().map(|(rank, _)| *rank).collect();
        let told =
            |rank: &u32| out.waiting_ranks.binary_search(rank).is_ok() || out.missing_ranks.binary_search(rank).is_ok();
        out.healthy_ranks = out.members.iter().copied().filter(|rank| !told(rank)).collect();
        for (rank, at) in waiting.iter().take(16) {
            let wait = waits.iter().find(|wait| wait.waiters.contains(&(*rank, *at)));
            let peers = wait.map(|wait| phrases::ranks(&wait.targets)).unwrap_or_default();
            let name = world.op_name(*rank, &world.ranks[rank].ops[*at]);
            out.notes.push(format!(
                "rank {rank} waits in {name} for {peers}, which never called its side"
            ));
        }
        troubled.insert((index, SequenceKind::PointToPoint), out);
    }
}

/// Adds operations that all members called and that do not complete; reported only if no other group is in trouble.
fn joint(
    world: &CombinedDumps<'_>,
    waits: &WaitIndex,
    troubled: &mut BTreeMap<(GroupIndex, SequenceKind), GroupFinding>,
) {
    for wait in &waits.waits {
        let (Some((rank, at)), false) = (wait.waiters.first().copied(), wait.cause == WaitCause::Missing) else {
            continue;
        };
        let out = troubled
            .entry((wait.group, wait.lane))
            .or_insert_with(|| blank(world, wait.group));
        if out.collective.is_empty() {
            fill(world, out, rank, at);
            out.front_seq = out.seq;
        }
        out.waiting_ranks.extend(wait.waiters.iter().map(|(rank, _)| *rank));
        out.waiting_ranks.sort_unstable();
        out.waiting_ranks.dedup();
        let timed_out = world
            .entry(rank, &world.ranks[&rank].ops[at])
            .is_some_and(|entry| entry.retired);
        let note = match (wait.cause, timed_out) {
            (WaitCause::NotStarted, _) => {
                format!("the kernel of {} alone has not started", phrases::ranks(&wait.targets))
            }
            (WaitCause::Blocked, _) => format!("{} called it and is held up before it", phrases::ranks(&wait.targets)),
            (_, true) => "all members called it and it timed out: the network or a GPU hangs in it".to_owned(),
            _ => "all members called it and it is not complete: it still runs, or hangs in the network".to_owned(),
        };
        if !out.notes.contains(&note) {
            out.notes.push(note);
        }
    }
}

/// Returns the number of waiting ranks for each group.
fn waiting_counts(waits: &WaitIndex) -> BTreeMap<(GroupIndex, SequenceKind), usize> {
    let mut held = BTreeMap::new();
    for wait in &waits.waits {
        *held.entry((wait.group, wait.lane)).or_insert(0) += wait.waiters.len();
    }
    held
}

/// Returns for each culprit, the most certain first, the group in which most ranks wait for it directly; a group that
/// names several culprits counts for all of them.
fn roots(waits: &WaitIndex, report: &AnalysisReport) -> Vec<(GroupIndex, SequenceKind)> {
    let culprits: BTreeSet<u32> = report.culprits.iter().map(|culprit| culprit.rank).collect();
    let mut direct: BTreeMap<(GroupIndex, SequenceKind), (usize, BTreeSet<u32>)> = BTreeMap::new();
    for wait in waits.waits.iter().filter(|wait| wait.cause != WaitCause::Joint) {
        let named: BTreeSet<u32> = wait
            .targets
            .iter()
            .copied()
            .filter(|rank| culprits.contains(rank))
            .collect();
        if !named.is_empty() {
            let (waiters, all) = direct.entry((wait.group, wait.lane)).or_default();
            *waiters += wait.waiters.len();
            all.extend(named);
        }
    }
    let mut roots = Vec::new();
    let mut told: BTreeSet<u32> = BTreeSet::new();
    for culprit in &report.culprits {
        let here = direct
            .iter()
            .filter(|(_, (_, named))| named.contains(&culprit.rank) && !told.contains(&culprit.rank));
        let best = here.max_by_key(|(key, (waiters, named))| (*waiters, named.len(), std::cmp::Reverse(**key)));
        if let Some((key, (_, named))) = best {
            roots.push(*key);
            told.extend(named);
        }
    }
    roots
}
