//! `rankguard agent`: runs the agent of this node until SIGINT or SIGTERM; SIGHUP reloads the catalogue and identity
//! files.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rankguard_agent::CatalogueHandle;

use super::agent_enrol::AgentEnrolArgs;
use super::local::AgentStatusArgs;
use super::{agent_enrol, gpu_calls, local};
use crate::args::CommonArgs;
use crate::config::FlagValue;
use crate::display_text::count;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::runtime::{block_on, reload_identity};
use crate::signals::{HangupSignal, StopSignals};
use crate::{logging, out};

/// Options of `agent`. Each flag except `--simulate` is a setting of the same name in `[agent]`; `--job-log` sets
/// `job_logs`.
#[derive(Debug, Clone, Default, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) action: Option<AgentAction>,
    /// Name of this node [default: the host name]
    #[arg(long)]
    pub(crate) node: Option<String>,
    /// Address at which other nodes reach this one
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Address of the controller
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) controller: Option<String>,
    /// State directory of the agent; must not be shared with another agent
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Maximum number of ranks on this node
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<String>,
    /// Failure domain of this node (rack, switch, power feed)
    #[arg(long, value_name = "NAME")]
    pub(crate) failure_domain: Option<String>,
    /// Address to serve chunks to other agents; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) peer_listen: Option<String>,
    /// Address to serve Prometheus metrics; port 0 selects a free port [default: disabled]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics_listen: Option<String>,
    /// Kernel log: `/dev/kmsg`, a file to which kernel lines are appended, or `off`
    #[arg(long, value_name = "SOURCE")]
    pub(crate) kernel_log: Option<String>,
    /// Additional log file to follow besides the output of the ranks; may be repeated
    #[arg(long = "job-log", value_name = "FILE")]
    pub(crate) job_logs: Vec<String>,
    /// Root of the sysfs tree
    #[arg(long, value_name = "DIR")]
    pub(crate) sysfs_root: Option<PathBuf>,
    /// Root of the procfs tree
    #[arg(long, value_name = "DIR")]
    pub(crate) proc_root: Option<PathBuf>,
    /// Path of the GPU management library (NVML)
    #[arg(long, value_name = "FILE")]
    pub(crate) nvml_library: Option<PathBuf>,
    /// Watch simulated GPUs that play this scenario; all evidence about them is marked synthetic
    #[arg(long, value_name = "SCENARIO")]
    pub(crate) simulate: Option<PathBuf>,
    /// User that ranks run as, by name or number [default: the agent's user]
    #[arg(long, value_name = "USER")]
    pub(crate) rank_user: Option<String>,
    /// Allow `rankguard inject` to inject faults on this node
    #[arg(long)]
    pub(crate) injection: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum AgentAction {
    /// Show the state of this node's agent, without a controller
    Status(AgentStatusArgs),
    /// Obtain the certificate of this node with a join token
    Enrol(AgentEnrolArgs),
}

/// Runs the agent, or prints its state if `status` is given. Returns an error if the settings are invalid or the agent
/// cannot run, and the finding exit if ranks are still running after the shutdown.
pub(crate) fn run(args: &AgentArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    match &args.action {
        Some(AgentAction::Status(args)) => return local::status(args, common),
        Some(AgentAction::Enrol(args)) => return agent_enrol::run(args, common),
        None => {}
    }
    let logs = (!args.job_logs.is_empty()).then(|| args.job_logs.join(":"));
    let config = common.settings([
        FlagValue::of("agent.node", "--node", args.node.as_deref()),
        FlagValue::of("agent.host", "--host", args.host.as_deref()),
        FlagValue::of("agent.controller", "--controller", args.controller.as_deref()),
        FlagValue::of("agent.state_dir", "--state-dir", args.state_dir.as_deref()),
        FlagValue::of("agent.slots", "--slots", args.slots.as_deref()),
        FlagValue::of(
            "agent.failure_domain",
            "--failure-domain",
            args.failure_domain.as_deref(),
        ),
        FlagValue::of("agent.peer_listen", "--peer-listen", args.peer_listen.as_deref()),
        FlagValue::of(
            "agent.metrics_listen",
            "--metrics-listen",
            args.metrics_listen.as_deref(),
        ),
        FlagValue::of("agent.kernel_log", "--kernel-log", args.kernel_log.as_deref()),
        FlagValue::of("agent.job_logs", "--job-log", logs),
        FlagValue::of("agent.sysfs_root", "--sysfs-root", args.sysfs_root.as_deref()),
        FlagValue::of("agent.proc_root", "--proc-root", args.proc_root.as_deref()),
        FlagValue::of("agent.nvml_library", "--nvml-library", args.nvml_library.as_deref()),
        FlagValue::of("agent.rank_user", "--rank-user", args.rank_user.as_deref()),
        FlagValue::of("agent.injection", "--injection", args.injection.then_some("true")),
    ])?;
    logging::start(&config);
    rankguard_agent::restrict_process();
    let mut settings = config.agent();
    rankguard_agent::share_heap();
    gpu_calls::prepare(&mut settings, args.simulate.as_deref())?;
    block_on(async {
        agent_enrol::enrol_at_start(&config).await?;
        serve(settings).await
    })?
}

/// Runs the agent until a stop signal, and prints how many ranks it ended and how much evidence is not acknowledged.
async fn serve(settings: rankguard_agent::AgentSettings) -> Result<CommandExit, CliError> {
    let failed = |problem: Box<dyn std::error::Error + Send + Sync>| {
        CliError::failure(
            "cannot run the agent",
            "`rankguard config check` lists mistakes, `rankguard config show` the source of each setting",
        )
        .because(problem)
    };
    let mut stop = StopSignals::catch().map_err(|problem| failed(problem.into()))?;
    let mut hangup = HangupSignal::catch().map_err(|problem| failed(problem.into()))?;
    let knowledge = settings.knowledge.clone();
    let network = settings.network.clone();
    let ended = rankguard_agent::run(settings, async move {
        let signal = loop {
            tokio::select! {
                signal = stop.wait() => break signal,
                () = hangup.wait() => {
                    reload(knowledge.clone()).await;
                    reload_identity(network.clone()).await;
                }
            }
        };
        tracing::info!(signal, "the agent shuts down");
    })
    .await
    .map_err(|problem| failed(problem.into()))?;
    out::note(&format!(
        "the agent has ended, with {}; {} for its next start",
        count(ended.ranks_ended, "rank"),
        count(
            usize::try_from(ended.unacknowledged).unwrap_or(usize::MAX),
            "stored evidence record"
        )
    ));
    for left in &ended.left_behind {
        out::note(&format!("still running: {left}"));
    }
    Ok(if ended.left_behind.is_empty() {
        CommandExit::Fine
    } else {
        CommandExit::Finding
    })
}

/// Reloads the catalogue files. If one of them cannot be used, the error is logged and the current catalogue remains in
/// use.
async fn reload(knowledge: CatalogueHandle) {
    match tokio::task::spawn_blocking(move || knowledge.reload()).await {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => {
            tracing::error!("cannot use the catalogue files; the previous catalogue stays in use:\n{problem}");
        }
        Err(problem) => tracing::error!(%problem, "cannot reload the catalogue files"),
    }
}
