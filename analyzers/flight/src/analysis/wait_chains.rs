//! Traversal of the wait graph to its ends.

use std::collections::{BTreeMap, BTreeSet};

use super::combined::CombinedDumps;
use super::waits::{WaitCause, WaitIndex};

pub(super) struct WaitChains {
    /// Ranks for which others wait and that wait for none, with the number of ranks that wait for them through any
    /// chain. If a chain leads into an operation that all members called, its end is the rank at which it enters.
    pub(super) ends: BTreeMap<u32, usize>,
    /// Cycles of ranks, each waiting for the next.
    pub(super) cycles: Vec<Vec<u32>>,
    /// Indices in [`WaitIndex::waits`] of the waits that name each awaited rank.
    pub(super) reasons: BTreeMap<u32, Vec<usize>>,
    /// Ranks for which others wait directly.
    pub(super) awaited: BTreeSet<u32>,
}

/// Maximum number of ends with separately counted waiters; further ends count all waiters.
pub(super) const ENDS_FOLLOWED: usize = 64;

impl WaitChains {
    pub(super) fn along(world: &CombinedDumps<'_>, waits: &WaitIndex) -> WaitChains {
        let mut reasons: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, wait) in waits.waits.iter().enumerate() {
            for target in wait.targets.iter().filter(|_| !wait.waiters.is_empty()) {
                reasons.entry(*target).or_default().push(index);
            }
        }
        let awaited: BTreeSet<u32> = reasons.keys().copied().collect();
        let ends: Vec<u32> = awaited
            .iter()
            .copied()
            .filter(|rank| !waits.of_rank.contains_key(rank))
            .collect();
        let explained = behind(waits, &reasons, &ends);
        let mut found = BTreeMap::new();
        for (index, end) in ends.iter().enumerate() {
            let waiters = if index < ENDS_FOLLOWED {
                behind(waits, &reasons, &[*end]).len()
            } else {
                explained.len()
            };
            found.insert(*end, waiters);
        }
        let joint = |rank: &u32| {
            let wait = waits.of_rank.get(rank).map(|index| &waits.waits[*index]);
            wait.is_some_and(|wait| wait.cause == WaitCause::Joint)
        };
        for rank in awaited.iter().filter(|rank| joint(rank)) {
            let lacking = reasons[rank]
                .iter()
                .any(|index| waits.waits[*index].cause == WaitCause::Missing);
            let waiters = behind(waits, &reasons, &[*rank]);
            if lacking && !waiters.is_subset(&explained) {
                found.insert(*rank, waiters.len());
            }
        }
        let resting: Vec<u32> = waits.of_rank.keys().copied().filter(|rank| joint(rank)).collect();
        let mut settled = behind(waits, &reasons, &resting);
        settled.extend(resting);
        settled.extend(explained);
        let cycles = circles(world, waits, &settled);
        WaitChains {
            ends: found,
            reasons,
            cycles,
            awaited,
        }
    }
}

/// Returns all ranks that wait for one of `ends` through any chain.
fn behind(waits: &WaitIndex, reasons: &BTreeMap<u32, Vec<usize>>, ends: &[u32]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut seen = vec![false; waits.waits.len()];
    let mut open: Vec<u32> = ends.to_vec();
    while let Some(rank) = open.pop() {
        for index in reasons.get(&rank).into_iter().flatten() {
            if std::mem::replace(&mut seen[*index], true) {
                continue;
            }
            for (waiter, _) in &waits.waits[*index].waiters {
                if found.insert(*waiter) {
                    open.push(*waiter);
                }
            }
        }
    }
    found
}

/// Returns the cycles among the unexplained ranks: each of them waits for another one, so following the lowest target
/// closes a cycle.
fn circles(world: &CombinedDumps<'_>, waits: &WaitIndex, settled: &BTreeSet<u32>) -> Vec<Vec<u32>> {
    let next = |rank: u32| {
        let wait = &waits.waits[*waits.of_rank.get(&rank)?];
        wait.targets
            .iter()
            .copied()
            .find(|target| *target != rank && !settled.contains(target))
    };
    let mut cycles = Vec::new();
    let mut visited: BTreeMap<u32, u32> = BTreeMap::new();
    for start in world
        .ranks
        .keys()
        .filter(|rank| waits.of_rank.contains_key(rank) && !settled.contains(rank))
    {
        let mut path = Vec::new();
        let mut at = Some(*start);
        while let Some(rank) = at {
            match visited.get(&rank) {
                Some(round) if round == start => {
                    let from = path.iter().position(|other| *other == rank).unwrap_or(0);
                    cycles.push(path[from..].to_vec());
                    break;
                }
                Some(_) => break,
                None => {
                    visited.insert(rank, *start);
                    path.push(rank);
                    at = next(rank);
                }
            }
        }
    }
    cycles
}
