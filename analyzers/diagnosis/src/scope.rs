//! Scopes: whose failure it is, owned or lent, and what is found by it.

use std::collections::BTreeMap;

use rankguard_model::{Folded, Generation, JobId, NodeId};
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
    jobs: BTreeMap<Folded<JobId>, BTreeMap<Generation, T>>,
    nodes: BTreeMap<Folded<NodeId>, T>,
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
            ScopeRef::Job(job, generation) => self.jobs.get(&Folded::of(job))?.get(&generation),
            ScopeRef::Node(node) => self.nodes.get(&Folded::of(node)),
        }
    }

    pub(crate) fn get_mut(&mut self, scope: ScopeRef<'_>) -> Option<&mut T> {
        match scope {
            ScopeRef::Job(job, generation) => self.jobs.get_mut(&Folded::of(job))?.get_mut(&generation),
            ScopeRef::Node(node) => self.nodes.get_mut(&Folded::of(node)),
        }
    }

    pub(crate) fn insert(&mut self, scope: &Scope, what: T) {
        match scope {
            Scope::Job { job, generation } => {
                let generations = self.jobs.entry(Folded::of(job)).or_default();
                generations.insert(*generation, what);
            }
            Scope::Node { node } => drop(self.nodes.insert(Folded::of(node), what)),
        }
    }

    pub(crate) fn remove(&mut self, scope: ScopeRef<'_>) {
        match scope {
            ScopeRef::Job(job, generation) => {
                let job = Folded::of(job);
                let Some(generations) = self.jobs.get_mut(&job) else {
                    return;
                };
                generations.remove(&generation);
                if generations.is_empty() {
                    self.jobs.remove(&job);
                }
            }
            ScopeRef::Node(node) => drop(self.nodes.remove(&Folded::of(node))),
        }
    }
}
