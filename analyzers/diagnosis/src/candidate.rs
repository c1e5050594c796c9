//! Candidate root causes that the engines propose.

use rankguard_model::{ClassId, Entity, Rank};

use crate::sorted_set::SmallSortedSet;

/// Strength of an explanation. A stronger one explains weaker ones, never the reverse: a dead GPU explains a
/// collective that timed out, a time-out does not explain a dead GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CandidateStrength {
    /// Observed end of a process, without a reason.
    Outcome,
    /// Report of a survivor of another failure.
    Symptom,
    /// Cause that a program, a service or a person names.
    Cause,
    /// Cause in a machine, or an order of the scheduler, that ends everything that runs there.
    Overriding,
}

/// Possible first cause of a scene.
#[derive(Debug, Clone, PartialEq)]
pub struct CauseCandidate {
    pub class: ClassId,
    /// Layer, if the circumstances show another one than the class.
    pub layer: Option<String>,
    /// Entity that would be blamed.
    pub blamed: Entity,
    /// Part that several nodes share, in words, if it is at fault and no entity.
    pub shared: Option<String>,
    /// Rank that failed first, if known.
    pub root_rank: Option<Rank>,
    /// Index of the earliest sign.
    pub first: usize,
    /// Indices of the supporting signs, `first` included.
    pub(crate) support: SmallSortedSet<usize>,
    pub strength: CandidateStrength,
    /// Confidence of the engine, 0 to 1.
    pub score: f64,
    /// Reasons, one full sentence each.
    pub notes: Vec<String>,
}

impl CauseCandidate {
    /// Creates a candidate that rests on one sign.
    pub fn new(
        class: impl Into<ClassId>,
        blamed: Entity,
        first: usize,
        strength: CandidateStrength,
        score: f64,
    ) -> Self {
        let mut support = SmallSortedSet::default();
        support.insert(first);
        Self {
            class: class.into(),
            layer: None,
            shared: None,
            root_rank: blamed.rank(),
            blamed,
            first,
            support,
            strength,
            score,
            notes: Vec::new(),
        }
    }

    /// Adds support from an independent witness, which closes a third of the gap to certainty. The note is written
    /// only if `by` adds a sign.
    pub(crate) fn confirm(&mut self, by: impl IntoIterator<Item = usize>, note: impl FnOnce() -> String) {
        let before = self.support.len();
        self.support.extend(by);
        if self.support.len() > before {
            self.score += (1.0 - self.score) / 3.0;
            self.notes.push(note());
        }
    }
}
