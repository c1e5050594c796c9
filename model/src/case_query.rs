//! Selection of cases, the same for the command line and the HTTP API.

use crate::{Case, CaseFinding, ClassId, Entity, NodeId, Timestamp};

/// Conditions for cases. Each condition narrows the selection further; an absent one does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseQuery {
    /// Name of the job.
    pub job: Option<String>,
    /// Node that the case blames or has evidence of.
    pub node: Option<String>,
    /// Failure class of the verdict, or of its newest correction.
    pub class: Option<String>,
    /// Layer of the verdict.
    pub layer: Option<String>,
    /// Category of a published taxonomy, `TAXONOMY:CATEGORY`.
    pub category: Option<String>,
    /// Earliest time of the first evidence.
    pub since: Option<Timestamp>,
    /// Time before which the first evidence was observed.
    pub until: Option<Timestamp>,
    /// True if cases of drills and simulations are left out.
    pub without_drills: bool,
    /// True if only open cases are selected ([`Case::is_open`]).
    pub only_open: bool,
}

impl CaseQuery {
    /// Returns true if a case meets every condition.
    pub fn matches(&self, case: &Case) -> bool {
        let is =
            |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|wanted| found == Some(wanted));
        let in_category = self
            .category
            .as_deref()
            .is_none_or(|wanted| case.is_in_category(wanted));
        let of_node = self
            .node
            .as_deref()
            .is_none_or(|node| case.nodes().any(|other| other.as_str() == node));
        is(&self.job, case.job.as_ref().map(|job| job.as_str()))
            && (is(&self.class, Some(case.verdict.class.as_str()))
                || is(&self.class, case.corrected_class().map(ClassId::as_str)))
            && is(&self.layer, Some(&case.verdict.layer))
            && in_category
            && of_node
            && self.since.is_none_or(|since| case.first_at >= since)
            && self.until.is_none_or(|until| case.first_at < until)
            && !(self.without_drills && case.is_synthetic())
            && (!self.only_open || case.is_open())
    }
}

impl Case {
    /// Returns true if the verdict is in a category of a taxonomy, `TAXONOMY:CATEGORY`.
    pub fn is_in_category(&self, wanted: &str) -> bool {
        wanted.split_once(':').is_some_and(|(taxonomy, category)| {
            self.verdict.taxonomies.iter().any(|(name, categories)| {
                name.as_str() == taxonomy && categories.iter().any(|other| other.as_str() == category)
            })
        })
    }

    /// Returns the nodes to which the case refers; a node may occur several times.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        let found = self.findings.iter().filter_map(CaseFinding::node);
        self.verdict.blamed.node().into_iter().chain(found)
    }
}

impl CaseFinding {
    /// Returns the node of the finding. A finding about a job, such as a failed start, is of the node that reported it.
    pub fn node(&self) -> Option<&NodeId> {
        let of_job = matches!(self.entity, Entity::Job { .. }).then_some(&self.evidence.node);
        self.entity.node().or(of_job)
    }
}
