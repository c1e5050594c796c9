//! `rankguard node cordon|uncordon`.

use rankguard_model::NodeId;

use super::{block_on, client};
use crate::args::{CommonArgs, NodeAction, NodeArgs};
use crate::error::CliError;
use crate::exit::Exit;
use crate::out;

pub(super) fn run(args: NodeArgs, common: &CommonArgs) -> Result<Exit, CliError> {
    match args.action {
        NodeAction::Cordon { node, reason, address } => {
            let client = client(&address, common)?;
            block_on(client.cordon(&NodeId::from(node.as_str()), &reason))??;
            out::note(&format!("nothing new is placed on {node}; ranks that run there go on"));
        }
        NodeAction::Uncordon { node, address } => {
            let client = client(&address, common)?;
            block_on(client.uncordon(&NodeId::from(node.as_str())))??;
            out::note(&format!("{node} may be used again"));
        }
    }
    Ok(Exit::Fine)
}
