//! `rankguard cancel`.

use clap::Args;
use rankguard_model::JobId;

use crate::args::ControllerAddress;
use crate::client::Client;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out;

/// `cancel`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CancelArgs {
    /// Name of the job
    pub(crate) job: String,
    /// Where the controller is.
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
}

pub(crate) async fn run(args: &CancelArgs, client: &Client) -> Result<Exit, CliError> {
    client.cancel(&JobId::from(args.job.as_str())).await?;
    out::note(&format!("job {} is being stopped; its checkpoints stay", args.job));
    Ok(Exit::Fine)
}
