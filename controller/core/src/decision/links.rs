//! Links of network adapters: the node view shows one that is down, and the case of the fault records its return.
//!
//! A link that goes down ends no rank by itself, and nothing is restarted while all ranks live. The condition ends when the
//! kernel or the agent reports the link as up.

use std::collections::BTreeSet;

use rankguard_diagnosis::LINK_UP_SIGNATURE;
use rankguard_faults::classes;
use rankguard_model::{
    Case, CaseId, CaseState, ClassId, DeviceKind, Entity, Evidence, EvidenceBody, EvidenceSource, Role, Timestamp,
};

use super::DecisionContext;
use crate::limits::ACTIONS_MAX;

/// State ACTIVE of an InfiniBand port.
const ACTIVE: f64 = 4.0;
/// Links retained for each node.
const LINKS_MAX: usize = 64;

/// Reported change of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkChange {
    Down,
    Up,
}

impl LinkChange {
    /// Returns the change that evidence about an adapter or a node reports.
    fn of(evidence: &Evidence) -> Option<Self> {
        let is_machine = match &evidence.entity {
            Entity::Device { device, .. } => device.kind == DeviceKind::Nic,
            Entity::Node { .. } => true,
            Entity::Rank { .. } | Entity::Job { .. } | Entity::Unknown => false,
        };
        if !is_machine || evidence.source == EvidenceSource::JobLog {
            return None;
        }
        let mut marks = evidence.marks.iter();
        if marks.any(|mark| mark.class.as_str() == classes::NIC_LINK_DOWN && mark.role == Role::Root) {
            return Some(Self::Down);
        }
        let is_up =
            evidence.marks.iter().any(|mark| mark.signature == LINK_UP_SIGNATURE) || is_up_sample(&evidence.body);
        is_up.then_some(Self::Up)
    }
}

fn is_up_sample(body: &EvidenceBody) -> bool {
    let EvidenceBody::Sample { metric, value, .. } = body else {
        return false;
    };
    let (short, _) = metric.split_once(" port ").unwrap_or((metric, ""));
    match short {
        "nic.port_state" => *value == ACTIVE,
        "nic.operstate_up" => *value == 1.0,
        _ => false,
    }
}

