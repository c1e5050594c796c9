//! Copies of a checkpoint in the memory of nodes and the tolerated node losses, as the controller reports them.

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::placement::PlacementNode;
use rankguard_model::{CheckpointView, JobId, JobView, NodeId, StatusView};

use crate::args::{CommonArgs, ControllerAddress};
use crate::display_text;
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
        return vec!["copies in memory are unknown: the controller has no such job".to_owned()];
    };
    let is_it = |known: &&CheckpointView| (known.step, known.generation) == (id.step, id.generation);
    let Some(known) = view.checkpoints.iter().find(is_it) else {
        return vec!["copies in memory are unknown: the controller has no such checkpoint".to_owned()];
    };
    let Some(tiers) = view.spec.checkpoint.as_ref().map(|policy| &policy.tiers) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    if let Some(at) = known.mirrored_at {
        lines.push(format!("completely in the object store since {at}"));
    }
    if tiers.nodes == 0 && tiers.parity.is_none() {
        return lines;
    }
    if view.checkpoints.last().is_some_and(|newest| newest.step > known.step) {
        lines.push("no longer in memory: a newer checkpoint is committed".to_owned());
        return lines;
    }
    if known.generation != view.generation {
        lines.push(format!(
            "copies in memory are unknown: generation {}, which saved it, ran on other nodes",
            known.generation
        ));
        return lines;
    }
    if tiers.nodes > 0 {
        let copied = known.copied;
        let images = known.world_size;
        lines.push(format!(
            "{} of its {} in the memory of other nodes",
            display_text::count(copied as usize, "copy"),
            display_text::count(images as usize, "image")
        ));
    }
    if let Some(parity) = tiers.parity {
        let lanes = ParityLanes::plan(&members(status, view), parity);
        let kept = known.in_parity;
        let all = lanes.shares(view.spec.ranks_per_node);
        lines.push(if kept >= all {
            format!("all {all} parity shards are in memory")
        } else {
            format!("only {kept} of {all} parity shards are in memory; the following applies once all are")
        });
        lines.extend(lanes.sentences());
    }
    lines
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
