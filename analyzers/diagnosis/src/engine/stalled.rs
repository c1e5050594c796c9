//! Missing ranks for each tensor, as Horovod's stall inspector reports them.
//!
//! A rank that lacks a tensor that others submitted is late or gone. Two ranks that each lack what the other
//! submitted are neither: they took different paths and would wait for each other forever.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_faults::classes;
use rankguard_model::Rank;

use crate::{CandidateStrength, CauseCandidate, FailureScene, Signal};

/// Maximum number of rank sets, each compared with each, and of missing ranks.
const READY: usize = 256;

/// Signature of a line in the table of missing ranks: `1: [grad.a, grad.b]`.
const TABLE: &str = "stalled-tensors";

/// Waiting tensors of all stall reports.
#[derive(Debug, Default)]
pub(super) struct StallReports<'a> {
    /// Tensors that each rank has not submitted.
    missing: BTreeMap<Rank, BTreeSet<&'a str>>,
    /// Distinct sets of ranks that submitted a tensor.
    ready: BTreeSet<BTreeSet<Rank>>,
    /// Index of the first stall; `signs` are the stalls that name tensors.
    first: Option<usize>,
    signs: BTreeSet<usize>,
}

impl<'a> StallReports<'a> {
    pub(super) fn of(scene: &FailureScene<'a>) -> Self {
        let mut told = Self::default();
        for (index, sign) in scene.signs.iter().enumerate() {
            let stalls = sign
                .class()
                .is_some_and(|class| class.as_str() == classes::HANG_STALLED_RANKS);
            if stalls {
                told.first = told.first.or(Some(index));
            }
            if stalls && told.read(sign) {
                told.signs.insert(index);
            }
        }
        told
    }

    /// Returns the ranks that lack a tensor.
    pub(super) fn missing(&self) -> BTreeSet<Rank> {
        if self.first.is_none() {
            return BTreeSet::new();
        }
        if !self.missing.is_empty() {
            return self.missing.keys().copied().collect();
        }
        // If the world size is unknown, all ranks below the highest reported one are known to exist.
        let present: BTreeSet<Rank> = self.ready.iter().flatten().copied().collect();
        let gaps = present.iter().scan(0, |next, rank| {
            let gap = *next..rank.0;
            *next = rank.0.saturating_add(1);
            Some(gap)
        });
        gaps.flatten().take(READY).map(Rank).collect()
    }

    /// Returns a mismatch of two ranks, or two groups of ranks, that wait for each other's tensors.
    pub(super) fn mismatch(&self, scene: &FailureScene<'_>) -> Option<CauseCandidate> {
        let first = self.first?;
        // Tensors of one kind may be submitted in any order; a broadcast and an allreduce are two places of the
        // program.
        let mut places: BTreeMap<BTreeSet<&str>, Rank> = BTreeMap::new();
        for (rank, tensors) in &self.missing {
            places.entry(kinds(tensors)).or_insert(*rank);
        }
        places.remove(&BTreeSet::new());
        let pair = apart(&places.keys().collect::<Vec<_>>())
            .map(|(one, other)| format!("rank {} and rank {}", places[one], places[other]));
        let groups = apart(&self.ready.iter().collect::<Vec<_>>());
        let alone = groups.and_then(|(one, other)| alone(one, other).or_else(|| alone(other, one)));
        let who = match (pair, alone) {
            (Some(pair), _) => pair,
            (None, Some(rank)) => format!("rank {rank} and the others"),
            (None, None) => groups.map(|_| "two groups of ranks".to_owned())?,
        };
        let mut candidate = CauseCandidate::new(
            classes::COLLECTIVE_MISMATCH,
            scene.job_entity(),
            first,
            CandidateStrength::Cause,
            0.96,
        );
        candidate.root_rank = alone;
        candidate.support.extend(self.signs.iter().copied());
        candidate.notes.push(format!(
            "Each of {who} waits for tensors that the other has not submitted."
        ));
        Some(candidate)
    }

    /// Reads the tensors of a sign; returns false if it names none.
    fn read(&mut self, sign: &'a Signal) -> bool {
        let table = sign.is_signed(TABLE);
        if table && let Some(list) = sign.text.split_once('[').map(|(_, list)| list) {
            // A launcher's line label looks like the number of the missing rank.
            let Some(rank) = sign.rank_named().or_else(|| sign.entity.rank()) else {
                return false;
            };
            self.missing.entry(rank).or_default().extend(names(list));
            return true;
        }
        let mut any = false;
        for (tensor, ranks) in sets(&sign.text, "[missing ranks: ") {
            any = true;
            for rank in ranks {
                self.missing.entry(rank).or_default().insert(tensor);
            }
        }
        for (_, ranks) in sets(&sign.text, "[ready ranks: ") {
            any = true;
            if self.ready.len() < READY && !ranks.is_empty() {
                self.ready.insert(ranks);
            }
        }
        any
    }
}

/// Returns the first two disjoint sets.
fn apart<'s, T: Ord>(sets: &[&'s BTreeSet<T>]) -> Option<(&'s BTreeSet<T>, &'s BTreeSet<T>)> {
    sets.iter().enumerate().find_map(|(at, one)| {
        let other = sets[at + 1..].iter().find(|other| one.is_disjoint(other))?;
        Some((*one, *other))
    })
}

/// Returns the only rank of a group if several others agree against it.
fn alone(one: &BTreeSet<Rank>, others: &BTreeSet<Rank>) -> Option<Rank> {
    (one.len() == 1 && others.len() > 1).then(|| one.first().copied())?
}

/// Returns the collectives in which tensors wait, from the names that Horovod gives them.
fn kinds(tensors: &BTreeSet<&str>) -> BTreeSet<&'static str> {
    let kind = |tensor: &&str| {
        let name = tensor.to_ascii_lowercase();
        let kinds = ["allgather", "allreduce", "alltoall", "broadcast", "reducescatter"];
        // In `DistributedSGD_Allreduce/HorovodAllgather_grad` the innermost collective is the one that runs.
        kinds
            .into_iter()
            .max_by_key(|kind| name.rfind(kind).map_or(0, |at| at + 1))
            .filter(|kind| name.contains(kind))
    };
    tensors.iter().filter_map(kind).collect()
}

/// Returns the names of a list, without `...`.
fn names(list: &str) -> impl Iterator<Item = &str> {
    let inside = list.split(']').next().unwrap_or(list);
    let names = inside.split(',').map(|name| name.trim().trim_end_matches(" ..."));
    names.filter(|name| !name.is_empty())
}

/// Returns each tensor with its ranks: `grad.a [ready ranks: 0, 2]`. A truncated list is omitted.
fn sets<'t>(text: &'t str, opening: &'static str) -> impl Iterator<Item = (&'t str, BTreeSet<Rank>)> {
    text.match_indices(opening).filter_map(move |(at, _)| {
        let (inside, _) = text[at + opening.len()..].split_once(']')?;
        let ranks = inside.split(',').filter_map(|rank| rank.trim().parse().ok().map(Rank));
        let tensor = text[..at].trim_end().rsplit([' ', ':']).next().unwrap_or_default();
        Some((tensor, ranks.collect()))
    })
}
