//! Plans: the wanted state of one job.

use std::collections::BTreeSet;

use rankguard_model::{CaseId, Generation, JobId, NodeId, PlanId, Rank, RankPlacement, RecoveryChoice, Timestamp};
use serde::{Deserialize, Serialize};

use crate::counted_nouns::count;

/// Kind of change from one plan to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanKind {
    /// First generation of the job.
    Start,
    /// Same nodes as before.
    RestartInPlace,
    /// Same number of nodes, some of them replaced.
    SwapSpare,
    /// Fewer nodes than before.
    Shrink,
    /// More nodes than before.
    Grow,
}

impl PlanKind {
    /// Classifies a change of nodes.
    pub fn of(before: &[NodeId], after: &[NodeId]) -> Self {
        let known: BTreeSet<&NodeId> = after.iter().collect();
        match after.len().cmp(&before.len()) {
            _ if before.is_empty() => Self::Start,
            std::cmp::Ordering::Less => Self::Shrink,
            std::cmp::Ordering::Greater => Self::Grow,
            std::cmp::Ordering::Equal if before.iter().all(|node| known.contains(node)) => Self::RestartInPlace,
            std::cmp::Ordering::Equal => Self::SwapSpare,
        }
    }

    /// Returns the kind in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::RestartInPlace => "restart in place",
            Self::SwapSpare => "swap in a spare",
            Self::Shrink => "shrink",
            Self::Grow => "grow",
        }
    }
}

/// Wanted state of one job. Immutable; a later plan refers to it as its parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub id: PlanId,
    /// Plan that it replaces.
    pub parent: Option<PlanId>,
    pub job: JobId,
    /// Generation that the plan starts.
    pub generation: Generation,
    /// Controller start in which the plan was made; 0 if unknown. A generation is identified by its number and this id.
    pub life: u64,
    pub kind: PlanKind,
    /// Nodes in group order.
    pub nodes: Vec<NodeId>,
    pub ranks_per_node: u32,
    /// Case that caused the plan.
    pub case: Option<CaseId>,
    /// Reasons, one sentence each.
    pub reasons: Vec<String>,
    /// Options that were compared; absent for a plan without a failure, and in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<RecoveryChoice>,
    pub made_at: Timestamp,
}

impl Plan {
    /// Returns the number of ranks in the job.
    pub fn world_size(&self) -> u32 {
        u32::try_from(self.nodes.len())
            .unwrap_or(u32::MAX)
            .saturating_mul(self.ranks_per_node)
    }

    /// Returns the place of every rank: ranks are numbered node by node.
    pub fn placements(&self) -> Vec<RankPlacement> {
        let mut rank = 0..;
        self.nodes
            .iter()
            .flat_map(|node| (0..self.ranks_per_node).map(move |local_rank| (node, local_rank)))
            .zip(&mut rank)
            .map(|((node, local_rank), rank)| RankPlacement {
                rank: Rank(rank),
                local_rank,
                node: node.clone(),
            })
            .collect()
    }

    /// Returns the node of a rank: ranks are numbered node by node.
    pub fn node_of(&self, rank: Rank) -> Option<&NodeId> {
        let position = rank.0.checked_div(self.ranks_per_node)?;
        self.nodes.get(usize::try_from(position).ok()?)
    }

    /// Formats the plan as a sentence.
    pub fn describe(&self) -> String {
        let nodes: Vec<&str> = self.nodes.iter().map(NodeId::as_str).collect();
        format!(
            "{}: generation {} with {} on {}",
            self.kind.describe(),
            self.generation,
            count(self.world_size(), "rank"),
            nodes.join(", ")
        )
    }
}
