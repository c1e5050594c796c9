//! `rankguard controller`.

use super::{block_on, settings};
use crate::args::{CommonArgs, ControllerArgs};
use crate::config::Flag;
use crate::error::CliError;
use crate::exit::Exit;
use crate::signals::{Hangup, Stop};
use crate::{logging, out};

pub(super) fn run(args: &ControllerArgs, common: &CommonArgs) -> Result<Exit, CliError> {
    let config = settings(
        common,
        [
            Flag::of("controller.listen", "--listen", args.listen.as_deref()),
            Flag::of("controller.state_dir", "--state-dir", args.state_dir.as_deref()),
            Flag::of(
                "controller.silence_limit_ms",
                "--silence-limit-ms",
                args.silence_limit_ms.as_deref(),
            ),
        ],
    )?;
    logging::start(&config);
    let mut settings = config.controller();
    settings.policy.replay_only = args.replay_only;
    block_on(serve(settings))?
}

async fn serve(settings: rankguard_controller::Settings) -> Result<Exit, CliError> {
    let failed = |problem: Box<dyn std::error::Error + Send + Sync>| {
        CliError::failure(
            "the controller cannot run",
            "agents and ranks go on without it; start it again with the same --state-dir and it takes over from its journal",
        )
        .because(problem)
    };
    let mut stop = Stop::catch().map_err(|problem| failed(problem.into()))?;
    let mut hangup = Hangup::catch().map_err(|problem| failed(problem.into()))?;
    let catalogue = settings.catalogue.clone();
    let ended = rankguard_controller::run(settings, async move {
        let signal = loop {
            tokio::select! {
                signal = stop.wait() => break signal,
                () = hangup.wait() => catalogue.reload(),
            }
        };
        tracing::info!(signal, "the controller shuts down");
    })
    .await
    .map_err(|problem| failed(problem.into()))?;
    out::note(&format!(
        "the controller on {} has ended; {} events are in its journal",
        ended.address, ended.events
    ));
    Ok(Exit::Fine)
}
