//! Along the waiting, to its ends.

use std::collections::{BTreeMap, BTreeSet};

use super::waits::{Cause, Waits};
use super::world::World;

pub(super) struct Walk {
    /// Ranks that others wait for and that wait for nobody, with the number of ranks that wait for them through whatever chain. Where
    /// a chain has no such end but leads into an operation that all its members called, the rank that it enters by.
    pub(super) ends: BTreeMap<u32, usize>,
    /// Ranks that wait for each other in a circle, each waiting for the next.
    pub(super) cycles: Vec<Vec<u32>>,
    /// For each rank that somebody waits for, the waits that name it: places in [`Waits::waits`].
    pub(super) reasons: BTreeMap<u32, Vec<usize>>,
    /// All ranks that somebody waits for directly.
    pub(super) awaited: BTreeSet<u32>,
}

/// Ends whose waiters are followed one by one; beyond that many, waiting for one of them is waiting for all.
pub(super) const ENDS_FOLLOWED: usize = 64;

impl Walk {
    pub(super) fn along(world: &World<'_>, waits: &Waits) -> Walk {
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
            wait.is_some_and(|wait| wait.cause == Cause::Joint)
        };
        for rank in awaited.iter().filter(|rank| joint(rank)) {
            let lacking = reasons[rank]
                .iter()
                .any(|index| waits.waits[*index].cause == Cause::Missing);
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
        Walk {
            ends: found,
            reasons,
            cycles,
            awaited,
        }
    }
}

/// All ranks that wait for one of these, through whatever chain.
fn behind(waits: &Waits, reasons: &BTreeMap<u32, Vec<usize>>, ends: &[u32]) -> BTreeSet<u32> {
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

/// Circles among the ranks that nothing else explains: each of them waits for another of them, so following the lowest
/// comes round.
fn circles(world: &World<'_>, waits: &Waits, settled: &BTreeSet<u32>) -> Vec<Vec<u32>> {
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
