//! Number of nodes without which the ranks of a job cannot restore its checkpoint.
//!
//! A tensor with other values on each rank is restored by as many ranks as have saved it, each its own part. Another number of
//! ranks refuses it, unless the program permits the part of the first rank (`replicate=` of the Python package). Such a job
//! is neither shrunk nor grown.

use rankguard_model::NodeRange;

use super::Job;
use crate::counted_nouns::count;

/// Number of ranks that alone can restore the checkpoint from which a job starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequiredSize {
    pub(crate) nodes: u32,
    ranks: u32,
    tensor: String,
    others: usize,
}

impl RequiredSize {
    /// Formats the requirement, its cause and the remedy.
    pub(crate) fn describe(&self) -> String {
        let ranks = count(self.ranks, "rank");
        let (tensors, verb) = match self.others {
            0 => (format!("tensor {}", self.tensor), "differs"),
            others => (format!("tensor {} and {others} more", self.tensor), "differ"),
        };
        format!(
            "its newest checkpoint can be restored by {ranks} only, because {tensors} {verb} from rank to rank; \
             restore(..., replicate=[...]) or rankguard.PerRank permits another number"
        )
    }
}

impl Job {
    /// Returns the size that the newest checkpoint requires; `None` if it permits any, or one that the job does not allow.
    pub(crate) fn required_size(&self) -> Option<RequiredSize> {
        let (checkpoint, tensors) = self.checkpoints.same_size_start()?;
        let (tensor, others) = tensors.split_first()?;
        let ranks = checkpoint.world_size;
        let per_node = self.spec.ranks_per_node;
        let nodes = ranks.checked_div(per_node).filter(|nodes| nodes * per_node == ranks)?;
        let range = self.spec.nodes;
        (range.min..=range.max).contains(&nodes).then(|| RequiredSize {
            nodes,
            ranks,
            tensor: tensor.clone(),
            others: others.len(),
        })
    }

    /// Returns the numbers of nodes on which the job can go on: those that it allows, or the one that its checkpoint requires.
    pub(crate) fn node_range(&self) -> NodeRange {
        let required = self.required_size();
        required.map_or(self.spec.nodes, |size| NodeRange {
            min: size.nodes,
            max: size.nodes,
        })
    }
}