impl DecisionContext<'_> {
    /// Records a link that goes down or comes up.
    pub(super) fn watch_links(&mut self, evidence: &Evidence) {
        let Some(change) = LinkChange::of(evidence).filter(|_| self.state.separates_failures()) else {
            return;
        };
        if evidence.synthetic {
            return self.watch_drilled_link(&evidence.entity, change, evidence.at);
        }
        let name = evidence.entity.to_string();
        let node = evidence.entity.node();
        let Some(entry) = node.and_then(|node| self.state.fleet.get_mut(node)) else {
            return;
        };
        match change {
            LinkChange::Down if entry.links_down.len() < LINKS_MAX => {
                entry.links_up.remove(&name);
                entry.links_down.entry(name).or_insert(evidence.at);
            }
            LinkChange::Down => {}
            LinkChange::Up => {
                let was_down = entry.links_down.remove(&name).is_some();
                entry.drilled_links.remove(&name);
                if was_down && !self.note_link_up(&evidence.entity, evidence.at) && self.state.has_fault_ends() {
                    self.retain_link_up(&evidence.entity, evidence.at);
                }
                self.close_past_link_faults(&evidence.entity, evidence.at);
            }
        }
    }

    /// Records a link that a drill takes down or up. It counts for the life of the drill's case only.
    fn watch_drilled_link(&mut self, link: &Entity, change: LinkChange, at: Timestamp) {
        let follows_drills = self.state.follows_drilled_links();
        let entry = link.node().and_then(|node| self.state.fleet.get_mut(node));
        let Some(entry) = entry.filter(|_| follows_drills) else {
            return;
        };
        match change {
            LinkChange::Down if entry.drilled_links.len() < LINKS_MAX => {
                entry.drilled_links.insert(link.to_string());
            }
            LinkChange::Down => {}
            LinkChange::Up => {
                if entry.drilled_links.remove(&link.to_string()) {
                    self.close_past_link_faults(link, at);
                }
            }
        }
    }

    /// Ends the cases of links that are no longer down. A case may blame another link, or what several nodes share.
    fn close_past_link_faults(&mut self, link: &Entity, up_at: Timestamp) {
        self.close_past_faults_of_entity(link, &format!("the link was up again at {up_at}"));
        let class = ClassId::from(classes::NIC_LINK_DOWN);
        self.close_past_faults_of_class(&class, &format!("the link of {link} was up again at {up_at}"));
    }

    /// Names the links of a case, other than the one that came up, that are down; empty if none is.
    fn links_still_down(&self, id: CaseId, link: &Entity) -> String {
        let case = self.state.cases.all().get(&id);
        let findings = case.into_iter().flat_map(|case| &case.findings);
        let lost = findings.filter(|finding| finding.class.as_str() == classes::NIC_LINK_DOWN);
        let others: BTreeSet<String> = lost
            .filter(|finding| finding.entity != *link && self.state.is_reported_down(&finding.entity))
            .map(|finding| finding.entity.to_string())
            .collect();
        match others.len() {
            0 => String::new(),
            1 => format!(", and the link of {} was still down", joined(&others)),
            _ => format!(", and the links of {} were still down", joined(&others)),
        }
    }

    /// Retains the return of a link for a verdict that follows.
    fn retain_link_up(&mut self, link: &Entity, up_at: Timestamp) {
        let Some(entry) = link.node().and_then(|node| self.state.fleet.get_mut(node)) else {
            return;
        };
        if entry.links_up.len() < LINKS_MAX {
            entry.links_up.insert(link.to_string(), up_at);
        }
    }

    /// Records in a case that has just got its verdict that the blamed link came up again before.
    pub(crate) fn note_earlier_link_up(&mut self, id: CaseId) {
        let Some(case) = self.state.cases.all().get(&id) else {
            return;
        };
        let (blamed, first_at) = (case.verdict.blamed.clone(), case.first_at);
        if case.verdict.class.as_str() != classes::NIC_LINK_DOWN {
            return;
        }
        let entry = blamed.node().and_then(|node| self.state.fleet.get_mut(node));
        let up_at = entry.and_then(|entry| entry.links_up.remove(&blamed.to_string()));
        if let Some(up_at) = up_at.filter(|up_at| *up_at >= first_at) {
            let at = self.at;
            self.note_up(id, format!("the link was up again at {up_at}"), at);
        }
    }

    /// Records the return of a link in the case with a present fault that blames it, else in the newest one. Returns false if
    /// there is none, or if it ended before the link went down.
    fn note_link_up(&mut self, link: &Entity, up_at: Timestamp) -> bool {
        let at = self.at;
        let is_of_link =
            |case: &&Case| case.verdict.blamed == *link && case.verdict.class.as_str() == classes::NIC_LINK_DOWN;
        let cases = || self.state.cases.all().values().rev().filter(is_of_link);
        // A later case about the same fault was merged into the one with the present fault.
        let present = cases().find(|case| case.state == CaseState::FaultPresent);
        let Some(id) = present.or_else(|| cases().next()).map(|case| case.id) else {
            return false;
        };
        let others = self.links_still_down(id, link);
        self.note_up(id, format!("the link was up again at {up_at}{others}"), at);
        true
    }

    fn note_up(&mut self, id: CaseId, text: String, at: Timestamp) {
        let Some(case) = self.state.cases.get_mut(id) else {
            return;
        };
        if let Some(outcome) = case.outcome.take() {
            case.outcome = Some(format!("{outcome}; {text}"));
        }
        if case.actions.len() < ACTIONS_MAX {
            case.actions.push(rankguard_model::ReasoningEntry { at, text });
        }
    }
}

fn joined(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.join(" and ")
}
