//! Candidate root causes, as the engines propose them.

use rankguard_model::{ClassId, Entity, Rank};

use crate::row::Row;

/// What kind of explanation a candidate is. A stronger kind explains weaker ones, never the other way round: a dead GPU
/// explains a collective that timed out, a time-out does not explain a dead GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// How something ended, which says nothing of why.
    Outcome,
    /// What survivors of something else report.
    Symptom,
    /// A cause that a program, a service or a person names.
    Cause,
    /// A cause in a machine, or an order from above, that ends whatever runs there.
    Overriding,
}

/// One possible first cause of a scene.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its failure class.
    pub class: ClassId,
    /// Where it sits, if its circumstances tell other than its class.
    pub layer: Option<String>,
    /// Who would be blamed.
    pub blamed: Entity,
    /// The rank that failed first, where one is known.
    pub root_rank: Option<Rank>,
    /// Index of the sign that came first.
    pub first: usize,
    /// Indices of the signs that say the same, `first` included.
    pub(crate) support: Row<usize>,
    /// What kind of explanation it is.
    pub strength: Strength,
    /// 0 to 1, how sure the engine is by what it saw.
    pub score: f64,
    /// Why, one full sentence each.
    pub notes: Vec<String>,
}

impl Candidate {
    /// A candidate resting on one sign.
    pub fn new(class: impl Into<ClassId>, blamed: Entity, first: usize, strength: Strength, score: f64) -> Self {
        let mut support = Row::default();
        support.insert(first);
        Self {
            class: class.into(),
            layer: None,
            root_rank: blamed.rank(),
            blamed,
            first,
            support,
            strength,
            score,
            notes: Vec::new(),
        }
    }

    /// Gives it further support; each independent witness closes a third of the gap to certainty. The note is written where
    /// there is something to confirm it.
    pub(crate) fn confirm(&mut self, by: impl IntoIterator<Item = usize>, note: impl FnOnce() -> String) {
        let before = self.support.len();
        self.support.extend(by);
        if self.support.len() > before {
            self.score += (1.0 - self.score) / 3.0;
            self.notes.push(note());
        }
    }
}
