//! Answer to the failure of a job: nothing, a restart or a stop. The phases follow in this order, and the first that
//! decides ends the answer.
//!
//! | phase | decides |
//! |---|---|
//! | [`DecisionContext::failure_facts`] | nothing, if the job is past the failure or no rank of it failed |
//! | [`DecisionContext::answer_failed_order`] | a restart elsewhere, or a stop, if an order to start ranks failed |
//! | facts of the cluster | a restart, if a node of the job is lost or isolated, or its store has to respond first |
//! | [`DecisionContext::answer_lack`] | a restart without a node that lacks what others have |
//! | [`DecisionContext::answer_refused_start`] | a stop, if the command cannot start at all |
//! | [`DecisionContext::answer_by_budget`] | a restart within the budget of the failure, else a stop |

use std::collections::BTreeSet;

use rankguard_diagnosis::ConcludedDraft;
use rankguard_faults::classes;
use rankguard_model::{CaseFinding, CaseId, EvidenceSource, JobId, NodeId};

use super::RecoveryDecision;
use crate::Job;
use crate::decision::{DecisionContext, node_of_reporters};

/// Layers of failures in the user's program or data, where a restart does not help.
const USER_LAYERS: &[&str] = &["user-code", "user-data", "model-numerics"];

/// Classes of launch failures that repeat at every try. A job that has trained had a valid command, so then the node is
/// at fault.
const START_REFUSALS: &[&str] = &[classes::INVALID_JOB_SPEC, classes::PERMISSION_DENIED];

/// Facts about a failed job on which the answer depends, as of the verdict.
#[derive(Debug, Clone, Copy)]
struct FailureFacts {
    /// True if the ranks cannot go on where they are: a node is lost or isolated, or the store has to respond first.
    must_restart: bool,
    /// True if the job worked long enough since its start that earlier restarts do not count.
    worked_long: bool,
    /// True if the failure is the one before, and not only of its class.
    is_same: bool,
}

/// Retries that a failure permits.
#[derive(Debug, Clone)]
struct RetryBudget {
    limit: u32,
    /// True if the failure lies in the program, its data or its configuration.
    is_of_user: bool,
    /// Node of which all ranks report the failure, and no others.
    reporter: Option<NodeId>,
}

