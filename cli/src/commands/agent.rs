//! `rankguard agent`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rankguard_agent::Knowledge;

use super::local::AgentStatusArgs;
use super::{gpu_calls, local};
use crate::args::CommonArgs;
use crate::config::Flag;
use crate::error::CliError;
use crate::exit::Exit;
use crate::runtime::{block_on, reload_identity};
use crate::signals::{Hangup, Stop};
use crate::{logging, out};

/// `agent`. Each flag is a setting of the same name in `[agent]`.
#[derive(Debug, Clone, Default, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentArgs {
    /// What to do instead of running the agent.
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
    /// Directory of the agent's own files; one agent a directory
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Ranks this node can run at once
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<String>,
    /// What fails together with this node (rack, switch, power feed)
    #[arg(long, value_name = "NAME")]
    pub(crate) failure_domain: Option<String>,
    /// Where to serve chunks to other agents; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) peer_listen: Option<String>,
    /// Where to serve numbers for Prometheus; port 0 takes a free one [default: nowhere]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics_listen: Option<String>,
    /// `/dev/kmsg`, a file that kernel lines are appended to, or `off`
    #[arg(long, value_name = "SOURCE")]
    pub(crate) kernel_log: Option<String>,
    /// A log file to follow besides the output of the ranks; may be repeated
    #[arg(long = "job-log", value_name = "FILE")]
    pub(crate) job_logs: Vec<String>,
    /// The sysfs tree
    #[arg(long, value_name = "DIR")]
    pub(crate) sysfs_root: Option<PathBuf>,
    /// The procfs tree
    #[arg(long, value_name = "DIR")]
    pub(crate) proc_root: Option<PathBuf>,
    /// The GPU management library
    #[arg(long, value_name = "FILE")]
    pub(crate) nvml_library: Option<PathBuf>,
    /// Watch made-up GPUs that play this scenario; all that is found about them is marked synthetic
    #[arg(long, value_name = "SCENARIO")]
    pub(crate) simulate: Option<PathBuf>,
    /// User that ranks run as, by name or number [default: the agent's own]
    #[arg(long, value_name = "USER")]
    pub(crate) rank_user: Option<String>,
    /// Let `rankguard inject` make faults happen here
    #[arg(long)]
    pub(crate) injection: bool,
}

/// `agent ...`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum AgentAction {
    /// Ask the agent of this node what it knows, without a controller
    Status(AgentStatusArgs),
}

pub(crate) fn run(args: &AgentArgs, common: &CommonArgs) -> Result<Exit, CliError> {
    if let Some(AgentAction::Status(args)) = &args.action {
        return local::status(args, common);
    }
    let logs = (!args.job_logs.is_empty()).then(|| args.job_logs.join(":"));
    let config = common.settings([
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
        Flag::of("agent.rank_user", "--rank-user", args.rank_user.as_deref()),
        Flag::of("agent.injection", "--injection", args.injection.then_some("true")),
    ])?;
    logging::start(&config);
    rankguard_agent::restrict_process();
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
    let (knowledge, network) = (settings.knowledge.clone(), settings.network.clone());
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
