//! `rankguard agent`.

use rankguard_agent::Knowledge;

use super::{block_on, gpu_calls, local, settings};
use crate::args::{AgentAction, AgentArgs, CommonArgs};
use crate::config::Flag;
use crate::error::CliError;
use crate::exit::Exit;
use crate::signals::{Hangup, Stop};
use crate::{logging, out};

pub(super) fn run(args: &AgentArgs, common: &CommonArgs) -> Result<Exit, CliError> {
    if let Some(AgentAction::Status(args)) = &args.action {
        return local::status(args, common);
    }
    let logs = (!args.job_logs.is_empty()).then(|| args.job_logs.join(":"));
    let config = settings(
        common,
        [
            Flag::of("agent.node", "--node", args.node.as_deref()),
            Flag::of("agent.host", "--host", args.host.as_deref()),
            Flag::of("agent.controller", "--controller", args.controller.as_deref()),
            Flag::of("agent.state_dir", "--state-dir", args.state_dir.as_deref()),
            Flag::of("agent.slots", "--slots", args.slots.as_deref()),
            Flag::of(
                "agent.failure_domain",
                "--failure-domain",
                args.failure_domain.as_deref(),
            ),
            Flag::of("agent.peer_listen", "--peer-listen", args.peer_listen.as_deref()),
            Flag::of(
                "agent.metrics_listen",
                "--metrics-listen",
                args.metrics_listen.as_deref(),
            ),
            Flag::of("agent.kernel_log", "--kernel-log", args.kernel_log.as_deref()),
            Flag::of("agent.job_logs", "--job-log", logs),
            Flag::of("agent.sysfs_root", "--sysfs-root", args.sysfs_root.as_deref()),
            Flag::of("agent.proc_root", "--proc-root", args.proc_root.as_deref()),
            Flag::of("agent.nvml_library", "--nvml-library", args.nvml_library.as_deref()),
            Flag::of("agent.injection", "--injection", args.injection.then_some("true")),
        ],
    )?;
    logging::start(&config);
    let mut settings = config.agent();
    rankguard_agent::share_heap();
    gpu_calls::prepare(&mut settings, args.simulate.as_deref())?;
    block_on(serve(settings))?
}

async fn serve(settings: rankguard_agent::Settings) -> Result<Exit, CliError> {
    let failed = |problem: Box<dyn std::error::Error + Send + Sync>| {
        CliError::failure(
            "the agent cannot run",
            "`rankguard config show` says where each setting comes from",
        )
        .because(problem)
    };
    let mut stop = Stop::catch().map_err(|problem| failed(problem.into()))?;
    let mut hangup = Hangup::catch().map_err(|problem| failed(problem.into()))?;
    let knowledge = settings.knowledge.clone();
    let ended = rankguard_agent::run(settings, async move {
        let signal = loop {
            tokio::select! {
                signal = stop.wait() => break signal,
                () = hangup.wait() => reload(knowledge.clone()).await,
            }
        };
        tracing::info!(signal, "the agent shuts down");
    })
    .await
    .map_err(|problem| failed(problem.into()))?;
    out::note(&format!(
        "the agent has ended; {} ranks were ended with it, {} pieces of evidence wait for its next start",
        ended.ranks_ended, ended.unacknowledged
    ));
    for left in &ended.left_behind {
        out::note(&format!("left behind: {left}"));
    }
    Ok(if ended.left_behind.is_empty() {
        Exit::Fine
    } else {
        Exit::Finding
    })
}

/// Reads the catalogue again. Files that cannot be used are told of and change nothing.
async fn reload(knowledge: Knowledge) {
    match tokio::task::spawn_blocking(move || knowledge.reload()).await {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => {
            tracing::error!("the catalogue files cannot be used and the one before stays in force:\n{problem}");
        }
        Err(problem) => tracing::error!(%problem, "the catalogue files could not be read again"),
    }
}
