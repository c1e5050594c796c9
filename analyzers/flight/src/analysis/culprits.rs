//! Culprits with confidence and reasons in sentences.

use std::collections::{BTreeMap, BTreeSet};

use crate::operation::SequenceKind;
use crate::phrases;
use crate::report::{AnalysisReport, CulpritRank, SuspectRank};

use super::combined::CombinedDumps;
use super::matching::BlamedMismatch;
use super::suspects::{STALE, stale, suspects};
use super::wait_chains::{ENDS_FOLLOWED, WaitChains};
use super::waits::{BlockedOperation, WaitCause, WaitIndex};

/// Confidence of a rank that never called a collective in which others of its group wait.
const MISSING: f64 = 0.9;
/// Confidence if only sends and receives show it: their counters are not always comparable between ranks.
const MISSING_PAIR: f64 = 0.6;
/// Confidence of a rank in an operation that all members called and that does not complete: any of them may be at
/// fault.
const IN_HANGING: f64 = 0.5;
/// Confidence of a rank if only its kernel did not start.
const NOT_STARTED: f64 = 0.6;
/// Confidence of a rank without a dump if most others have one: it died, or its file was not collected.
const NO_DUMP: f64 = 0.7;
/// Confidence of a rank without a dump if many others have none either.
const NO_DUMP_AS_OTHERS: f64 = 0.3;
/// Confidence of a rank that alone called an operation that the others of its group never called.
const LONE_CALLER: f64 = 0.4;
/// Confidence of a rank in a cycle; all of its ranks are equally to blame.
const IN_CYCLE: f64 = 0.5;

pub(super) fn name(
    world: &CombinedDumps<'_>,
    waits: &WaitIndex,
    walk: &WaitChains,
    mismatches: &[BlamedMismatch],
    report: &mut AnalysisReport,
) {
    let mut found: BTreeMap<u32, CulpritRank> = BTreeMap::new();
    let mut accuse = |rank: u32, confidence: f64, because: Vec<String>| {
        let culprit = found.entry(rank).or_insert(CulpritRank {
            rank,
            confidence: 0.0,
            because: Vec::new(),
        });
        culprit.confidence = culprit.confidence.max(confidence);
        culprit.because.extend(because);
    };
    for mismatch in mismatches {
        for (rank, confidence) in &mismatch.blamed {
            accuse(*rank, *confidence, vec![mismatch.mismatch.sentence.clone()]);
        }
    }
    let lone = lone_calls(world, waits, walk);
    let all_waiting = waits.of_rank.len().max(1);
    let known = world.ranks.values().filter(|view| view.dump.is_some()).count();
    let ends = walk.ends.len();
    for (place, (end, waiters)) in walk.ends.iter().enumerate() {
        let reasons = walk.reasons.get(end).map_or(&[][..], Vec::as_slice);
        if reasons.iter().all(|index| lone.contains(index)) {
            continue;
        }
        let view = &world.ranks[end];
        let share = *waiters as f64 / all_waiting as f64;
        let base = match view.dump {
            None if known * 4 >= world.ranks.len() * 3 => NO_DUMP,
            None => NO_DUMP_AS_OTHERS,
            _ if waits.of_rank.contains_key(end) => IN_HANGING,
            _ => reasons
                .iter()
                .map(|index| weight(world, &waits.waits[*index], *end))
                .fold(0.0, f64::max),
        };
        // If a large part of the job is at the end of chains, a shared cause is more likely.
        let crowd = if ends > 3 && ends * 4 > world.ranks.len() {
            0.5
        } else {
            1.0
        };
        let confidence = base * (0.5 + 0.5 * share) * crowd;
        let mut because = direct(world, waits, reasons, *end);
        because.extend(own_state(world, *end, reasons, waits));
        if place < ENDS_FOLLOWED {
            because.extend(longest_chain(world, waits, walk, *end));
        }
        because.push(format!(
            "{} of {} waiting ranks wait for it, directly or through others",
            waiters, all_waiting
        ));
        accuse(*end, rounded(confidence), because);
    }
    for index in lone {
        let wait = &waits.waits[index];
        let callers: Vec<u32> = wait.waiters.iter().map(|(rank, _)| *rank).collect();
        let sentence = format!(
            "{} alone called {}; the other {} members never did and wait for nothing",
            phrases::ranks(&callers),
            place(world, wait),
            wait.targets.len()
        );
        for rank in callers {
            accuse(rank, LONE_CALLER, vec![sentence.clone()]);
        }
    }
    report.culprits = found.into_values().collect();
    report
        .culprits
        .sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then(a.rank.cmp(&b.rank)));
    suspects(world, waits, report);
    if report.culprits.is_empty() && walk.cycles.is_empty() {
        // No chain has an end: the ranks with a stale record are the best available.
        let stale = |suspect: &mut SuspectRank| suspect.confidence >= STALE;
        for SuspectRank {
            rank,
            confidence,
            because,
        } in report.suspects.extract_if(.., stale)
        {
            report.culprits.push(CulpritRank {
                rank,
                confidence,
                because,
            });
        }
    }
    for cycle in &walk.cycles {
        for (place, rank) in cycle.iter().enumerate() {
            let rotated: Vec<u32> = cycle[place..].iter().chain(&cycle[..place]).copied().collect();
            let mut links: Vec<String> = rotated.iter().take(8).map(|rank| link(world, waits, *rank)).collect();
            if rotated.len() > 8 {
                links.push(format!("and {} more until it closes", rotated.len() - 8));
            }
            let because = vec![format!("a circle of {} ranks: {}", cycle.len(), links.join("; "))];
            report.cycles.push(SuspectRank {
                rank: *rank,
                confidence: IN_CYCLE,
                because,
            });
        }
    }
}

