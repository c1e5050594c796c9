//! Judgements: which of the signatures that match a line hold beside each other.

use rankguard_model::Role;

use super::{Hit, MARK_LIMIT, Matcher, NARROW};

/// What the signatures say of a line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Judgement {
    /// Those that hold beside each other, best first.
    pub(crate) hits: Vec<Hit>,
    /// Whether one matched that is more than chatter, even where another silenced it, or the line begins something.
    pub(crate) speaks: bool,
}

impl Matcher {
    /// Which of the signatures that match hold beside each other.
    pub(super) fn settled(&self, mut hits: Vec<Hit>) -> Judgement {
        let speaks = hits.iter().any(|hit| !self.chatter.contains(&hit.rule));
        // One alone has nothing beside it.
        if hits.len() < 2 {
            return Judgement { hits, speaks };
        }
        hits.sort_by(|a, b| b.mark.confidence.total_cmp(&a.mark.confidence));
        // The driver's own number says more than any wording around it.
        if let Some(kind) = hits.iter().find(|hit| hit.coded).map(|hit| hit.entity) {
            hits.retain(|hit| hit.entity == kind);
        }
        // What is known to be harmless in this wording silences guesses that are less sure.
        if hits.first().is_some_and(|hit| hit.mark.role == Role::Noise) {
            hits.truncate(1);
        }
        // How something surfaced says nothing beside what it was: a checkpoint that was not written for want of space is a
        // full disk, an exception of a known wording is more than its type.
        let surfaced = |hit: &Hit| self.surfaces.contains(&hit.mark.class);
        let narrow = |hit: &Hit| !surfaced(hit) && hit.mark.confidence >= NARROW;
        if hits.iter().any(narrow) {
            hits.retain(|hit| !surfaced(hit));
        }
        hits.truncate(MARK_LIMIT);
        Judgement { hits, speaks }
    }
}
