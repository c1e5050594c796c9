//! Facts of the fleet that the evidence itself does not carry.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{ByName, Generation, JobId, NodeId, Rank, Timestamp};
use serde::{Deserialize, Serialize};

/// Which jobs run where. Lent with every call, so that there is one owner of the truth: the caller. Changed job by job, and
/// asked by node without a look at any rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    jobs: BTreeMap<JobId, JobContext>,
    /// The jobs that have ranks on a node.
    on: ByName<NodeId, BTreeSet<JobId>>,
}

/// One job's generation that may act.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobContext {
    /// The generation that may act; evidence of an older one never opens a case (RG-3).
    pub generation: Generation,
    /// The node of each rank of that generation.
    pub placements: BTreeMap<Rank, NodeId>,
    /// The job is being ended on purpose: exits of its ranks mean nothing.
    pub stopping: bool,
    /// When this generation was begun, where that is known: older evidence about the job is about an earlier one.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// When the job ended. From then on it uses none of its machines.
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
}

impl Context {
    /// From now on this is so of a job, whatever was said of it before.
    pub fn set(&mut self, name: JobId, job: JobContext) {
        self.remove(&name);
        for node in job.placements.values() {
            self.on.of(node).insert(name.clone());
        }
        self.jobs.insert(name, job);
    }

    /// A job is gone.
    pub fn remove(&mut self, name: &JobId) {
        let Some(job) = self.jobs.remove(name) else { return };
        for node in job.placements.values() {
            self.on.lessen(node, |there| {
                there.remove(name);
                there.is_empty()
            });
        }
    }

    /// A job that has a generation.
    pub fn job(&self, name: &JobId) -> Option<&JobContext> {
        self.jobs.get(name)
    }

    /// The jobs that have a generation, by name.
    pub fn jobs(&self) -> impl Iterator<Item = (&JobId, &JobContext)> {
        self.jobs.iter()
    }

    /// The jobs that have ranks on a node, by name.
    pub fn jobs_on(&self, node: &NodeId) -> impl Iterator<Item = (&JobId, &JobContext)> {
        let names = self.on.get(node).into_iter().flatten();
        names.filter_map(|name| self.jobs.get_key_value(name))
    }
}

impl FromIterator<(JobId, JobContext)> for Context {
    fn from_iter<I: IntoIterator<Item = (JobId, JobContext)>>(jobs: I) -> Self {
        let mut context = Self::default();
        jobs.into_iter().for_each(|(name, job)| context.set(name, job));
        context
    }
}

impl JobContext {
    /// The node that runs a rank.
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

    fn names(context: &Context, node: &str) -> Vec<String> {
        let node = NodeId::from(node);
        context.jobs_on(&node).map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn a_job_that_moved_or_ended_is_on_none_of_its_old_nodes() {
        let mut context = Context::default();
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
        let anew: Context = [(JobId::from("b"), on(&["n2", "n3"]))].into_iter().collect();
        assert_eq!(context, anew);
    }
}
