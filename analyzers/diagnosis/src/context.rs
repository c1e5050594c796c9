//! Fleet facts that the evidence does not contain.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Generation, JobId, LookupMap, NodeId, Rank, Timestamp};
use serde::{Deserialize, Serialize};

/// Placement of jobs on nodes. Borrowed for every call, because the caller owns it. Updated for each job, and indexed
/// by node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacementIndex {
    jobs: BTreeMap<JobId, JobContext>,
    /// Jobs that have ranks on each node.
    on: LookupMap<NodeId, BTreeSet<JobId>>,
}

/// Current generation of one job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobContext {
    /// Generation that may act; evidence of an older one never opens a case (RG-3).
    pub generation: Generation,
    /// Node of each rank of that generation.
    pub placements: BTreeMap<Rank, NodeId>,
    /// True while the job is ended on purpose: exits of its ranks are not failures.
    pub stopping: bool,
    /// Start of this generation, if known: older evidence about the job belongs to an earlier one.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// End of the job; from then on it uses none of its machines.
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
}

impl PlacementIndex {
    /// Sets the state of a job and replaces the previous one.
    pub fn set(&mut self, name: JobId, job: JobContext) {
        self.remove(&name);
        for node in job.placements.values() {
            self.on.of(node).insert(name.clone());
        }
        self.jobs.insert(name, job);
    }

    /// Removes a job and its placements.
    pub fn remove(&mut self, name: &JobId) {
        let Some(job) = self.jobs.remove(name) else { return };
        for node in job.placements.values() {
            self.on.update_or_remove(node, |there| {
                there.remove(name);
                there.is_empty()
            });
        }
    }

    /// Returns a known job.
    pub fn job(&self, name: &JobId) -> Option<&JobContext> {
        self.jobs.get(name)
    }

    /// Returns the known jobs, by name.
    pub fn jobs(&self) -> impl Iterator<Item = (&JobId, &JobContext)> {
        self.jobs.iter()
    }

    /// Returns the jobs that have ranks on a node, by name.
    pub fn jobs_on(&self, node: &NodeId) -> impl Iterator<Item = (&JobId, &JobContext)> {
        let names = self.on.get(node).into_iter().flatten();
        names.filter_map(|name| self.jobs.get_key_value(name))
    }
}

impl FromIterator<(JobId, JobContext)> for PlacementIndex {
    fn from_iter<I: IntoIterator<Item = (JobId, JobContext)>>(jobs: I) -> Self {
        let mut context = Self::default();
        jobs.into_iter().for_each(|(name, job)| context.set(name, job));
        context
    }
}

impl JobContext {
    /// Returns the node that runs a rank.
    pub fn node_of(&self, rank: Rank) -> Option<&NodeId> {
        self.placements.get(&rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(nodes: &[&str]) -> JobContext {
        let ranks = (0..).map(Rank);
        JobContext {
            generation: Generation(1),
            placements: ranks.zip(nodes.iter().map(|node| NodeId::from(*node))).collect(),
            ..JobContext::default()
        }
    }

    fn names(context: &PlacementIndex, node: &str) -> Vec<String> {
        let node = NodeId::from(node);
        context.jobs_on(&node).map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn a_job_that_moved_or_ended_is_on_none_of_its_old_nodes() {
        let mut context = PlacementIndex::default();
        context.set("b".into(), on(&["n0", "n0", "n1"]));
        context.set("a".into(), on(&["n1", "n2"]));
        assert_eq!(names(&context, "n1"), ["a", "b"]);
        context.set("b".into(), on(&["n2", "n3"]));
        assert!(names(&context, "n0").is_empty());
        assert_eq!(
            (names(&context, "n1"), names(&context, "n2")),
            (vec!["a".into()], vec!["a".into(), "b".into()])
        );
        context.remove(&"a".into());
        assert_eq!(names(&context, "n2"), ["b"]);
        let anew: PlacementIndex = [(JobId::from("b"), on(&["n2", "n3"]))].into_iter().collect();
        assert_eq!(context, anew);
    }
}
