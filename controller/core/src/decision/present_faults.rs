//! Faults that are still present after the verdict although nothing is restarted for them.
//!
//! `Open => FaultPresent` of a case whose job goes on, if the end of the fault will be seen: ranks that stand while others
//! make steps, slow ranks, a loss that is not finite, a store that keeps no checkpoint, a link that is down, a condition of a machine that lasts. `FaultPresent => Closed` when that end is
//! seen, when the job ends or starts another generation, or by an operator. `Closed => FaultPresent` when the same failure
//! is reported again, unless an operator closed the case.

use rankguard_faults::classes;
use rankguard_model::{
    Case, CaseFinding, CaseId, CaseNote, CaseNoteKind, CaseState, ClassId, Entity, EvidenceSource, JobId, NodeId, Step,
    Timestamp,
};

use super::DecisionContext;
use crate::limits::PRESENT_FAULTS_MAX;
use crate::{DecisionState, Job, Node};

/// Classes of a checkpoint store that keeps no shard.
const STORE_FAULTS: [&str; 2] = [classes::DISK_FULL, classes::STORAGE_IO_ERROR];

impl DecisionState {
    /// Returns true if the fault of a concluded case is present now, as far as its end can be seen.
    pub(crate) fn has_present_fault(&self, case: &Case) -> bool {
        self.is_link_down(case)
            || self.has_lasting_condition(case)
            || self.job_of(case).is_some_and(|job| has_present_fault(job, case))
    }

    /// Returns true for a node with a fault that is known, although it may be used: a job moves to other nodes if that
    /// costs less than the fault at its return.
    pub(crate) fn has_known_fault(&self, name: &NodeId, node: &Node) -> bool {
        node.uncordoned_fault.is_some() || self.blamed_link(name, node).is_some()
    }

    /// Returns a link of a node that is down and to which a case attributes a failure of a job.
    pub(crate) fn blamed_link<'s>(&self, name: &NodeId, node: &'s Node) -> Option<&'s str> {
        if !self.leaves_down_links() || node.links_down.is_empty() {
            return None;
        }
        let ended_ranks =
            |case: &Case| case.plan.is_some() || matches!(case.state, CaseState::Open | CaseState::Recovering);
        let blames = |case: &Case, link: &str, since: Timestamp| {
            case.verdict.class.as_str() == classes::NIC_LINK_DOWN
                && case.verdict.blamed.node() == Some(name)
                && case.opened_at >= since
                && case.verdict.blamed.to_string() == link
                && ended_ranks(case)
        };
        let mut down = node.links_down.iter();
        let is_blamed = |(link, since): &(&String, &Timestamp)| {
            let mut cases = self.cases.all().values().rev();
            cases.any(|case| blames(case, link, **since))
        };
        down.find(is_blamed).map(|(link, _)| link.as_str())
    }

    /// Returns the case with the same fault that is still present.
    fn present_fault_like(&self, case: &Case) -> Option<CaseId> {
        let is_same = |other: &&Case| {
            other.id != case.id
                && other.job == case.job
                && other.verdict.class == case.verdict.class
                && other.verdict.blamed == case.verdict.blamed
        };
        self.cases.with_present_fault().find(is_same).map(|case| case.id)
    }

    fn job_of(&self, case: &Case) -> Option<&Job> {
        let job = self.jobs.get(case.job.as_ref()?)?;
        (!job.is_over()).then_some(job)
    }

    /// Returns true if the blamed link, or another one of which the case reports the loss, is down.
    fn is_link_down(&self, case: &Case) -> bool {
        let class = &case.verdict.class;
        let mut lost = case.findings.iter().filter(|finding| finding.class == *class);
        let is_drill = case.is_synthetic();
        let is_down = |link: &Entity| self.is_reported_down(link) || is_drill && self.is_down_in_drill(link);
        class.as_str() == classes::NIC_LINK_DOWN
            && (is_down(&case.verdict.blamed) || lost.any(|finding| is_down(&finding.entity)))
    }

    /// Returns true if a drill took a link down, and neither a drill nor the machine reported it as up since.
    pub(crate) fn is_down_in_drill(&self, link: &Entity) -> bool {
        let entry = link.node().and_then(|node| self.fleet.get(node));
        entry.is_some_and(|entry| entry.drilled_links.contains(&link.to_string()))
    }

    /// Returns true if a link was reported as down, and not as up since.
    pub(crate) fn is_reported_down(&self, link: &Entity) -> bool {
        let entry = link.node().and_then(|node| self.fleet.get(node));
        entry.is_some_and(|entry| entry.links_down.contains_key(&link.to_string()))
    }
}

