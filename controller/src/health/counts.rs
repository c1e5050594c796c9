//! Counts of nodes, jobs, cases and checkpoints for `/metrics`.

use std::collections::BTreeMap;

use rankguard_core::DecisionState;
use rankguard_model::{JobState, NodeState, ReceiverView};

/// Metric with one label: name, help text, name of the label, and a value for each value of the label.
pub(crate) type MetricFamily = (&'static str, &'static str, &'static str, Vec<(String, u64)>);

const NODE_STATES: [(NodeState, &str); 4] = [
    (NodeState::Healthy, "healthy"),
    (NodeState::Cordoned, "cordoned"),
    (NodeState::Fencing, "fencing"),
    (NodeState::Lost, "lost"),
];

const JOB_STATES: [(JobState, &str); 6] = [
    (JobState::Pending, "pending"),
    (JobState::Starting, "starting"),
    (JobState::Running, "running"),
    (JobState::Recovering, "recovering"),
    (JobState::Finished, "finished"),
    (JobState::Stopped, "stopped"),
];

/// Counts of one state of the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StateCounts {
    /// Nodes by state, in the order of [`NODE_STATES`].
    nodes: [u64; NODE_STATES.len()],
    /// Nodes on which ranks may be placed.
    pub(crate) usable_nodes: u64,
    /// Nodes in use although a verdict blames them.
    pub(crate) faulty_nodes_in_use: u64,
    /// Jobs by state, in the order of [`JOB_STATES`].
    jobs: [u64; JOB_STATES.len()],
    /// Cases that are open or recovering, have a fault that is present or await an operator, by class.
    open_cases: BTreeMap<String, u64>,
    /// Committed checkpoints of the known jobs.
    pub(crate) committed: u64,
    /// Void checkpoint attempts of the known jobs.
    pub(crate) void: u64,
    /// Largest number of void attempts of an active job since its newest commit.
    pub(crate) void_in_row: u64,
}

impl StateCounts {
    /// Counts a state; the cost grows with the number of nodes, jobs and cases.
    pub(crate) fn of(state: &DecisionState) -> Self {
        let mut counts = Self::default();
        for (_, node) in state.fleet().iter() {
            add(&mut counts.nodes, &NODE_STATES, node.state());
            counts.usable_nodes += u64::from(node.is_usable());
            let is_faulty = node.uncordoned_fault.is_some() && node.state() == NodeState::Healthy;
            counts.faulty_nodes_in_use += u64::from(is_faulty);
        }
        for job in state.jobs().values() {
            add(&mut counts.jobs, &JOB_STATES, job.state());
            let attempts = &job.checkpoints.counts;
            counts.committed += attempts.committed;
            counts.void += attempts.void;
            if !job.is_over() {
                counts.void_in_row = counts.void_in_row.max(attempts.void_in_row);
            }
        }
        for foreign in state.foreign_job_states() {
            add(&mut counts.jobs, &JOB_STATES, foreign);
        }
        for case in state.cases().values().filter(|case| case.is_open()) {
            *counts.open_cases.entry(case.verdict.class.to_string()).or_default() += 1;
        }
        counts
    }

    /// Returns the number of known jobs.
    pub(crate) fn known_jobs(&self) -> u64 {
        self.jobs.iter().sum()
    }

    /// Returns the metrics with labels.
    pub(crate) fn families(&self) -> [MetricFamily; 3] {
        let nodes = NODE_STATES.iter().zip(self.nodes);
        let jobs = JOB_STATES.iter().zip(self.jobs);
        let named = |((_, name), count): (&(_, &str), u64)| ((*name).to_owned(), count);
        let of_job = |((_, name), count): (&(_, &str), u64)| ((*name).to_owned(), count);
        [
            (
                "nodes_by_state",
                "Known nodes, by state",
                "state",
                nodes.map(named).collect(),
            ),
            (
                "jobs_by_state",
                "Known jobs, by state",
                "state",
                jobs.map(of_job).collect(),
            ),
            (
                "open_cases",
                "Cases that are open or recovering, have a fault that is present or await an operator, by failure class",
                "class",
                self.open_cases.clone().into_iter().collect(),
            ),
        ]
    }
}

/// Returns the metrics of the receivers of notifications; none without receivers.
pub(super) fn receiver_families(receivers: &[ReceiverView]) -> Vec<MetricFamily> {
    type ReceiverCount = fn(&ReceiverView) -> u64;
    let counts: [(&str, &str, ReceiverCount); 7] = [
        ("notify_sent_total", "Notifications that the receiver took", |view| {
            view.sent
        }),
        (
            "notify_failed_total",
            "Attempts to send a notification that failed",
            |view| view.failed,
        ),
        (
            "notify_refused_total",
            "Notifications that the receiver refused",
            |view| view.refused,
        ),
        (
            "notify_suppressed_total",
            "Notifications that the rate limit suppressed",
            |view| view.suppressed,
        ),
        (
            "notify_missed_total",
            "Ends of incidents that were removed before they were delivered",
            |view| view.missed,
        ),
        (
            "notify_waiting",
            "Notifications that are due and not delivered",
            |view| view.waiting,
        ),
        (
            "notify_failing",
            "1 if the newest attempt to send a notification failed",
            |view| u64::from(view.problem.is_some()),
        ),
    ];
    let counts = counts.into_iter().filter(|_| !receivers.is_empty());
    let family = |(name, help, count): (&'static str, &'static str, ReceiverCount)| {
        let values = receivers.iter().map(|view| (view.name.clone(), count(view)));
        (name, help, "receiver", values.collect())
    };
    counts.map(family).collect()
}

fn add<S: PartialEq>(counts: &mut [u64], states: &[(S, &str)], state: S) {
    let place = states.iter().position(|(known, _)| *known == state);
    if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use rankguard_core::Policy;
    use rankguard_faults::Catalogue;

    use super::*;

    #[test]
    fn states_without_nodes_and_jobs_are_zeros() {
        let counts = StateCounts::of(&DecisionState::new(Policy::default(), Catalogue::builtin()));
        assert_eq!(counts, StateCounts::default());
        let [nodes, jobs, cases] = counts.families();
        let zeros = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 0)).collect::<Vec<_>>();
        assert_eq!(nodes.3, zeros(&["healthy", "cordoned", "fencing", "lost"]));
        assert_eq!(jobs.3.len(), JOB_STATES.len());
        assert_eq!(cases.3, []);
    }
}
