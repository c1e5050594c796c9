//! Which ranks the others wait for, tensor by tensor, as Horovod's stall inspector tells it.
//!
//! A rank that misses what others submitted is late or gone. Two ranks that each miss what the other one submitted are
//! neither: they went different ways and would wait for each other for ever.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::Rank;

use crate::{Candidate, Scene, Sign, Strength};

/// Sets of ranks that are kept, each compared with each; ranks that are told to be absent.
const READY: usize = 256;

/// The signature of a line of the table of missing ranks: `1: [grad.a, grad.b]`.
const TABLE: &str = "stalled-tensors";

/// What was told of tensors that wait.
#[derive(Debug, Default)]
pub(super) struct Stalled<'a> {
    /// The tensors that a rank has not submitted.
    missing: BTreeMap<Rank, BTreeSet<&'a str>>,
    /// The ranks that submitted a tensor, each set once.
    ready: BTreeSet<BTreeSet<Rank>>,
    /// The first sign of a stall, and those that name tensors.
    first: Option<usize>,
    signs: BTreeSet<usize>,
}

impl<'a> Stalled<'a> {
    pub(super) fn of(scene: &Scene<'a>) -> Self {
        let mut told = Self::default();
        for (index, sign) in scene.signs.iter().enumerate() {
            let stalls = sign.class().is_some_and(|class| class.as_str() == "hang-stalled-ranks");
            if stalls {
                told.first = told.first.or(Some(index));
            }
            if stalls && told.read(sign) {
                told.signs.insert(index);
            }
        }
        told
    }

    /// Ranks that miss something.
    pub(super) fn missing(&self) -> BTreeSet<Rank> {
        if self.first.is_none() {
            return BTreeSet::new();
        }
        if !self.missing.is_empty() {
            return self.missing.keys().copied().collect();
        }
        // Of a world that nobody tells the size of, those below the highest that speaks are known to exist.
        let present: BTreeSet<Rank> = self.ready.iter().flatten().copied().collect();
        let gaps = present.iter().scan(0, |next, rank| {
            let gap = *next..rank.0;
            *next = rank.0.saturating_add(1);
            Some(gap)
        });
        gaps.flatten().take(READY).map(Rank).collect()
    }

    /// Two ranks, or two groups of ranks, that wait for each other's tensors.
    pub(super) fn mismatch(&self, scene: &Scene<'_>) -> Option<Candidate> {
        let first = self.first?;
        // Tensors of one kind may be submitted in any order; a broadcast and an allreduce are two places of the program.
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
        let mut candidate = Candidate::new("collective-mismatch", scene.job_entity(), first, Strength::Cause, 0.96);
        candidate.root_rank = alone;
        candidate.support.extend(self.signs.iter().copied());
        candidate.notes.push(format!(
            "Each of {who} waits for tensors that the other has not submitted."
        ));
        Some(candidate)
    }

    /// Whether a sign tells of tensors.
    fn read(&mut self, sign: &'a Sign) -> bool {
        let table = sign.is_signed(TABLE);
        if table && let Some(list) = sign.text.split_once('[').map(|(_, list)| list) {
            // A label that launchers put before lines looks like the number of the rank that is missing.
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

/// The first two sets that have nothing in common.
fn apart<'s, T: Ord>(sets: &[&'s BTreeSet<T>]) -> Option<(&'s BTreeSet<T>, &'s BTreeSet<T>)> {
    sets.iter().enumerate().find_map(|(at, one)| {
        let other = sets[at + 1..].iter().find(|other| one.is_disjoint(other))?;
        Some((*one, *other))
    })
}

/// The one rank of a group, where several others agree on what it does not do.
fn alone(one: &BTreeSet<Rank>, others: &BTreeSet<Rank>) -> Option<Rank> {
    (one.len() == 1 && others.len() > 1).then(|| one.first().copied())?
}

/// The collectives that tensors wait in, by the names that Horovod gives them.
fn kinds(tensors: &BTreeSet<&str>) -> BTreeSet<&'static str> {
    let kind = |tensor: &&str| {
        let name = tensor.to_ascii_lowercase();
        let kinds = ["allgather", "allreduce", "alltoall", "broadcast", "reducescatter"];
        // `DistributedSGD_Allreduce/HorovodAllgather_grad`: the innermost is the one that runs.
        kinds
            .into_iter()
            .max_by_key(|kind| name.rfind(kind).map_or(0, |at| at + 1))
            .filter(|kind| name.contains(kind))
    };
    tensors.iter().filter_map(kind).collect()
}

/// The names of a list, `...` left out.
fn names(list: &str) -> impl Iterator<Item = &str> {
    let inside = list.split(']').next().unwrap_or(list);
    let names = inside.split(',').map(|name| name.trim().trim_end_matches(" ..."));
    names.filter(|name| !name.is_empty())
}

/// Each tensor with the ranks behind it: `grad.a [ready ranks: 0, 2]`. A list that was cut off is left out.
fn sets<'t>(text: &'t str, opening: &'static str) -> impl Iterator<Item = (&'t str, BTreeSet<Rank>)> {
    text.match_indices(opening).filter_map(move |(at, _)| {
        let (inside, _) = text[at + opening.len()..].split_once(']')?;
        let ranks = inside.split(',').filter_map(|rank| rank.trim().parse().ok().map(Rank));
        let tensor = text[..at].trim_end().rsplit([' ', ':']).next().unwrap_or_default();
        Some((tensor, ranks.collect()))
    })
}
