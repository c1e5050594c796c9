//! `rankguard cancel`.

use rankguard_model::JobId;

use crate::args::CancelArgs;
use crate::client::Client;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out;

pub(super) async fn run(args: &CancelArgs, client: &Client) -> Result<Exit, CliError> {
    client.cancel(&JobId::from(args.job.as_str())).await?;
    out::note(&format!("job {} is being stopped; its checkpoints stay", args.job));
    Ok(Exit::Fine)
}
