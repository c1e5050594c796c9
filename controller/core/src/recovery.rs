//! Planner: maps a verdict to the cheapest sufficient recovery.

mod answer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rankguard_diagnosis::{ConcludedDraft, SeparateFailure};
use rankguard_faults::classes;
use rankguard_model::{
    Case, CaseFinding, CaseId, CaseState, ClassId, Entity, JobId, NodeId, ReasoningEntry, RecommendedMitigation, Role,
    Severity, Step, Verdict,
};

use crate::confined_errors;
use crate::decision::DecisionContext;
use crate::fleet::{Cordon, UncordonedFault};
use crate::limits::ACTIONS_MAX;
use crate::{Job, JobPhase, Node};

/// Recovery for a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecoveryDecision {
    /// Close the case with this outcome; no recovery is needed.
    Nothing(&'static str),
    /// Start the next generation on healthy nodes.
    Restart,
    /// Stop the job: it would fail the same way again.
    Stop(String),
}

/// Result of the decision to cordon the blamed node of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NodeIsolation {
    /// The node is cordoned.
    Cordoned(NodeId),
    /// Another case or an operator had cordoned the node before.
    Earlier { node: NodeId, case: Option<CaseId> },
    /// The node remains in use, because the limit of cordons is reached.
    Refused(NodeId),
    /// No hardware of a known node is at fault.
    None,
}

impl NodeIsolation {
    fn cordoned(&self) -> Option<&NodeId> {
        match self {
            Self::Cordoned(node) | Self::Earlier { node, .. } => Some(node),
            Self::Refused(_) | Self::None => None,
        }
    }

    /// Returns the outcome of a case for which nothing else is done.
    fn outcome(&self, otherwise: String) -> String {
        match self {
            Self::Cordoned(node) => cordon_outcome(node),
            Self::Earlier { node, case: Some(case) } => format!("node {node} was already out of use for case {case}"),
            Self::Earlier { node, case: None } => format!("node {node} was already out of use by an operator"),
            Self::Refused(node) => format!("node {node} stayed in use, because the cordon limit was reached"),
            Self::None => otherwise,
        }
    }
}

/// Returns the outcome of a case that only took a node out of use.
pub(crate) fn cordon_outcome(node: &NodeId) -> String {
    format!("node {node} was taken out of use")
}