fn has_present_fault(job: &Job, case: &Case) -> bool {
    let is_of_generation = case.generation == Some(job.generation());
    let is_idle = is_of_generation && job.activity.case == Some(case.id);
    let is_loss = is_of_generation && case.verdict.class.as_str() == classes::LOSS_NAN;
    is_idle
        || is_loss && job.rank_notes.has_failed_loss()
        || is_of_generation && case.findings.iter().any(|finding| is_rank_affected(job, finding))
        || is_store_fault(case) && job.checkpoints.counts.fails_now()
}

/// Returns true if the rank of a finding runs and stands, or is slow, as the finding reports.
fn is_rank_affected(job: &Job, finding: &CaseFinding) -> bool {
    let Entity::Rank { rank, .. } = &finding.entity else {
        return false;
    };
    let is_affected = match finding.class.as_str() {
        classes::HANG_STALLED_RANKS | classes::FILESYSTEM_HANG => job.hang.is_standing(*rank),
        classes::STRAGGLER => job.tempo.is_slow(*rank),
        _ => false,
    };
    is_affected && job.is_alive(*rank)
}

/// Returns true if a shard could not be written to the store of the case's job.
fn is_store_fault(case: &Case) -> bool {
    let class = &case.verdict.class;
    let is_shard = |finding: &CaseFinding| finding.source == EvidenceSource::Checkpoint && finding.class == *class;
    STORE_FAULTS.contains(&class.as_str()) && case.findings.iter().any(is_shard)
}

fn was_closed_by_operator(case: &Case) -> bool {
    case.notes.iter().any(|note| note.kind == CaseNoteKind::Closed)
}

