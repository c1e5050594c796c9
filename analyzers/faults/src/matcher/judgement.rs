//! Selection among the signatures that match a line.

use rankguard_model::Role;

use super::{MARK_LIMIT, NARROW, SignatureMatch, SignatureMatcher};

/// Signature matches of a line after selection.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineJudgement {
    /// Selected matches, best first.
    pub(crate) hits: Vec<SignatureMatch>,
    /// True if a signature other than chatter matched, even if another silenced it, or if the line opens a multi-line
    /// unit.
    pub(crate) speaks: bool,
}

impl SignatureMatcher {
    /// Selects the matches that hold beside each other.
    pub(super) fn settled(&self, mut hits: Vec<SignatureMatch>) -> LineJudgement {
        let speaks = hits.iter().any(|hit| !self.chatter.contains(&hit.rule));
        // A single match has no competitor.
        if hits.len() < 2 {
            return LineJudgement { hits, speaks };
        }
        hits.sort_by(|a, b| b.mark.confidence.total_cmp(&a.mark.confidence));
        // The driver's event number is more specific than any wording around it.
        if let Some(kind) = hits.iter().find(|hit| hit.coded).map(|hit| hit.entity) {
            hits.retain(|hit| hit.entity == kind);
        }
        // A harmless wording silences matches of lower confidence.
        if hits.first().is_some_and(|hit| hit.mark.role == Role::Noise) {
            hits.truncate(1);
        }
        // A surface class is dropped if a specific one matched: a checkpoint that was not written for lack of space
        // is a full disk, and a known exception message is more specific than its type.
        let surfaced = |hit: &SignatureMatch| self.surfaces.contains(&hit.mark.class);
        let narrow = |hit: &SignatureMatch| !surfaced(hit) && hit.mark.confidence >= NARROW;
        if hits.iter().any(narrow) {
            hits.retain(|hit| !surfaced(hit));
        }
        // An error that the line names displaces the form of all errors of its device.
        let rule = |hit: &SignatureMatch| &self.rules[hit.rule];
        let names_error = |hit: &SignatureMatch| {
            let rule = rule(hit);
            rule.of_device && !rule.signature.generic && hit.mark.confidence >= NARROW
        };
        if hits.iter().any(names_error) {
            hits.retain(|hit| !rule(hit).signature.generic);
        }
        hits.truncate(MARK_LIMIT);
        LineJudgement { hits, speaks }
    }
}
