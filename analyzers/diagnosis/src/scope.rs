//! Scopes: the job generation or node to which a failure belongs, owned or borrowed.

use std::hash::{Hash, Hasher};

use rankguard_model::{Generation, JobId, NodeId};
use serde::{Deserialize, Serialize};

/// Scope of a failure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DraftScope {
    /// Failure of one generation of a job.
    Job { job: JobId, generation: Generation },
    /// Failure of a node on which no job runs.
    Node { node: NodeId },
}

impl DraftScope {
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
impl Hash for DraftScope {
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
    pub(crate) fn own(self) -> DraftScope {
        match self {
            Self::Job(job, generation) => DraftScope::Job {
                job: job.clone(),
                generation,
            },
            Self::Node(node) => DraftScope::Node { node: node.clone() },
        }
    }
}

impl PartialEq<DraftScope> for ScopeRef<'_> {
    fn eq(&self, other: &DraftScope) -> bool {
        *self == other.lend()
    }
}