fn rounded(confidence: f64) -> f64 {
    (confidence * 1000.0).round() / 1000.0
}

/// Returns the confidence that a wait gives for one of its targets.
fn weight(world: &CombinedDumps<'_>, wait: &BlockedOperation, target: u32) -> f64 {
    let member = &world.groups[wait.group].members[&target];
    match (wait.cause, wait.lane) {
        (WaitCause::Missing, SequenceKind::Collective)
            if member.enqueued.is_some() || !world.ranks[&target].has_entries() =>
        {
            MISSING
        }
        (WaitCause::NotStarted, _) => NOT_STARTED,
        _ => MISSING_PAIR,
    }
}

/// Returns waits in operations that a minority called while all other members neither called it nor wait: more likely
/// the minority called one too many than all others one too few.
fn lone_calls(world: &CombinedDumps<'_>, waits: &WaitIndex, walk: &WaitChains) -> BTreeSet<usize> {
    let lone = |wait: &BlockedOperation| {
        let idle = |rank: &u32| world.ranks[rank].dump.is_some() && walk.ends.contains_key(rank);
        wait.cause == WaitCause::Missing
            && wait.lane == SequenceKind::Collective
            && wait.waiters.len() < wait.targets.len()
            && world.groups[wait.group].ranks.len() > 2
            && wait.targets.len() * 2 > world.groups[wait.group].ranks.len()
            && wait.targets.iter().all(idle)
    };
    (0..waits.waits.len())
        .filter(|index| lone(&waits.waits[*index]))
        .collect()
}

/// Formats `nccl:all_to_all 20537 of group 74:EXPERT_MODEL_PARALLEL_GROUP`
fn place(world: &CombinedDumps<'_>, wait: &BlockedOperation) -> String {
    let name = wait
        .waiters
        .first()
        .map(|(rank, at)| world.op_name(*rank, &world.ranks[rank].ops[*at]));
    format!(
        "{} {} of group {}",
        name.unwrap_or_default(),
        wait.seq,
        world.group_name(wait.group)
    )
}

/// Describes the direct waits for the rank, one sentence for each group.
fn direct(world: &CombinedDumps<'_>, waits: &WaitIndex, reasons: &[usize], rank: u32) -> Vec<String> {
    let mut by_place: BTreeMap<_, Vec<&BlockedOperation>> = BTreeMap::new();
    for wait in reasons.iter().map(|index| &waits.waits[*index]) {
        by_place
            .entry((wait.group, wait.lane, wait.cause))
            .or_default()
            .push(wait);
    }
    let mut told = Vec::new();
    for ((_, _, cause), mut waits) in by_place {
        waits.sort_by_key(|wait| wait.seq);
        let mut waiters: Vec<u32> = waits
            .iter()
            .flat_map(|wait| &wait.waiters)
            .map(|(rank, _)| *rank)
            .collect();
        waiters.sort_unstable();
        let why = match cause {
            WaitCause::Missing if waits[0].targets.iter().all(|target| world.ranks[target].dump.is_none()) => {
                "whose calls no dump shows"
            }
            WaitCause::Missing => "which never called it",
            WaitCause::NotStarted => "whose kernel alone has not started",
            _ => "which has not come to it",
        };
        let mut targets = waits[0].targets.clone();
        targets.truncate(16);
        let mut for_whom = phrases::ranks(&targets);
        if waits[0].targets.len() > 16 {
            for_whom = format!(
                "{} ranks, {} among them",
                waits[0].targets.len(),
                phrases::ranks(&[rank])
            );
        }
        let first = place(world, waits[0]);
        let frame = waits[0]
            .waiters
            .first()
            .and_then(|(rank, at)| phrases::own_frame(&world.entry(*rank, &world.ranks[rank].ops[*at])?.frames))
            .map(ToString::to_string);
        let at = frame.map(|frame| format!(" (at {frame})")).unwrap_or_default();
        let verb = phrases::wait(&waiters);
        let sentence = format!(
            "{} {verb} in {first}{at} for {for_whom}, {why}",
            phrases::ranks(&waiters)
        );
        told.push((waiters.len(), sentence));
    }
    told.sort_by_key(|(waiters, _)| std::cmp::Reverse(*waiters));
    told.into_iter().take(4).map(|(_, sentence)| sentence).collect()
}

