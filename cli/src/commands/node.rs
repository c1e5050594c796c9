//! `rankguard node cordon|uncordon`.

use clap::{Args, Subcommand};
use rankguard_model::NodeId;

use crate::args::{CommonArgs, ControllerAddress};
use crate::error::CliError;
use crate::exit::Exit;
use crate::out;
use crate::runtime::block_on;

/// `node`.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub(crate) action: NodeAction,
}

/// `node ...`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NodeAction {
    /// Place nothing new on a node
    Cordon {
        /// Name of the node
        node: String,
        /// Why, for those who come after you
        #[arg(long, default_value = "cordoned by hand")]
        reason: String,
        /// Where the controller is.
        #[command(flatten)]
        address: ControllerAddress,
    },
    /// Use a node again
    Uncordon {
        /// Name of the node
        node: String,
        /// Where the controller is.
        #[command(flatten)]
        address: ControllerAddress,
    },
}

pub(crate) fn run(args: NodeArgs, common: &CommonArgs) -> Result<Exit, CliError> {
    match args.action {
        NodeAction::Cordon { node, reason, address } => {
            let client = address.client(common)?;
            block_on(client.cordon(&NodeId::from(node.as_str()), &reason))??;
            out::note(&format!("nothing new is placed on {node}; ranks that run there go on"));
        }
        NodeAction::Uncordon { node, address } => {
            let client = address.client(common)?;
            block_on(client.uncordon(&NodeId::from(node.as_str())))??;
            out::note(&format!("{node} may be used again"));
        }
    }
    Ok(Exit::Fine)
}
