//! Candidates that an engine collects while it iterates over the signs: one for each class and blamed machine.

use rankguard_model::{Device, Entity, NodeId};

use crate::{CauseCandidate, Signal};

/// Most specific machine part of a sign, borrowed: a rank maps to its node, a job to none. Ordered like the
/// entities it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MachineRef<'a> {
    Unknown,
    Node(&'a NodeId),
    Device(&'a NodeId, &'a Device),
    /// The job and not a machine; the engine knows which job.
    Job,
}

impl<'a> MachineRef<'a> {
    /// Returns the machine part of a sign.
    pub(super) fn of(sign: &'a Signal) -> Self {
        match &sign.entity {
            Entity::Unknown | Entity::Job { .. } => Self::Unknown,
            Entity::Node { node } | Entity::Rank { node, .. } => Self::Node(node),
            Entity::Device { node, device } => Self::Device(node, device),
        }
    }
}

/// Candidates by blamed machine and class, in that order.
#[derive(Debug)]
pub(super) struct CandidateMap<'a> {
    /// Sorted keys, each with the index of its candidate.
    keys: Vec<((MachineRef<'a>, &'a str), usize)>,
    /// Index of the last requested key: signs of a storm request the same one repeatedly.
    newest: usize,
    candidates: Vec<CauseCandidate>,
}

impl<'a> CandidateMap<'a> {
    /// Creates an empty set with room for one candidate, which most scenes need.
    pub(super) fn new() -> Self {
        Self {
            keys: Vec::with_capacity(1),
            newest: 0,
            candidates: Vec::with_capacity(1),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the candidate of a class that blames a machine, created by `make` if absent.
    pub(super) fn at(
        &mut self,
        machine: MachineRef<'a>,
        class: &'a str,
        make: impl FnOnce() -> CauseCandidate,
    ) -> &mut CauseCandidate {
        let key = (machine, class);
        if self.keys.get(self.newest).is_none_or(|(known, _)| *known != key) {
            self.newest = match self.keys.binary_search_by_key(&key, |(key, _)| *key) {
                Ok(at) => at,
                Err(at) => {
                    self.keys.insert(at, (key, self.candidates.len()));
                    self.candidates.push(make());
                    at
                }
            };
        }
        let (_, place) = self.keys[self.newest];
        &mut self.candidates[place]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CauseCandidate> {
        self.candidates.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut CauseCandidate> {
        self.candidates.iter_mut()
    }

    /// Returns all candidates, ordered by blamed machine and class.
    pub(super) fn into_sorted(self) -> impl Iterator<Item = CauseCandidate> {
        let mut candidates: Vec<Option<CauseCandidate>> = self.candidates.into_iter().map(Some).collect();
        self.keys
            .into_iter()
            .filter_map(move |(_, place)| candidates[place].take())
    }
}
