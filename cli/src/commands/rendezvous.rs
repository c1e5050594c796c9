//! `rankguard rendezvous join`: connection of one torchrun process to the rendezvous of the controller. The Python package
//! starts it; the protocol is JSON lines, inputs on standard input and events on standard output.

mod lines;
mod member;
mod stream;

use clap::{Args, Subcommand};

use crate::args::{CommonArgs, ControllerAddress};
use crate::config::FlagValue;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::runtime::block_on;

use lines::{InputReader, MemberInput};
use member::TorchrunMember;

#[derive(Debug, Clone, Args)]
pub(crate) struct RendezvousArgs {
    #[command(subcommand)]
    command: RendezvousCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum RendezvousCommand {
    /// Take part in a run of torchrun until standard input ends
    Join(JoinArgs),
}

#[derive(Debug, Clone, Args)]
struct JoinArgs {
    #[command(flatten)]
    address: ControllerAddress,
}

pub(crate) fn run(args: &RendezvousArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let RendezvousCommand::Join(args) = &args.command;
    let flag = FlagValue::of("client.controller", "--controller", args.address.controller.as_deref());
    let config = common.settings([flag])?;
    let node = config.node_name();
    let mut inputs = InputReader::start();
    block_on(async {
        let Some(MemberInput::Join(join)) = inputs.next().await else {
            return Err(CliError::usage(
                "standard input does not begin with a `join` line",
                "this command is started by `torchrun --rdzv-backend=rankguard`; docs/torchrun.md describes its lines",
            ));
        };
        let member = TorchrunMember::new(*join, &node);
        stream::run(member, &config.client_address(), &config.network(), inputs).await
    })?
}
