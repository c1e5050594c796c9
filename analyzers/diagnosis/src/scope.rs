//! Scopes: whose failure it is, owned or lent, and what is found by it.

use std::collections::BTreeMap;

use rankguard_model::{Generation, JobId, NodeId};
use serde::{Deserialize, Serialize};

/// Whose failure it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Scope {
    /// One generation of a job.
    Job {
        /// The job.
        job: JobId,
        /// The generation.
        generation: Generation,
    },
    /// A node on which no job runs.
    Node {
        /// The node.
        node: NodeId,
    },
}

impl Scope {
    /// The job, where one suffers.
    pub fn job(&self) -> Option<&JobId> {
        match self {
            Self::Job { job, .. } => Some(job),
            Self::Node { .. } => None,
        }
    }

    /// The generation of the job.
    pub fn generation(&self) -> Option<Generation> {
        match self {
            Self::Job { generation, .. } => Some(*generation),
            Self::Node { .. } => None,
        }
    }

    /// Lent.
    pub(crate) fn lend(&self) -> ScopeRef<'_> {
        match self {
            Self::Job { job, generation } => ScopeRef::Job(job, *generation),
            Self::Node { node } => ScopeRef::Node(node),
        }
    }
}

/// A scope whose names belong to somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeRef<'a> {
    Job(&'a JobId, Generation),
    Node(&'a NodeId),
}

impl ScopeRef<'_> {
    pub(crate) fn own(self) -> Scope {
        match self {
            Self::Job(job, generation) => Scope::Job {
                job: job.clone(),
                generation,
            },
            Self::Node(node) => Scope::Node { node: node.clone() },
        }
    }
}

/// Something of each scope, found without copying a name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ByScope<T> {
    jobs: BTreeMap<JobId, BTreeMap<Generation, T>>,
    nodes: BTreeMap<NodeId, T>,
}

impl<T> Default for ByScope<T> {
    fn default() -> Self {
        Self {
            jobs: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }
}

impl<T> ByScope<T> {
    pub(crate) fn get(&self, scope: ScopeRef<'_>) -> Option<&T> {
        match scope {
            ScopeRef::Job(job, generation) => self.jobs.get(job)?.get(&generation),
            ScopeRef::Node(node) => self.nodes.get(node),
        }
    }

    pub(crate) fn get_mut(&mut self, scope: ScopeRef<'_>) -> Option<&mut T> {
        match scope {
            ScopeRef::Job(job, generation) => self.jobs.get_mut(job)?.get_mut(&generation),
            ScopeRef::Node(node) => self.nodes.get_mut(node),
        }
    }

    pub(crate) fn insert(&mut self, scope: &Scope, what: T) {
        match scope {
            Scope::Job { job, generation } => {
                self.jobs.entry(job.clone()).or_default().insert(*generation, what);
            }
            Scope::Node { node } => drop(self.nodes.insert(node.clone(), what)),
        }
    }

    pub(crate) fn remove(&mut self, scope: ScopeRef<'_>) {
        match scope {
            ScopeRef::Job(job, generation) => {
                let Some(generations) = self.jobs.get_mut(job) else {
                    return;
                };
                generations.remove(&generation);
                if generations.is_empty() {
                    self.jobs.remove(job);
                }
            }
            ScopeRef::Node(node) => drop(self.nodes.remove(node)),
        }
    }
}
