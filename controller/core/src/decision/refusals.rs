//! Refused evidence: counted, and reported in a case against the node that sent it.
//!
//! The shell records refused evidence as a gap with a classification of class `evidence-refused`
//! ([`crate::authority`]). Diagnosis does not receive it: a node with false reports must not be able to shift the blame
//! for a failure, to itself or to others. It causes no orders; an operator decides whether to cordon the node.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_model::{
    CaseFinding, CaseId, ClassId, Classification, Entity, Evidence, EvidenceBody, EvidenceSource, NodeId,
    ReasoningEntry, Role, SmolStr, Timestamp, Verdict,
};
use serde::{Deserialize, Serialize};

use super::DecisionContext;
use crate::authority::{REFUSED_CLASS, REFUSED_SIGNATURE};

/// Findings retained in the case of one node: the first refusal, and each at which the count doubles.
const FINDINGS_MAX: usize = 64;
/// Time without refusals after which a case is closed.
const CLEARED_AFTER: Duration = Duration::from_secs(86_400);
/// Rules counted separately; there are fewer, and a forged record must not add entries without limit.
const RULES_MAX: usize = 32;

/// Refused evidence of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedEvidence {
    count: u64,
    rules: BTreeMap<SmolStr, u64>,
    /// Arrival time of the newest refusal.
    last: Timestamp,
    /// Open case about the refusals.
    case: Option<CaseId>,
}

impl RefusedEvidence {
    /// Returns the number of refused pieces of evidence.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of refused pieces of evidence by rule name.
    pub fn rules(&self) -> impl Iterator<Item = (&str, u64)> {
        self.rules.iter().map(|(rule, count)| (rule.as_str(), *count))
    }

    fn add(&mut self, rule: &str) {
        self.count = self.count.saturating_add(1);
        if self.rules.contains_key(rule) || self.rules.len() < RULES_MAX {
            let count = self.rules.entry(rule.into()).or_default();
            *count = count.saturating_add(1);
        }
    }
}

impl DecisionContext<'_> {
    /// Counts a record of refused evidence, and opens a case against its sender or adds to it. Returns true if the
    /// evidence is such a record.
    pub(super) fn evidence_refused(&mut self, evidence: &Evidence) -> bool {
        let Some((mark, what)) = refusal(evidence) else {
            return false;
        };
        let node = &evidence.id.node;
        let entry = self.state.refused.entry(node.clone()).or_default();
        entry.last = self.at;
        entry.add(mark.signature.strip_prefix(REFUSED_SIGNATURE).unwrap_or_default());
        let count = entry.count;
        // Only counts that are powers of two are announced: a flood must fill neither the log nor the case.
        if !count.is_power_of_two() {
            return true;
        }
        let known = entry.case;
        self.announce(format!("node {node}: {what} ({count} refused so far)"));
        let finding = finding_of(evidence, mark, what);
        let open = known.filter(|id| self.state.cases.add_finding(*id, finding.clone(), FINDINGS_MAX));
        let id = match open {
            Some(id) => id,
            None => self.open_sender_case(evidence, finding),
        };
        if let Some(entry) = self.state.refused.get_mut(node) {
            entry.case = Some(id);
        }
        true
    }

    /// Closes the case against a node after accepted evidence, if nothing was refused for [`CLEARED_AFTER`]: a node
    /// must not be able to clear itself by restarting its agent.
    pub(super) fn clear_refusals(&mut self, node: &NodeId) {
        let at = self.at;
        let Some(entry) = self.state.refused.get_mut(node) else {
            return;
        };
        if at.since(entry.last) < CLEARED_AFTER {
            return;
        }
        let count = entry.count;
        if let Some(id) = entry.case.take() {
            self.close(
                id,
                format!("nothing was refused for a day; {count} pieces of evidence were before"),
            );
        }
    }

    fn open_sender_case(&mut self, evidence: &Evidence, finding: CaseFinding) -> CaseId {
        let class = ClassId::from(REFUSED_CLASS);
        let catalogue = self.state.catalogue();
        let known = catalogue.class(&class);
        let verdict = Verdict {
            layer: known.map_or_else(|| "platform".to_owned(), |class| class.layer.clone()),
            severity: known.map_or(rankguard_model::Severity::Warning, |class| class.severity),
            blamed: evidence.entity.clone(),
            blamed_part: None,
            root_rank: None,
            first_cause: Some(evidence.id.clone()),
            confidence: 1.0,
            taxonomies: catalogue.taxonomies_of(&class),
            mitigation: catalogue.mitigation(&class),
            alternatives: Vec::new(),
            class,
        };
        let clears = known.map(|class| class.clears.clone()).unwrap_or_default();
        let reason = ReasoningEntry {
            at: self.at,
            text: format!(
                "Node {} sent evidence that contradicts what the controller planned. It had no effect, and nothing is \
                 ordered because of it.",
                evidence.id.node
            ),
        };
        self.state
            .cases
            .open_concluded(self.at, verdict, finding, reason, clears)
    }
}

/// Returns the classification and the text of a record of refused evidence.
fn refusal(evidence: &Evidence) -> Option<(&Classification, &str)> {
    let own = matches!(&evidence.entity, Entity::Node { node } if *node == evidence.id.node);
    let EvidenceBody::Gap { what, .. } = &evidence.body else {
        return None;
    };
    let mark = evidence
        .marks
        .iter()
        .find(|mark| mark.class.as_str() == REFUSED_CLASS)?;
    (own && evidence.source == EvidenceSource::Agent).then_some((mark, what))
}

fn finding_of(evidence: &Evidence, mark: &Classification, what: &str) -> CaseFinding {
    CaseFinding {
        evidence: evidence.id.clone(),
        at: evidence.at,
        source: evidence.source,
        entity: evidence.entity.clone(),
        class: mark.class.clone(),
        role: Role::Root,
        confidence: mark.confidence,
        text: what.to_owned(),
        why: "the controller compared it with its own plans and orders".to_owned(),
        synthetic: evidence.synthetic,
    }
}
