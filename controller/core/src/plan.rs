//! Plans: the wanted state of one job.

use rankguard_model::{CaseId, Generation, JobId, NodeId, Placement, PlanId, Rank, Timestamp};
use serde::{Deserialize, Serialize};

/// What kind of change a plan makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanKind {
    /// The first generation.
    Start,
    /// The same nodes again.
    RestartInPlace,
    /// As many nodes as before, some of them others.
    SwapSpare,
    /// Fewer nodes than before.
    Shrink,
    /// More nodes than before.
    Grow,
}

impl PlanKind {
    /// What a change of nodes amounts to.
    pub fn of(before: &[NodeId], after: &[NodeId]) -> Self {
        match after.len().cmp(&before.len()) {
            _ if before.is_empty() => Self::Start,
            std::cmp::Ordering::Less => Self::Shrink,
            std::cmp::Ordering::Greater => Self::Grow,
            std::cmp::Ordering::Equal if before.iter().all(|node| after.contains(node)) => Self::RestartInPlace,
            std::cmp::Ordering::Equal => Self::SwapSpare,
        }
    }

    /// As words.
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

/// A wanted state of one job. Never changed; a better one has it as its parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its number.
    pub id: PlanId,
    /// The plan it replaces.
    pub parent: Option<PlanId>,
    /// The job.
    pub job: JobId,
    /// The generation it brings.
    pub generation: Generation,
    /// The start of the controller in which it was made; 0 where it is not known. A generation is known by its number and
    /// this.
    pub life: u64,
    /// What kind of change it is.
    pub kind: PlanKind,
    /// Its nodes, in group order.
    pub nodes: Vec<NodeId>,
    /// Ranks on each node.
    pub ranks_per_node: u32,
    /// The case that asked for it.
    pub case: Option<CaseId>,
    /// Why, one sentence each.
    pub reasons: Vec<String>,
    /// When it was made.
    pub made_at: Timestamp,
}

impl Plan {
    /// Ranks in the job.
    pub fn world_size(&self) -> u32 {
        u32::try_from(self.nodes.len())
            .unwrap_or(u32::MAX)
            .saturating_mul(self.ranks_per_node)
    }

    /// Every rank's place: ranks are numbered node by node.
    pub fn placements(&self) -> Vec<Placement> {
        let mut rank = 0..;
        self.nodes
            .iter()
            .flat_map(|node| (0..self.ranks_per_node).map(move |local_rank| (node, local_rank)))
            .zip(&mut rank)
            .map(|((node, local_rank), rank)| Placement {
                rank: Rank(rank),
                local_rank,
                node: node.clone(),
            })
            .collect()
    }

    /// The node that a rank is placed on: ranks are numbered node by node.
    pub fn node_of(&self, rank: Rank) -> Option<&NodeId> {
        let position = rank.0.checked_div(self.ranks_per_node)?;
        self.nodes.get(usize::try_from(position).ok()?)
    }

    /// As a sentence.
    pub fn describe(&self) -> String {
        let nodes: Vec<&str> = self.nodes.iter().map(NodeId::as_str).collect();
        format!(
            "{}: generation {} with {} ranks on {}",
            self.kind.describe(),
            self.generation,
            self.world_size(),
            nodes.join(", ")
        )
    }
}
