//! Scopes: the job generation or node to which a failure belongs, owned or borrowed.

use std::hash::{Hash, Hasher};

use rankguard_model::{Generation, JobId, NodeId};
use serde::{Deserialize, Serialize};

/// Scope of a failure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Scope {
    /// Failure of one generation of a job.
    Job { job: JobId, generation: Generation },
    /// Failure of a node on which no job runs.
    Node { node: NodeId },
}

impl Scope {
    /// Returns the affected job, if any.
    pub fn job(&self) -> Option<&JobId> {
        match self {
            Self::Job { job, .. } => Some(job),
            Self::Node { .. } => None,
        }
    }

    /// Returns the generation of the job.
    pub fn generation(&self) -> Option<Generation> {
        match self {
            Self::Job { generation, .. } => Some(*generation),
            Self::Node { .. } => None,
        }
    }

    /// Returns the scope with borrowed names.
    pub(crate) fn lend(&self) -> ScopeRef<'_> {
        match self {
            Self::Job { job, generation } => ScopeRef::Job(job, *generation),
            Self::Node { node } => ScopeRef::Node(node),
        }
    }
}

/// Hashes the borrowed form, so that maps keyed by a scope can be queried with a borrowed one.
impl Hash for Scope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lend().hash(state);
    }
}

/// Scope with borrowed names.
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