/// Describes the state in the rank's own dump.
fn own_state(world: &CombinedDumps<'_>, rank: u32, reasons: &[usize], waits: &WaitIndex) -> Vec<String> {
    let view = &world.ranks[&rank];
    let Some(dump) = view.dump else {
        return vec![format!(
            "rank {rank} has no dump: it died without writing one, or its file was not collected"
        )];
    };
    let mut told = Vec::new();
    let wait = reasons
        .iter()
        .map(|index| &waits.waits[*index])
        .find(|wait| wait.lane == SequenceKind::Collective);
    let reached = wait.and_then(|wait| Some((wait, world.groups[wait.group].members[&rank].enqueued?)));
    if let Some((wait, seq)) = reached {
        told.push(format!(
            "the last that rank {rank} called in group {} is {seq}",
            world.group_name(wait.group)
        ));
    }
    if let Some(wait) = waits.of_rank.get(&rank).map(|index| &waits.waits[*index]) {
        let members: Vec<u32> = wait.waiters.iter().map(|(rank, _)| *rank).collect();
        let place = place(world, wait);
        told.push(format!(
            "{} wait in {place}, which all its members called and that does not complete",
            phrases::ranks(&members)
        ));
        told.extend(stale(world, rank));
        return told;
    }
    match dump.entries.last() {
        None => told.push(format!(
            "rank {rank} has no entry at all: nothing is pending there, it waits for nobody"
        )),
        Some(last) => {
            let frame = phrases::own_frame(&last.frames)
                .map(|frame| format!(" at {frame}"))
                .unwrap_or_default();
            let seq = if last.is_p2p { last.p2p_seq } else { last.collective_seq };
            let group = phrases::group_name(&last.group, &last.description);
            told.push(format!(
                "rank {rank} waits for nobody; its last call is {} {seq} of group {group}{frame}",
                last.profiling_name
            ));
        }
    }
    told.extend(stale(world, rank));
    told
}

/// Formats `rank 0 waits in nccl:recv 0<-3 11984 of group 43:PIPELINE for rank 12`
fn link(world: &CombinedDumps<'_>, waits: &WaitIndex, rank: u32) -> String {
    let Some(wait) = waits.of_rank.get(&rank).map(|index| &waits.waits[*index]) else {
        return String::new();
    };
    let mut targets: Vec<u32> = wait.targets.iter().copied().filter(|target| *target != rank).collect();
    let more = targets.len().saturating_sub(8);
    targets.truncate(8);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let name = wait.waiters.iter().find(|(waiter, _)| *waiter == rank);
    let name = name
        .map(|(rank, at)| world.op_name(*rank, &world.ranks[rank].ops[*at]))
        .unwrap_or_default();
    let group = world.group_name(wait.group);
    format!(
        "rank {rank} waits in {name} {} of group {group} for {}{more}",
        wait.seq,
        phrases::ranks(&targets)
    )
}

/// Describes the chain to the farthest waiting rank, if it has at least two links.
fn longest_chain(world: &CombinedDumps<'_>, waits: &WaitIndex, walk: &WaitChains, end: u32) -> Option<String> {
    let mut next: BTreeMap<u32, (u32, usize)> = BTreeMap::new();
    let mut seen = vec![false; waits.waits.len()];
    let mut open = std::collections::VecDeque::from([(end, 0)]);
    let mut farthest = (0, end);
    while let Some((rank, distance)) = open.pop_front() {
        for index in walk.reasons.get(&rank).into_iter().flatten() {
            if std::mem::replace(&mut seen[*index], true) {
                continue;
            }
            for (waiter, _) in &waits.waits[*index].waiters {
                if *waiter != end && !next.contains_key(waiter) {
                    next.insert(*waiter, (rank, distance + 1));
                    open.push_back((*waiter, distance + 1));
                    if distance + 1 > farthest.0 {
                        farthest = (distance + 1, *waiter);
                    }
                }
            }
        }
    }
    if farthest.0 < 2 {
        return None;
    }
    let mut links = Vec::new();
    let mut at = farthest.1;
    while let Some((after, _)) = next.get(&at).filter(|_| links.len() < 12) {
        links.push(link(world, waits, at));
        at = *after;
    }
    Some(links.join("; "))
}
