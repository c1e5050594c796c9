//! `rankguard slurm exclude`.

use std::time::Duration;

use clap::Args;
use rankguard_model::{NodeState, NodeView};
use rankguard_slurm::host_list;

use super::{ScontrolArgs, scontrol_failure};
use crate::args::{CommonArgs, ControllerAddress};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;
use crate::runtime::block_on;

/// Maximum wait for `scontrol`.
const SCONTROL_LIMIT: Duration = Duration::from_secs(20);

/// Options of `slurm exclude`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExcludeArgs {
    #[command(flatten)]
    pub(crate) slurm: ScontrolArgs,
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
}

pub(crate) fn run(args: &ExcludeArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let client = args.address.client(common)?;
    let names = args.slurm.name_map()?;
    let scontrol = args.slurm.program(SCONTROL_LIMIT);
    block_on(async {
        let status = client.status().await?;
        let listing = scontrol.nodes().await.map_err(|problem| scontrol_failure(&problem))?;
        let slurm = listing.nodes.iter().map(|node| node.name.as_str());
        // `sbatch` refuses a list with a name that Slurm does not know.
        let pairs = names.pair(slurm, status.nodes.iter().map(|node| node.node.as_str()));
        let unused = |name: &&String| {
            let wanted = pairs.known.get(*name);
            let mut nodes = status.nodes.iter().filter(|node| !is_used(node));
            nodes.any(|node| Some(node.node.as_str()) == wanted.map(String::as_str))
        };
        let excluded: Vec<&str> = pairs.known.keys().filter(unused).map(String::as_str).collect();
        out::line(&host_list(excluded));
        Ok(CommandExit::Fine)
    })?
}

/// Returns true if Rankguard would place ranks on the node.
fn is_used(node: &NodeView) -> bool {
    node.state == NodeState::Healthy && node.faulty_in_use.is_none()
}
