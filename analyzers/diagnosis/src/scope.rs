//! Scopes: whose failure it is, owned or lent.

use std::hash::{Hash, Hasher};

use rankguard_model::{Generation, JobId, NodeId};
use serde::{Deserialize, Serialize};

/// Whose failure it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// As it is lent, so that what is found by a scope is found by one that is lent.
impl Hash for Scope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lend().hash(state);
    }
}

/// A scope whose names belong to somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

impl PartialEq<Scope> for ScopeRef<'_> {
    fn eq(&self, other: &Scope) -> bool {
        *self == other.lend()
    }
}