impl DecisionContext<'_> {
    /// Answers a verdict about a job; `isolated` is true if the blamed node was taken out of use.
    pub(super) fn answer(
        &mut self,
        id: CaseId,
        name: &JobId,
        concluded: &ConcludedDraft,
        isolated: bool,
    ) -> RecoveryDecision {
        let facts = match self.failure_facts(id, name, concluded, isolated) {
            Ok(facts) => facts,
            Err(outcome) => return RecoveryDecision::Nothing(outcome),
        };
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.progress_mark.answer(&concluded.signature);
            if facts.worked_long {
                job.reset_fruitless();
            }
        }
        if let Some(decision) = self.answer_failed_order(name, concluded, facts) {
            return decision;
        }
        if facts.must_restart {
            return RecoveryDecision::Restart;
        }
        let decision = self.answer_lack(id, name, concluded, None);
        let decision = decision.or_else(|| self.answer_refused_start(name, concluded));
        decision.unwrap_or_else(|| self.answer_by_budget(id, name, concluded, facts))
    }

    /// Returns the facts about a job that failed, or the outcome of a case that needs no recovery.
    fn failure_facts(
        &self,
        id: CaseId,
        name: &JobId,
        concluded: &ConcludedDraft,
        isolated: bool,
    ) -> Result<FailureFacts, &'static str> {
        let job = self.state.jobs.get(name).ok_or("the job is gone")?;
        let failed_in = concluded.generation;
        if failed_in.is_some_and(|generation| generation < job.generation()) {
            return Err("the job went on to a later generation meanwhile");
        }
        if job.is_pending() {
            return Err("the job waits for nodes already");
        }
        let works_on: BTreeSet<NodeId> = if self.state.ignores_completed_ranks() {
            job.nodes_with_work()
        } else {
            job.nodes().iter().cloned().collect()
        };
        let lost_node = works_on.iter().any(|node| !self.state.fleet.is_live(node));
        let blamed = concluded.verdict.blamed.node();
        let on_isolated = isolated && blamed.is_some_and(|node| works_on.contains(node));
        let is_corrupt = self.state.restarts_corrupt_jobs() && reports_corruption(concluded);
        // The agent of the silent node is back, and with it all ranks.
        let is_whole = self.state.has_exact_cases() && concluded.node_silent && job.is_whole();
        let has_failed = concluded.failed && !is_whole;
        if !on_isolated && !lost_node && !has_failed && !is_corrupt {
            return Err(self.outcome_without_failure(job));
        }
        if let Some(outcome) = self.confinement(concluded).filter(|_| !lost_node) {
            return Err(outcome);
        }
        Ok(FailureFacts {
            must_restart: on_isolated || lost_node || self.waits_for_store(name),
            worked_long: self.has_worked_long(job),
            is_same: !self.state.compares_failures() || self.is_same_as_before(id, name, concluded),
        })
    }

    /// Returns the outcome of a case without a failed rank. It is read later, also when the job was restarted for another
    /// case.
    fn outcome_without_failure(&self, job: &Job) -> &'static str {
        let has_completed = job.places().keys().any(|rank| job.has_completed(*rank));
        if !self.state.keeps_present_faults() {
            "every rank of the job is alive, so nothing is restarted"
        } else if has_completed {
            "no rank of the job had failed, so nothing was restarted"
        } else {
            "every rank of the job was alive, so nothing was restarted"
        }
    }

    /// Answers the failure of an order to start ranks.
    fn answer_failed_order(
        &mut self,
        name: &JobId,
        concluded: &ConcludedDraft,
        facts: FailureFacts,
    ) -> Option<RecoveryDecision> {
        if !concluded.order_failed || !self.state.compares_starts() {
            return None;
        }
        let stop = self.answer_failed_start(name, concluded);
        let stop = stop.filter(|_| !facts.must_restart);
        Some(stop.map_or(RecoveryDecision::Restart, RecoveryDecision::Stop))
    }

    /// Stops a job that made no step and of which the command cannot start.
    fn answer_refused_start(&self, name: &JobId, concluded: &ConcludedDraft) -> Option<RecoveryDecision> {
        let job = self.state.jobs.get(name)?;
        let is_refused = START_REFUSALS.contains(&concluded.verdict.class.as_str());
        (concluded.order_failed && is_refused && job.step().is_none()).then(|| {
            RecoveryDecision::Stop(format!(
                "{}; the same command cannot start, so it is not tried again",
                concluded.headline
            ))
        })
    }

    /// Restarts a job within the budget of its failure, and stops it beyond.
    fn answer_by_budget(
        &mut self,
        id: CaseId,
        name: &JobId,
        concluded: &ConcludedDraft,
        facts: FailureFacts,
    ) -> RecoveryDecision {
        let Some(budget) = self.retry_budget(name, concluded) else {
            return RecoveryDecision::Nothing("the job is gone");
        };
        let Some(job) = self.state.jobs.get_mut(name) else {
            return RecoveryDecision::Nothing("the job is gone");
        };
        if facts.worked_long && !budget.is_of_user {
            job.reset_retries(&concluded.signature);
        }
        let Err(times) = job.retry(&concluded.signature, budget.limit) else {
            return RecoveryDecision::Restart;
        };
        self.answer_lack(id, name, concluded, Some(times)).unwrap_or_else(|| {
            let reason = budget.stop_reason(times, facts.is_same);
            RecoveryDecision::Stop(format!("{}; {reason}", concluded.headline))
        })
    }

    fn retry_budget(&self, name: &JobId, concluded: &ConcludedDraft) -> Option<RetryBudget> {
        let job = self.state.jobs.get(name)?;
        let verdict = &concluded.verdict;
        let reporter = node_of_reporters(job, concluded).filter(|_| self.state.leaves_lacking_nodes());
        // What one node lacks does not come back by itself either.
        let is_lack = reporter.is_some() && verdict.blamed.node() == reporter.as_ref();
        let is_of_user = USER_LAYERS.contains(&verdict.layer.as_str()) || is_lack || concluded.order_failed;
        Some(RetryBudget {
            limit: if is_of_user {
                self.state.policy.user_retries
            } else {
                job.spec.max_restarts
            },
            is_of_user,
            reporter,
        })
    }
}

impl RetryBudget {
    /// Returns why a job is stopped for a failure that came back after `times` retries.
    fn stop_reason(&self, times: u32, is_same: bool) -> String {
        match (self.limit, &self.reporter) {
            (0, Some(node)) if self.is_of_user => {
                format!("all its ranks on {node} report it, and no others, so it is not retried")
            }
            (0, _) if self.is_of_user => {
                "it lies in the program, its data or its configuration, so it is not retried".to_owned()
            }
            (0, _) => "no restarts are allowed".to_owned(),
            (_, reporter) if self.is_of_user => {
                let retries = if times == 1 { "retry" } else { "retries" };
                let place = reporter.as_ref().map_or_else(
                    || " and lies in the program, its data or its configuration".to_owned(),
                    |node| format!(", reported by all its ranks on {node} and no others"),
                );
                format!("the same failure came back after {times} {retries}{place}, so it is not retried again")
            }
            _ => {
                let restarts = if times == 1 { "restart" } else { "restarts" };
                let failure = if is_same {
                    "the same failure"
                } else {
                    "a failure of the same class"
                };
                format!("{failure} came back after {times} {restarts}, and no more are allowed")
            }
        }
    }
}

/// Returns true if a checkpoint of the job was refused for silent data corruption: the ranks are alive and train on with wrong
/// values, and no later checkpoint can be committed.
fn reports_corruption(concluded: &ConcludedDraft) -> bool {
    let class = classes::SILENT_DATA_CORRUPTION;
    let is_compared =
        |finding: &CaseFinding| finding.source == EvidenceSource::Checkpoint && finding.class.as_str() == class;
    concluded.verdict.class.as_str() == class && concluded.findings.iter().any(is_compared)
}
