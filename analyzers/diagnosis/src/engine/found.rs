//! Candidates that an engine gathers while it goes through the signs: one for each class of each machine that may be blamed.

use rankguard_model::{Device, Entity, NodeId};

use crate::{Candidate, Sign};

/// The narrowest machine part that a sign speaks of, lent: a rank stands for the node it runs on, and a job for none. In the
/// order of the entities that it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Machine<'a> {
    Unknown,
    Node(&'a NodeId),
    Device(&'a NodeId, &'a Device),
    /// Not a machine's but the job's, which an engine knows.
    Job,
}

impl<'a> Machine<'a> {
    /// Of a sign.
    pub(super) fn of(sign: &'a Sign) -> Self {
        match &sign.entity {
            Entity::Unknown | Entity::Job { .. } => Self::Unknown,
            Entity::Node { node } | Entity::Rank { node, .. } => Self::Node(node),
            Entity::Device { node, device } => Self::Device(node, device),
        }
    }
}

/// Candidates by whom they blame and by class, in that order.
#[derive(Debug)]
pub(super) struct Found<'a> {
    /// Sorted; with each the place of its candidate.
    keys: Vec<((Machine<'a>, &'a str), usize)>,
    /// Where the key stands that was asked for last: signs of a storm ask for the same one again and again.
    newest: usize,
    candidates: Vec<Candidate>,
}

impl<'a> Found<'a> {
    /// None yet. In most scenes it stays one, which gets the room of one.
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

    /// The candidate of a class that blames a machine, made where there is none yet.
    pub(super) fn at(
        &mut self,
        machine: Machine<'a>,
        class: &'a str,
        make: impl FnOnce() -> Candidate,
    ) -> &mut Candidate {
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

    pub(super) fn iter(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Candidate> {
        self.candidates.iter_mut()
    }

    /// All of them, in the order of whom they blame and of class.
    pub(super) fn into_sorted(self) -> impl Iterator<Item = Candidate> {
        let mut candidates: Vec<Option<Candidate>> = self.candidates.into_iter().map(Some).collect();
        self.keys
            .into_iter()
            .filter_map(move |(_, place)| candidates[place].take())
    }
}