impl DecisionContext<'_> {
    /// Recovers from a concluded case.
    pub(crate) fn recover(&mut self, id: CaseId, concluded: &ConcludedDraft) {
        let verdict = &concluded.verdict;
        self.announce(self.verdict_line(id, verdict));
        self.note_earlier_link_up(id);
        if let Some(name) = &concluded.job {
            self.add_rank_notes(id, name);
        }
        let isolated = self.isolate(id, concluded);
        self.open_separate_cases(id, concluded);
        self.isolate_others(id, concluded);
        let Some(name) = self.suffering_job(concluded, isolated.cordoned()) else {
            let ended = concluded.job.as_ref().and_then(|name| self.end_of(name));
            let otherwise = ended.unwrap_or_else(|| "nothing to recover".to_owned());
            return self.end_after_verdict(id, &isolated, otherwise);
        };
        let is_isolated = isolated.cordoned().is_some();
        let older = self.state.jobs.get(&name).and_then(|job| job.case());
        let older = older.filter(|older| *older != id);
        if !self.state.recovers_with_life()
            && let Some(older) = older
        {
            self.close_overtaken(&name, older, id);
        }
        if let Some(step) = self
            .step_meanwhile(id, &name)
            .filter(|_| concluded.stalled && !is_isolated)
        {
            return self.close(id, format!("the job made step {step} meanwhile; nothing was restarted"));
        }
        if concluded.stalled && !is_isolated && (self.watch_hang(id, &name) || self.awaits_life(id, &name)) {
            return self.overtake(older, id, &name, concluded);
        }
        if self.state.records_returns() {
            self.note_return_of_failure(id, &name, concluded);
        }
        let decision = self.answer(id, &name, concluded, is_isolated);
        if !matches!(decision, RecoveryDecision::Nothing(_)) {
            self.overtake(older, id, &name, concluded);
            self.attribute(id, &name);
            self.name_continued_case(id, concluded);
        }
        match decision {
            RecoveryDecision::Nothing(_) if self.leaves_faulty_node(id, &name, concluded) => {}
            RecoveryDecision::Nothing(why) => match &isolated {
                NodeIsolation::Refused(_) => self.close(id, format!("{}; {why}", isolated.outcome(String::new()))),
                NodeIsolation::Cordoned(_) | NodeIsolation::Earlier { .. } if confined_errors::is_outcome(why) => {
                    self.close(id, format!("{}; {why}", isolated.outcome(String::new())));
                }
                NodeIsolation::Cordoned(_) | NodeIsolation::Earlier { .. } => self.close(id, why.to_owned()),
                NodeIsolation::None => self.end_without_action(id, why.to_owned()),
            },
            RecoveryDecision::Restart => {
                if let Some(job) = self.state.jobs.get_mut(&name) {
                    job.recover_from(id);
                }
                // The case is recovering even if the restart has to wait for nodes.
                if let Some(case) = self.state.cases.get_mut(id) {
                    case.state = CaseState::Recovering;
                }
                let reasons = vec![
                    format!("case {id}: {}", verdict.class),
                    verdict.mitigation.advice.clone(),
                ];
                self.place(&name, Some(id), reasons);
            }
            RecoveryDecision::Stop(reason) => {
                self.advise_after_restart(id, &name, &concluded.signature);
                self.record_stop(&name, id, &reason);
                if let Some(job) = self.state.jobs.get_mut(&name) {
                    job.recover_from(id);
                }
                if self.state.notes_stops() {
                    self.note(Some(id), format!("the job is stopped: {reason}"));
                }
                self.stop_job(&name, format!("{reason} (case {id})"));
            }
        }
    }

    /// Places a job elsewhere that works on a node that a fault beside the first cause took out of use. Returns true if
    /// there is such a node.
    fn leaves_faulty_node(&mut self, id: CaseId, name: &JobId, concluded: &ConcludedDraft) -> bool {
        let Some(job) = self.state.jobs.get(name).filter(|_| self.state.keeps_present_faults()) else {
            return false;
        };
        if concluded.generation != Some(job.generation()) || job.is_pending() {
            return false;
        }
        let faults = concluded
            .findings
            .iter()
            .filter(|finding| self.is_hardware_fault(finding) && !self.is_confined(finding));
        let mut isolated = faults.filter_map(|finding| {
            let node = finding.entity.node().filter(|node| self.works_on(job, node))?;
            let case = self.state.fleet.get(node)?.cordon.as_ref()?.case?;
            Some((case, node.clone(), finding.class.clone()))
        });
        let Some((case, node, class)) = isolated.next() else {
            return false;
        };
        if case != id {
            self.end_without_action(id, format!("the job leaves node {node}, see case {case}"));
        }
        let reasons = vec![format!("case {case}: {class} on {node}")];
        self.place(name, Some(case), reasons);
        true
    }

    /// Replaces the advice of a case that stops a job by the advice after a restart, if one was tried.
    pub(crate) fn advise_after_restart(&mut self, id: CaseId, name: &JobId, signature: &str) {
        let job = self.state.jobs.get(name);
        let is_tried = job.is_some_and(|job| job.has_tried_restart(signature));
        if !is_tried || !self.state.has_fault_ends() {
            return;
        }
        if let Some(case) = self.state.cases.get_mut(id) {
            let mitigation = &case.verdict.mitigation;
            if !mitigation.advice_on_return.is_empty() {
                case.verdict.mitigation = RecommendedMitigation {
                    advice: mitigation.advice_on_return.clone(),
                    ..RecommendedMitigation::clone(mitigation)
                }
                .into();
            }
        }
    }

    /// Returns the announcement of a verdict.
    pub(crate) fn verdict_line(&self, id: CaseId, verdict: &Verdict) -> String {
        format!(
            "case {id}: {} ({}), blamed: {}, confidence {:.2}{}",
            verdict.class,
            verdict.layer,
            blamed_text(verdict),
            verdict.confidence,
            self.drill_marker(id)
        )
    }

    /// Returns the words that mark a case as a drill; empty for a real one, and under older rules.
    pub(crate) fn drill_marker(&self, id: CaseId) -> &'static str {
        let case = self
            .state
            .cases
            .all()
            .get(&id)
            .filter(|_| self.state.separates_failures());
        if case.is_some_and(Case::is_synthetic) {
            " (synthetic)"
        } else {
            ""
        }
    }

    /// Records the job that a case restarts or stops, if the case concerns none.
    fn attribute(&mut self, id: CaseId, name: &JobId) {
        let generation = self.state.jobs.get(name).map(|job| job.generation());
        let is_recorded = self.state.avoids_suspected_nodes();
        if let Some(case) = self
            .state
            .cases
            .get_mut(id)
            .filter(|case| is_recorded && case.job.is_none())
        {
            case.job = Some(name.clone());
            case.generation = generation;
        }
    }

    /// Ends the recovery of an earlier case when a later one is answered. It has failed only if the later case is a
    /// failure of the generation that was started for the earlier one, before that made progress.
    fn overtake(&mut self, older: Option<CaseId>, newer: CaseId, name: &JobId, concluded: &ConcludedDraft) {
        let (Some(older), Some(job)) = (older, self.state.jobs.get(name)) else {
            return;
        };
        let case = self.state.cases.all().get(&older);
        let Some(case) = case.filter(|_| self.state.recovers_with_life()) else {
            return;
        };
        if !matches!(case.state, CaseState::Open | CaseState::Recovering) {
            return;
        }
        let is_restart = job.plan().is_some_and(|plan| Some(plan.id) == case.plan);
        let is_launched = matches!(
            job.phase(),
            JobPhase::Launching { .. } | JobPhase::Starting | JobPhase::Running
        );
        let failed_again = is_restart && is_launched && concluded.generation == Some(job.generation());
        let has_worked = job.generation_step().is_some() || job.step().is_none() && self.has_worked_without_steps(name);
        let was_idle = job.activity.case == Some(older);
        if was_idle {
            // Nothing was restarted for it.
            self.close_overtaken(name, older, newer);
        } else if !failed_again {
            self.close(
                older,
                format!("another failure followed before the job ran again, see case {newer}"),
            );
        } else if has_worked {
            self.note_recovered(name, self.at, &format!("the job worked again until case {newer}"));
        } else {
            self.close_overtaken(name, older, newer);
        }
    }

    /// Closes a case after its restart failed before the job made progress, and links the two cases.
    fn close_overtaken(&mut self, name: &JobId, older: CaseId, newer: CaseId) {
        let job = self.state.jobs.get(name);
        if job.is_some_and(|job| job.activity.case == Some(older)) {
            // Nothing was restarted for it.
            return self.close(older, format!("its job failed, see case {newer}"));
        }
        let state = self.state.cases.all().get(&older).map(|case| case.state);
        if self.state.has_case_ends() && !matches!(state, Some(CaseState::Open | CaseState::Recovering)) {
            return;
        }
        let class = |id| self.state.cases.all().get(&id).map(|case| case.verdict.class.clone());
        let is_same = class(older).is_some() && class(older) == class(newer);
        let lasted = self.duration_of_restart(older, newer);
        self.close(
            older,
            match lasted.filter(|_| !is_same) {
                None => format!("the restart failed too, see case {newer}"),
                Some(lasted) => {
                    let seconds = lasted.as_secs_f64();
                    format!("another failure ended the restarted ranks after {seconds:.1} s, see case {newer}")
                }
            },
        );
        if is_same {
            self.note(
                Some(newer),
                format!("the failure of case {older} came back after a restart"),
            );
        }
    }

    /// Returns the time from the start of the ranks that were restarted for a case to the failure of a newer case.
    fn duration_of_restart(&self, older: CaseId, newer: CaseId) -> Option<Duration> {
        let cases = self.state.cases.all();
        let before = cases.get(&older)?;
        let launched = u64::try_from(before.delays.launched_ms?).ok()?;
        let launched_at = before.first_at.after(Duration::from_millis(launched));
        Some(cases.get(&newer)?.first_at.since(launched_at))
    }

    /// Handles a verdict that late evidence changed. A node that is now blamed is cordoned, and a job that was
    /// restarted on it moves away; anything else was answered already.
    pub(crate) fn revise(&mut self, id: CaseId, concluded: &ConcludedDraft) {
        let verdict = &concluded.verdict;
        self.announce(format!(
            "case {id}: revised to {}, blamed: {}",
            verdict.class,
            blamed_text(verdict)
        ));
        self.withdraw_uncordoned_fault(id);
        let isolated = self.isolate(id, concluded);
        self.open_separate_cases(id, concluded);
        self.isolate_others(id, concluded);
        let is_confined = self.confinement(concluded).is_some();
        if let NodeIsolation::Cordoned(node) = isolated
            && !is_confined
        {
            self.move_job_away(id, &node, &verdict.class);
        }
    }

    /// Places a job elsewhere that works on a node for which a fault was reported late.
    fn move_job_away(&mut self, id: CaseId, node: &NodeId, class: &ClassId) {
        let moved = self
            .state
            .jobs
            .iter()
            .find(|(_, job)| !job.is_over() && self.works_on(job, node));
        if let Some(name) = moved.map(|(name, _)| name.clone()) {
            let reasons = vec![format!("case {id}: {class} on {node} was seen only now")];
            self.place(&name, Some(id), reasons);
        }
    }

    /// Takes the node of a fault of hardware out of use that joined a concluded case and does not follow from its
    /// first cause.
    pub(crate) fn isolate_late(&mut self, id: CaseId, finding: &CaseFinding, separate: Option<&SeparateFailure>) {
        if !self.state.isolates_every_fault() || !self.is_hardware_fault(finding) {
            return;
        }
        let (Entity::Device { node, .. } | Entity::Node { node }) = &finding.entity else {
            return;
        };
        let has_cordon = self.state.fleet.get(node).is_some_and(|entry| entry.cordon.is_some());
        if let Some(failure) = separate {
            self.open_separate_case(id, failure);
        }
        let fault = format!("{} on {}", finding.class, finding.entity);
        let isolated = self.take_out_of_use(id, node.clone(), &fault);
        if isolated.cordoned().is_some() && !has_cordon && !self.is_confined(finding) {
            self.move_job_away(id, node, &finding.class);
        }
    }

    /// Returns the outcome of a case about an error that ended only one process, and no rank: the ranks on the node work on,
    /// and no new ones are placed there.
    fn confinement(&self, concluded: &ConcludedDraft) -> Option<&'static str> {
        let confines = self.state.confines_contained_errors() && !concluded.failed;
        let outcome = || confined_errors::of_verdict(concluded, self.state.catalogue());
        confines.then(outcome).flatten()
    }

    fn is_confined(&self, finding: &CaseFinding) -> bool {
        self.state.confines_contained_errors() && confined_errors::is_confined(finding, self.state.catalogue())
    }

    /// Returns true for a finding about a real fault of hardware that does not follow from another finding.
    fn is_hardware_fault(&self, finding: &CaseFinding) -> bool {
        let class = self.state.catalogue().class(&finding.class);
        let is_hardware = class.is_some_and(|class| class.layer == "hardware" && class.severity == Severity::Failure);
        // Silence proves no defect; the controller notices it itself.
        let is_silence = finding.evidence.seq.0 == 0
            && [classes::NODE_AGENT_SILENT, classes::NODE_CRASH].contains(&finding.class.as_str());
        is_hardware && finding.role == Role::Root && !finding.synthetic && !is_silence
    }

    /// Cordons the blamed node if its hardware is at fault and the budget permits it (RG-6).
    fn isolate(&mut self, id: CaseId, concluded: &ConcludedDraft) -> NodeIsolation {
        // Silence proves no defect: the node is unusable while it lasts, and may return healthy.
        if concluded.node_silent {
            return NodeIsolation::None;
        }
        self.isolate_blamed(id, &concluded.verdict)
    }

    fn isolate_blamed(&mut self, id: CaseId, verdict: &Verdict) -> NodeIsolation {
        let hardware = verdict.layer == "hardware" && verdict.severity == Severity::Failure;
        match &verdict.blamed {
            Entity::Device { node, .. } | Entity::Node { node } if hardware => {
                self.take_out_of_use(id, node.clone(), &format!("{} on {}", verdict.class, verdict.blamed))
            }
            _ => NodeIsolation::None,
        }
    }

    /// Takes the node of a separate failure out of use, if its hardware is at fault, and closes the case: the job recovers
    /// for the case of the failure beside it.
    pub(crate) fn close_separate(&mut self, main: CaseId, id: CaseId, verdict: &Verdict) {
        let isolated = self.isolate_blamed(id, verdict);
        let otherwise = format!("what is done for the job is in case {main}");
        self.end_after_verdict(id, &isolated, otherwise);
    }

    /// Ends a case without a job to recover.
    fn end_after_verdict(&mut self, id: CaseId, isolated: &NodeIsolation, otherwise: String) {
        match isolated {
            NodeIsolation::None => self.end_without_action(id, otherwise),
            _ => self.close(id, isolated.outcome(otherwise)),
        }
    }

    /// Takes the nodes of further hardware faults out of use: each is a fault of its own, and the case restarts the job.
    fn isolate_others(&mut self, id: CaseId, concluded: &ConcludedDraft) {
        if !self.state.isolates_every_fault() {
            return;
        }
        let has_own_case = |node: &NodeId| {
            let mut separate = concluded.separate.iter();
            self.state.separates_failures() && separate.any(|failure| failure.verdict.blamed.node() == Some(node))
        };
        let mut others: BTreeMap<NodeId, String> = BTreeMap::new();
        let faults = concluded
            .findings
            .iter()
            .filter(|finding| self.is_hardware_fault(finding));
        for finding in faults {
            if let Entity::Device { node, .. } | Entity::Node { node } = &finding.entity
                && concluded.verdict.blamed.node() != Some(node)
                && !has_own_case(node)
            {
                let fault = format!("{} on {}", finding.class, finding.entity);
                others.entry(node.clone()).or_insert(fault);
            }
        }
        for (node, fault) in others {
            self.take_out_of_use(id, node, &fault);
        }
    }

    /// Cordons a node for a fault of a case, unless the limit of cordons is reached.
    fn take_out_of_use(&mut self, id: CaseId, node: NodeId, fault: &str) -> NodeIsolation {
        let Some(entry) = self.state.fleet.get(&node) else {
            return NodeIsolation::None;
        };
        if let Some(cordon) = &entry.cordon {
            let case = cordon.case;
            return if self.state.names_earlier_cordons() && case != Some(id) {
                self.add_fault_to_cordon(id, &node, fault);
                NodeIsolation::Earlier { node, case }
            } else {
                NodeIsolation::Cordoned(node)
            };
        }
        let budget = self.state.cordon_budget(self.at);
        if let Some(refusal) = budget.refusal() {
            let text = format!("node {node} stays in use: {refusal}; a person must decide");
            self.announce(format!("case {id}: {text}"));
            self.note(Some(id), text);
            self.keep_in_use(id, &node, fault, &refusal);
            return NodeIsolation::Refused(node);
        }
        let reason = format!("case {id}: {fault}{}", self.drill_marker(id));
        self.state.fleet.cordon(
            &node,
            Cordon {
                since: self.at,
                reason,
                case: Some(id),
                limit: budget.limit,
                drains: false,
            },
        );
        self.node_span(&node);
        self.note(Some(id), format!("node {node} cordoned"));
        self.settle_uncordoned_fault(&node, &format!("node {node} was cordoned for case {id}"));
        NodeIsolation::Cordoned(node)
    }

    /// Records the fault of a node that is not cordoned, for the views. The first case about it stays open until an
    /// operator decides; later ones refer to it.
    fn keep_in_use(&mut self, id: CaseId, node: &NodeId, fault: &str, refusal: &str) {
        let at = self.at;
        let marker = self.drill_marker(id);
        let Some(entry) = self.state.fleet.get_mut(node) else {
            return;
        };
        let standing = entry.uncordoned_fault.get_or_insert_with(|| UncordonedFault {
            since: at,
            case: id,
            reason: format!("{fault}{marker}; {refusal}"),
        });
        let first = standing.case;
        if first != id {
            return self.note(Some(id), format!("case {first} awaits the decision about node {node}"));
        }
        if let Some(case) = self.state.cases.get_mut(id) {
            case.awaits_operator = Some(in_use_text(node, refusal));
        }
    }

    /// Records in the cases that took a node out of use that an operator returns it to use. Call it before the cordon
    /// is lifted.
    pub(crate) fn note_return_to_use(&mut self, node: &NodeId) {
        let at = self.at;
        let cordon = self.state.fleet.get(node).and_then(|entry| entry.cordon.as_ref());
        let Some(cordon) = cordon.filter(|_| self.state.records_returns()) else {
            return;
        };
        let first = cordon.case;
        let outcome = cordon_outcome(node);
        for case in self.state.cases.all_mut() {
            // The outcome of a job that was stopped names the node after it.
            let known = case.outcome.clone().filter(|known| known.ends_with(&outcome));
            if known.is_none() && Some(case.id) != first {
                continue;
            }
            if let Some(known) = known {
                case.outcome = Some(format!("{known}; an operator returned it to use at {at}"));
            }
            if case.actions.len() < ACTIONS_MAX {
                let text = format!("an operator returned node {node} to use");
                case.actions.push(ReasoningEntry { at, text });
            }
        }
    }

    /// Describes the end of a job that was stopped.
    fn end_of(&self, name: &JobId) -> Option<String> {
        match self.state.jobs.get(name)?.phase() {
            JobPhase::Stopped { reason } => Some(format!("the job was stopped: {reason}")),
            _ => None,
        }
    }

    /// States anew why nodes with a fault are in use, after the number of nodes has changed.
    pub(crate) fn refresh_cordon_refusals(&mut self) {
        if !self.state.has_exact_cases() {
            return;
        }
        let refusal = self.state.cordon_budget(self.at).refusal();
        let refusal = refusal.unwrap_or_else(|| "the cordon budget has room again".to_owned());
        let faulty = self
            .state
            .fleet
            .iter()
            .filter(|(_, node)| node.uncordoned_fault.is_some());
        let faulty: Vec<NodeId> = faulty.map(|(node, _)| node.clone()).collect();
        for node in faulty {
            let entry = self.state.fleet.get_mut(&node);
            let Some(fault) = entry.and_then(|entry| entry.uncordoned_fault.as_mut()) else {
                continue;
            };
            if let Some((reason, _)) = fault.reason.rsplit_once("; ") {
                fault.reason = format!("{reason}; {refusal}");
            }
            let case = fault.case;
            let waiting = self
                .state
                .cases
                .get_mut(case)
                .filter(|case| case.awaits_operator.is_some());
            if let Some(case) = waiting {
                case.awaits_operator = Some(in_use_text(&node, &refusal));
            }
        }
    }

    /// Removes the fault of a node in use; its case no longer awaits a decision.
    pub(crate) fn settle_uncordoned_fault(&mut self, node: &NodeId, decision: &str) {
        if let Some(entry) = self.state.fleet.get_mut(node) {
            entry.uncordoned_fault = None;
        }
        self.end_waits_for_operator(decision);
    }

    /// Ends the waits of cases that no fault of a node refers to.
    fn end_waits_for_operator(&mut self, decision: &str) {
        let at = self.at;
        let faults = self
            .state
            .fleet
            .iter()
            .filter_map(|(_, node)| node.uncordoned_fault.as_ref());
        let referred: BTreeSet<CaseId> = faults.map(|fault| fault.case).collect();
        let has_outcomes = self.state.separates_failures();
        let awaits = |case: &&mut Case| case.awaits_operator.is_some() && !referred.contains(&case.id);
        for case in self.state.cases.all_mut().filter(awaits) {
            case.awaits_operator = None;
            case.outcome = case.outcome.take().map(|outcome| {
                if has_outcomes {
                    format!("{outcome}; {decision} at {at}")
                } else {
                    outcome
                }
            });
            if case.actions.len() < ACTIONS_MAX {
                let text = decision.to_owned();
                case.actions.push(ReasoningEntry { at, text });
            }
        }
    }

    /// Withdraws the fault of a case after a change of its verdict.
    fn withdraw_uncordoned_fault(&mut self, id: CaseId) {
        let of_case = |node: &Node| node.uncordoned_fault.as_ref().is_some_and(|fault| fault.case == id);
        let node = self.state.fleet.iter().find(|(_, node)| of_case(node));
        if let Some(name) = node.map(|(name, _)| name.clone()) {
            self.settle_uncordoned_fault(&name, "the verdict was revised");
        }
    }

    /// Returns the running job that the case concerns, or that uses the blamed or cordoned node.
    fn suffering_job(&self, concluded: &ConcludedDraft, isolated: Option<&NodeId>) -> Option<JobId> {
        let alive = |name: &&JobId| self.state.jobs.get(*name).is_some_and(|job| !job.is_over());
        let named = concluded.job.as_ref().filter(alive);
        let uses = |node: &NodeId| {
            let jobs = || self.state.jobs.iter().filter(|(_, job)| !job.is_over());
            // A waiting job may have left the node to another one.
            let holder = jobs().find(|(_, job)| self.state.has_node(job, node));
            let user = holder.or_else(|| jobs().find(|(_, job)| job.nodes().contains(node)));
            user.map(|(name, _)| name)
        };
        let blamed = concluded.verdict.blamed.node();
        named
            .or_else(|| isolated.and_then(uses))
            .or_else(|| blamed.and_then(uses))
            .cloned()
    }

    /// Returns the newest step of a job that made it while the evidence of a case was gathered, if all its ranks live.
    fn step_meanwhile(&self, id: CaseId, name: &JobId) -> Option<Step> {
        let job = self.state.jobs.get(name)?;
        let opened_at = self.state.cases.all().get(&id)?.opened_at;
        let is_moving = job.newest_step_at() > Some(opened_at) && job.is_whole();
        job.generation_step()
            .filter(|_| is_moving && self.state.withdraws_stalls())
    }

    /// Returns true if the job has ranks on a node that have not completed.
    pub(crate) fn works_on(&self, job: &Job, node: &NodeId) -> bool {
        if self.state.ignores_completed_ranks() {
            job.nodes_with_work().contains(node)
        } else {
            job.nodes().contains(node)
        }
    }
}

/// Returns what a verdict blames, as the views of cases show it.
fn blamed_text(verdict: &Verdict) -> String {
    let part = verdict.blamed_part.clone();
    part.unwrap_or_else(|| verdict.blamed.to_string())
}

/// Describes the decision that an operator has to make about a faulty node that is in use.
fn in_use_text(node: &NodeId, refusal: &str) -> String {
    format!(
        "node {node} is in use although faulty: {refusal}; `rankguard node cordon {node}` takes it out of use, \
         `rankguard node uncordon {node}` accepts it"
    )
}
