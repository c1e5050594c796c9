//! Copies of a checkpoint in the memory of nodes and the tolerated node losses, as the controller reports them.

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::placement::PlacementNode;
use rankguard_model::{CheckpointView, JobId, JobView, NodeId, StatusView};

use crate::args::{CommonArgs, ControllerAddress};
use crate::error::CliError;
use crate::parity::ParityLanes;
use crate::runtime::block_on;

/// Fetches the controller's status; `None` without `--controller`.
pub(super) fn controller_status(
    address: &ControllerAddress,
    common: &CommonArgs,
) -> Result<Option<StatusView>, CliError> {
    if address.controller.is_none() {
        return Ok(None);
    }
    let client = address.client(common)?;
    Ok(Some(block_on(client.status())??))
}

/// Describes the copies in memory, one sentence each; empty if the job has no memory tier.
pub(super) fn memory_lines(status: &StatusView, job: &JobId, id: CheckpointId) -> Vec<String> {
    let Some(view) = status.jobs.iter().find(|view| view.spec.id == *job) else {
        return vec!["the controller does not know this job: nothing is said of memory".to_owned()];
    };
    let is_it = |known: &&CheckpointView| (known.step, known.generation) == (id.step, id.generation);
    let Some(known) = view.checkpoints.iter().find(is_it) else {
        return vec!["the controller does not know this checkpoint: nothing is said of memory".to_owned()];
    };
    let Some(tiers) = view.spec.checkpoint.as_ref().map(|policy| &policy.tiers) else {
        return Vec::new();
    };
    let mut said = Vec::new();
    if let Some(at) = known.mirrored_at {
        said.push(format!("all of it has been in the object store since {at}"));
    }
    if tiers.nodes == 0 && tiers.parity.is_none() {
        return said;
    }
    if view.checkpoints.last().is_some_and(|newest| newest.step > known.step) {
        said.push("memory has let go of it: a newer checkpoint is committed".to_owned());
        return said;
    }
    if known.generation != view.generation {
        said.push(format!(
            "it was made by generation {}, whose nodes are not those of today: what memory has of it is not known",
            known.generation
        ));
        return said;
    }
    if tiers.nodes > 0 {
        let copied = known.copied;
        let images = known.world_size;
        said.push(format!(
            "{copied} copies of its {images} images are in the memory of other nodes"
        ));
    }
    if let Some(parity) = tiers.parity {
        let lanes = ParityLanes::plan(&members(status, view), parity);
        let kept = known.in_parity;
        let all = lanes.shares(view.spec.ranks_per_node);
        said.push(if kept >= all {
            format!("all {all} shares of its parity are kept")
        } else {
            format!("only {kept} of {all} shares of its parity are kept: what follows holds once all are")
        });
        said.extend(lanes.sentences());
    }
    said
}

/// Returns the nodes of a job with the failure domains that its agents plan with.
fn members(status: &StatusView, job: &JobView) -> Vec<PlacementNode> {
    let mut nodes: Vec<&NodeId> = job.placements.iter().map(|place| &place.node).collect();
    nodes.dedup();
    let member = |node: &NodeId| {
        let known = status.nodes.iter().find(|view| view.node == *node);
        let domain = known.map(|view| view.failure_domain.clone());
        PlacementNode {
            node: node.clone(),
            domains: domain.filter(|domain| !domain.is_empty()).into_iter().collect(),
        }
    };
    nodes.into_iter().map(member).collect()
}
