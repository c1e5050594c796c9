//! `rankguard controller`.

use std::path::PathBuf;

use clap::Args;
use rankguard_controller::journal::JournalError;
use rankguard_controller::{ControllerError, NotifyReload};

use crate::args::CommonArgs;
use crate::config::FlagValue;
use crate::display_text;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::runtime::{block_on, reload_identity};
use crate::signals::{HangupSignal, StopSignals};
use crate::{logging, out};

/// Advice for a journal that a further start cannot read either.
const DAMAGED_HINT: &str = "agents and ranks continue without it, and a further start fails in the same way: restore the \
                            journal from a backup, or move it away and submit each job again with `rankguard run \
                            --resume-from NAME` and its own name";

/// Options of `controller`. Each flag except `--replay-only` is a setting of the same name in `[controller]`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ControllerArgs {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Directory of the controller's journal
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Silence after which a node counts as lost, milliseconds
    #[arg(long, value_name = "MS")]
    pub(crate) silence_limit_ms: Option<String>,
    /// Accept recorded evidence only (`rankguard replay --into`): no live agents, no jobs, and every case is marked
    #[arg(long)]
    pub(crate) replay_only: bool,
}

impl ControllerArgs {
    /// Returns the flags as settings.
    fn flags(&self) -> [Option<FlagValue>; 3] {
        [
            FlagValue::of("controller.listen", "--listen", self.listen.as_deref()),
            FlagValue::of("controller.state_dir", "--state-dir", self.state_dir.as_deref()),
            FlagValue::of(
                "controller.silence_limit_ms",
                "--silence-limit-ms",
                self.silence_limit_ms.as_deref(),
            ),
        ]
    }

    /// Reads the configuration again and hands its receivers over to the running controller; a configuration with a mistake
    /// changes nothing.
    fn reload_receivers(&self, common: &CommonArgs, reload: &NotifyReload) {
        let loaded = common.load(self.flags()).and_then(|config| {
            config.check_receivers()?;
            Ok(config.controller().notify)
        });
        match loaded {
            Ok(notify) => reload.replace(notify),
            Err(mistakes) => reload.refuse(mistakes.to_string().replace('\n', "; ")),
        }
    }
}

pub(crate) fn run(args: &ControllerArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let config = common.settings(args.flags())?;
    logging::start(&config);
    rankguard_agent::restrict_process();
    let mut settings = config.controller();
    settings.policy.replay_only = args.replay_only;
    block_on(serve(settings, args, common))?
}

async fn serve(
    settings: rankguard_controller::Settings,
    args: &ControllerArgs,
    common: &CommonArgs,
) -> Result<CommandExit, CliError> {
    let failed = |problem: Box<dyn std::error::Error + Send + Sync>| {
        CliError::failure(
            "cannot run the controller",
            "agents and ranks continue without it; start it again with the same --state-dir to continue from its journal",
        )
        .because(problem)
    };
    let mut stop = StopSignals::catch().map_err(|problem| failed(problem.into()))?;
    let mut hangup = HangupSignal::catch().map_err(|problem| failed(problem.into()))?;
    let catalogue = settings.catalogue.clone();
    let network = settings.network.clone();
    let receivers = settings.notify_reload.clone();
    let ended = rankguard_controller::run(settings, async move {
        let signal = loop {
            tokio::select! {
                signal = stop.wait() => break signal,
                () = hangup.wait() => {
                    catalogue.reload();
                    args.reload_receivers(common, &receivers);
                    reload_identity(network.clone()).await;
                }
            }
        };
        tracing::info!(signal, "the controller shuts down");
    })
    .await
    .map_err(|problem| {
        let needs_other_dir = matches!(
            &problem,
            ControllerError::Journal(JournalError::InUse { .. })
                | ControllerError::SharedDir { .. }
                | ControllerError::ReplayJournal { .. }
        );
        if needs_other_dir {
            let hint = "set --state-dir to a directory that no other process uses";
            return CliError::failure("cannot run the controller", hint).because(problem);
        }
        if matches!(&problem, ControllerError::Journal(journal) if journal.is_damage()) {
            return CliError::failure("cannot run the controller", DAMAGED_HINT).because(problem);
        }
        failed(problem.into())
    })?;
    out::note(&format!(
        "the controller on {} has ended with {} in its journal",
        ended.address,
        display_text::count(usize::try_from(ended.events).unwrap_or(usize::MAX), "event")
    ));
    Ok(CommandExit::Fine)
}
