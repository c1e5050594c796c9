//! Failure classes of the cases that blame nodes.

use std::collections::BTreeMap;

use rankguard_kubernetes::ControllerCordon;
use rankguard_model::{CaseId, NodeView};

use crate::client::{ClientError, ControllerClient};

/// Classes of cases, fetched when the reasons of a node change: a verdict may change while its case is open.
#[derive(Debug, Default)]
pub(super) struct CaseClasses {
    known: BTreeMap<CaseId, BlamingCase>,
}

/// Facts about a case.
#[derive(Debug, Clone)]
struct BlamingCase {
    /// Reasons for which they were fetched.
    text: String,
    class: String,
    /// True for a drill.
    is_synthetic: bool,
}

/// Node of the controller with the class of the case that blames it.
#[derive(Debug, Clone)]
pub(super) struct BlamedNode<'v> {
    pub(super) view: &'v NodeView,
    pub(super) cordon: ControllerCordon,
    /// Class of the case that blames the node, cordoned or not.
    pub(super) fault_class: Option<String>,
    /// True if pods may be evicted: a case that is no drill cordoned the node.
    pub(super) may_evict: bool,
}

impl CaseClasses {
    /// Returns a node with the classes of its cases.
    pub(super) async fn blamed<'v>(
        &mut self,
        client: &ControllerClient,
        view: &'v NodeView,
    ) -> Result<BlamedNode<'v>, ClientError> {
        let reasons = view.cordon.as_ref().map(|cordon| cordon.reasons.clone());
        let mut cordon = ControllerCordon {
            reasons: reasons.unwrap_or_default(),
            class: None,
        };
        let mut facts = None;
        let cordon_case = view.cordon.as_ref().and_then(|cordon| cordon.case);
        if let Some(case) = cordon_case.filter(|_| !cordon.own_reasons().is_empty()) {
            facts = self.facts(client, case, &cordon.reasons.join("; ")).await?;
            cordon.class = facts.as_ref().map(|facts| facts.class.clone());
        } else if let Some(case) = view.faulty_in_use {
            let text = view.reason.clone().unwrap_or_default();
            facts = self.facts(client, case, &text).await?;
        }
        let is_drill = facts.as_ref().is_some_and(|facts| facts.is_synthetic);
        Ok(BlamedNode {
            view,
            may_evict: cordon.class.is_some() && !is_drill,
            cordon,
            fault_class: facts.map(|facts| facts.class),
        })
    }

    async fn facts(
        &mut self,
        client: &ControllerClient,
        case: CaseId,
        text: &str,
    ) -> Result<Option<BlamingCase>, ClientError> {
        if let Some(facts) = self.known.get(&case)
            && facts.text == text
        {
            return Ok(Some(facts.clone()));
        }
        match client.case(case).await {
            Ok(found) => {
                let facts = BlamingCase {
                    text: text.to_owned(),
                    class: found.verdict.class.to_string(),
                    is_synthetic: found.is_synthetic(),
                };
                self.known.insert(case, facts.clone());
                Ok(Some(facts))
            }
            // The case was removed from memory; its cordon stands.
            Err(problem) if problem.is_not_found() => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Forgets the cases that blame no node any more.
    pub(super) fn retain(&mut self, nodes: &[NodeView]) {
        let is_used = |case: &CaseId| {
            let blames = |node: &NodeView| {
                node.faulty_in_use == Some(*case) || node.cordon.as_ref().and_then(|cordon| cordon.case) == Some(*case)
            };
            nodes.iter().any(blames)
        };
        self.known.retain(|case, _| is_used(case));
    }
}