impl DecisionContext<'_> {
    /// Ends a case for which nothing is done: `Open => FaultPresent` while its fault is present, else `Open => Closed`. A
    /// fault has one open case: a later one refers to it.
    pub(crate) fn end_without_action(&mut self, id: CaseId, outcome: String) {
        let Some(case) = self.state.cases.all().get(&id) else {
            return;
        };
        if !self.state.keeps_present_faults() || !self.state.has_present_fault(case) {
            return self.close(id, outcome);
        }
        let is_hang = case.verdict.class.as_str() == classes::HANG_STALLED_RANKS;
        let job = self.state.job_of(case).filter(|_| is_hang);
        let stopped = job.and_then(|job| job.hang.stopped_text());
        let outcome = stopped.map_or(outcome.clone(), |stopped| format!("{outcome}; {stopped}"));
        match self.state.present_fault_like(case) {
            Some(known) => self.merge(id, known),
            None => self.state.cases.set_present(id, outcome),
        }
        self.limit_present_faults();
    }

    /// Closes a case about the fault of another one, which takes its evidence of that fault.
    fn merge(&mut self, id: CaseId, known: CaseId) {
        let cases = self.state.cases.all();
        let (Some(case), Some(fault)) = (cases.get(&id), cases.get(&known)) else {
            return;
        };
        // What happened to machines long after the verdict is another failure, and a drill explains no real fault.
        let is_limited = self.state.has_exact_cases();
        let is_of_fault = |finding: &&CaseFinding| {
            let is_of_job = matches!(finding.entity, Entity::Rank { .. } | Entity::Job { .. });
            let is_here = finding.entity.node() == fault.verdict.blamed.node();
            let is_same = is_here && finding.class == fault.verdict.class;
            !is_limited || (is_of_job || is_same) && (!finding.synthetic || fault.is_synthetic())
        };
        let findings: Vec<CaseFinding> = case.findings.iter().filter(is_of_fault).cloned().collect();
        for finding in findings {
            self.state.cases.add_new_finding(known, finding);
        }
        self.close(id, format!("its fault is that of case {known}, which was open"));
    }

    /// `Closed => FaultPresent` after a late report of the same failure.
    pub(crate) fn reopen_present_fault(&mut self, id: CaseId, finding: &CaseFinding) {
        let Some(case) = self.state.cases.all().get(&id) else {
            return;
        };
        let is_again = finding.class == case.verdict.class && case.state == CaseState::Closed;
        if !is_again || was_closed_by_operator(case) || !self.state.keeps_present_faults() {
            return;
        }
        if let Some(known) = self.state.present_fault_like(case) {
            self.state.cases.add_new_finding(known, finding.clone());
        } else if self.state.has_present_fault(case) {
            let outcome = "the failure was reported again, and nothing was restarted".to_owned();
            self.state.cases.set_present(id, outcome);
            self.limit_present_faults();
        }
    }

    /// `FaultPresent => Closed` of the cases of a job's store that keeps checkpoints again: the failed ones explain no later
    /// failure.
    pub(crate) fn end_store_faults(&mut self, name: &JobId, step: Step) {
        if let Some(job) = self
            .state
            .jobs
            .get(name)
            .filter(|job| !job.checkpoints.counts.fails_now())
        {
            self.state.diagnosis.store_works(name, job.generation());
        }
        self.close_past_faults(name, &format!("the checkpoint of step {step} was committed"));
    }

    /// `FaultPresent => Closed` of the cases of a job with a fault that is no longer present.
    pub(crate) fn close_past_faults(&mut self, job: &JobId, how: &str) {
        self.close_past(how, |case| case.job.as_ref() == Some(job));
    }

    /// `FaultPresent => Closed` of the cases that blame a node, or a device of it, with a fault that is no longer present.
    pub(crate) fn close_past_faults_of_node(&mut self, node: &NodeId, how: &str) {
        self.close_past(how, |case| case.verdict.blamed.node() == Some(node));
    }

    /// `FaultPresent => Closed` of the cases that blame an entity with a fault that is no longer present.
    pub(crate) fn close_past_faults_of_entity(&mut self, entity: &Entity, how: &str) {
        self.close_past(how, |case| case.verdict.blamed == *entity);
    }

    /// `FaultPresent => Closed` of the cases of a class with a fault that is no longer present.
    pub(crate) fn close_past_faults_of_class(&mut self, class: &ClassId, how: &str) {
        self.close_past(how, |case| case.verdict.class == *class);
    }

    /// `FaultPresent => Closed` of a case with another verdict, of which the end is not seen.
    pub(crate) fn close_revised(&mut self, id: CaseId, class: &ClassId) {
        self.close_past(&format!("the verdict was revised to {class}"), |case| case.id == id);
    }

    fn close_past(&mut self, how: &str, is_concerned: impl Fn(&Case) -> bool) {
        let present = self.state.cases.with_present_fault();
        let past = present.filter(|case| is_concerned(case) && !self.state.has_present_fault(case));
        let past: Vec<CaseId> = past.map(|case| case.id).collect();
        for id in past {
            self.close_present(id, how);
        }
    }

    /// `FaultPresent => Closed` by an operator.
    pub(crate) fn close_by_operator(&mut self, id: CaseId, note: &CaseNote) {
        let text = &note.text;
        let reason = if text.is_empty() {
            String::new()
        } else {
            format!(": {text}")
        };
        self.close_present(id, &format!("{} closed the case{reason}", note.by));
    }

    pub(super) fn close_present(&mut self, id: CaseId, how: &str) {
        let at = self.at;
        let Some(case) = self.state.cases.end_present(id) else {
            return;
        };
        let before = case.outcome.clone().unwrap_or_default();
        // The return of a link is part of outcome and actions already.
        if before.ends_with(how) {
            return self.close(id, before);
        }
        // A text with a time of its own ends with it.
        let dated = if how.ends_with('Z') {
            how.to_owned()
        } else {
            format!("{how} at {at}")
        };
        self.close(id, format!("{before}; {dated}"));
        self.note(Some(id), how.to_owned());
    }

    fn limit_present_faults(&mut self) {
        while self.state.cases.with_present_fault().count() > PRESENT_FAULTS_MAX {
            let Some(oldest) = self.state.cases.with_present_fault().next().map(|case| case.id) else {
                return;
            };
            self.close_present(oldest, "its fault is not watched further, because too many are present");
        }
    }
}
