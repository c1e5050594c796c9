//! The planner: from a verdict to the cheapest sufficient answer.

use rankguard_diagnosis::Concluded;
use rankguard_model::{CaseId, Entity, JobId, NodeId, Severity};

use crate::brain::Turn;
use crate::fleet::Cordon;
use crate::{Job, Phase, Plan};

/// What to do about a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// Nothing died; people are told.
    Nothing(&'static str),
    /// Begin the next generation on what is healthy.
    Restart,
    /// It will fail again the same way: stop and tell the user.
    Stop(String),
}

/// Layers whose failures lie in what the user brought: running it again does not help.
const USER_LAYERS: &[&str] = &["user-code", "user-data", "model-numerics"];

impl Turn<'_> {
    /// Answers a concluded case.
    pub(crate) fn recover(&mut self, id: CaseId, concluded: &Concluded) {
        let verdict = &concluded.verdict;
        self.announce(format!(
            "case {id}: {} ({}), blamed: {}, confidence {:.2}",
            verdict.class, verdict.layer, verdict.blamed, verdict.confidence
        ));
        let isolated = self.isolate(id, concluded);
        let Some(name) = self.suffering_job(concluded, isolated.as_ref()) else {
            let outcome = match isolated {
                Some(node) => format!("node {node} takes no more ranks"),
                None => "nothing to recover".to_owned(),
            };
            return self.close(id, outcome);
        };
        if let Some(older) = self.state.jobs.get(&name).and_then(|job| job.case).filter(|older| *older != id) {
            self.close(older, format!("superseded by case {id} before the job made a step"));
        }
        match self.answer(&name, concluded, isolated.is_some()) {
            Answer::Nothing(why) => self.close(id, why.to_owned()),
            Answer::Restart => {
                if let Some(job) = self.state.jobs.get_mut(&name) {
                    job.case = Some(id);
                }
                let reasons = vec![format!("case {id}: {}", verdict.class), verdict.mitigation.advice.clone()];
                self.place(&name, Some(id), reasons);
            }
            Answer::Stop(reason) => {
                if let Some(job) = self.state.jobs.get_mut(&name) {
                    job.case = Some(id);
                }
                self.stop_job(&name, reason);
            }
        }
    }

    /// Takes the blamed node out of use when its hardware is at fault and the budget allows it (RG-6).
    fn isolate(&mut self, id: CaseId, concluded: &Concluded) -> Option<NodeId> {
        let verdict = &concluded.verdict;
        let hardware = verdict.layer == "hardware" && verdict.severity == Severity::Failure;
        let node = match &verdict.blamed {
            Entity::Device { node, .. } | Entity::Node { node } if hardware => node.clone(),
            _ => return None,
        };
        let entry = self.state.fleet.get(&node)?;
        // A node that is silent is out of use already, and may come back healthy.
        if entry.lost_since.is_some() || concluded.node_silent {
            return None;
        }
        if entry.cordon.is_some() {
            return Some(node);
        }
        let (used, budget) =
            (self.state.fleet.cordoned_by_verdict(), self.state.policy.cordon_budget(self.state.fleet.len()));
        if used >= budget {
            let text = format!(
                "node {node} stays in use: {used} nodes are cordoned and {budget} may be; a person must decide"
            );
            self.announce(format!("case {id}: {text}"));
            self.note(Some(id), text);
            return None;
        }
        let reason = format!("case {id}: {} on {}", verdict.class, verdict.blamed);
        self.state.fleet.cordon(&node, Cordon { since: self.at, reason, case: Some(id) });
        self.node_span(&node);
        self.note(Some(id), format!("node {node} cordoned"));
        Some(node)
    }

    /// The living job that the case is about, or that runs on the node that was just isolated.
    fn suffering_job(&self, concluded: &Concluded, isolated: Option<&NodeId>) -> Option<JobId> {
        let alive = |name: &&JobId| self.state.jobs.get(*name).is_some_and(|job| !job.is_over());
        let named = concluded.job.as_ref().filter(alive);
        let uses = |node: &NodeId| {
            self.state.jobs.iter().find(|(_, job)| !job.is_over() && job.nodes().contains(node)).map(|(name, _)| name)
        };
        let blamed = concluded.verdict.blamed.node();
        named.or_else(|| isolated.and_then(uses)).or_else(|| blamed.and_then(uses)).cloned()
    }

    fn answer(&mut self, name: &JobId, concluded: &Concluded, isolated: bool) -> Answer {
        let verdict = &concluded.verdict;
        let retries_max = self.state.policy.user_retries;
        let Some(job) = self.state.jobs.get_mut(name) else { return Answer::Nothing("the job is gone") };
        if matches!(job.phase, Phase::Pending { .. }) {
            return Answer::Nothing("the job waits for nodes already");
        }
        let lost_node = job.nodes().iter().any(|node| !self.state.fleet.is_live(node));
        let on_isolated = isolated && verdict.blamed.node().is_some_and(|node| job.nodes().contains(node));
        if !on_isolated && !lost_node && !concluded.stalled && !concluded.order_failed && !has_lost_ranks(job) {
            return Answer::Nothing("every rank of the job is alive, so nothing is restarted");
        }
        if on_isolated || lost_node {
            return Answer::Restart;
        }
        let user = USER_LAYERS.contains(&verdict.layer.as_str());
        let limit = if user || concluded.order_failed { retries_max } else { job.spec.max_restarts };
        let count = job.retries.entry(concluded.signature.clone()).or_insert(0);
        if *count < limit {
            *count += 1;
            return Answer::Restart;
        }
        let times = *count;
        let what = concluded.headline.clone();
        Answer::Stop(if user || concluded.order_failed {
            format!(
                "{what}; the same failure came back after {times} {} and lies in the program, its data or its \
                 configuration, so it is not retried again",
                if times == 1 { "retry" } else { "retries" }
            )
        } else {
            format!("{what}; the same failure came back after {times} restarts, which is all that were allowed")
        })
    }
}

/// Whether ranks that should run do not.
fn has_lost_ranks(job: &Job) -> bool {
    let awaited = match &job.phase {
        Phase::Launching { waiting, .. } => waiting.clone(),
        _ => Default::default(),
    };
    !matches!(job.phase, Phase::Fencing { .. })
        && job.plan.iter().flat_map(Plan::placements).any(|place| {
            !job.running.contains(&place.rank)
                && !job.completed.contains(&place.rank)
                && !awaited.contains(&place.rank)
        })
}
