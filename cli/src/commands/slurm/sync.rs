//! `rankguard slurm sync`: reads both sides at an interval and carries out what is missing.
//!
//! The program has no state besides what it has already reported. Slurm has no conditional update: directly before a change
//! the node is read again, which leaves some milliseconds in which a person may act.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use rankguard_model::{NodeId, StatusView};
use rankguard_slurm::{
    NameMap, NodeAvailability, NodeLimit, NodeListing, NodePair, Scontrol, ScontrolError, SyncAction, SyncPlan,
    reconcile,
};
use tracing::{info, warn};

use super::{ScontrolArgs, controller_node, scontrol_failure};
use crate::args::{CommonArgs, ControllerAddress};
use crate::client::{ClientError, ControllerClient};
use crate::commands::scheduler_sides::{
    HeldBackNodes, ReportedExceptions, compare_until_signal, current_status, report_silence, shown,
};
use crate::config::FlagValue;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::runtime::block_on;
use crate::{logging, out};

/// Maximum wait for one call of `scontrol`.
const SCONTROL_LIMIT: Duration = Duration::from_secs(10);

/// Options of `slurm sync`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SyncArgs {
    /// Interval between two comparisons, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) interval: u64,
    /// Maximum number of nodes to drain in Slurm at a time, or share of the nodes of both sides: 8, 10%
    #[arg(long, value_name = "LIMIT", default_value_t = NodeLimit::DEFAULT)]
    pub(crate) max_drained: NodeLimit,
    /// Compare once, print what would be changed, and change nothing; exit code 1: there is something to change
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) slurm: ScontrolArgs,
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
}

pub(crate) fn run(args: &SyncArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let flag = FlagValue::of("client.controller", "--controller", args.address.controller.as_deref());
    let config = common.settings([flag])?;
    let mut sync = NodeSync {
        client: ControllerClient::new(&config.client_address(), config.network()).without_notes(),
        scontrol: args.slurm.program(SCONTROL_LIMIT),
        names: args.slurm.name_map()?,
        limit: args.max_drained,
        reported: ReportedFacts::default(),
    };
    if args.dry_run {
        return block_on(sync.print_plan())?;
    }
    logging::start(&config);
    block_on(sync.serve(Duration::from_secs(args.interval)))?
}

/// Both sides, and what was reported about them.
struct NodeSync {
    client: ControllerClient,
    scontrol: Scontrol,
    names: NameMap,
    limit: NodeLimit,
    reported: ReportedFacts,
}

/// Facts that are reported when they change.
#[derive(Default)]
struct ReportedFacts {
    slurm_problem: Option<String>,
    controller_problem: Option<String>,
    unreadable: BTreeSet<String>,
    exceptions: ReportedExceptions,
}

impl NodeSync {
    /// Compares the sides until a signal.
    async fn serve(&mut self, pause: Duration) -> Result<CommandExit, CliError> {
        let network = self.client.network().clone();
        info!(
            controller = self.client.address(),
            interval_s = pause.as_secs(),
            max_drained = %self.limit,
            "node states of Slurm and Rankguard are compared"
        );
        let signal = compare_until_signal(&network, pause, async || self.compare().await).await?;
        info!(signal, "the comparison ends; drains and cordons remain as they are");
        Ok(CommandExit::Fine)
    }

    /// Prints the actions of one comparison.
    async fn print_plan(&self) -> Result<CommandExit, CliError> {
        let status = self.client.status().await?;
        let listing = self
            .scontrol
            .nodes()
            .await
            .map_err(|problem| scontrol_failure(&problem))?;
        let (pairs, unpaired) = pairs(&self.names, &listing, &status);
        let plan = reconcile(&pairs, self.limit);
        for problem in &listing.problems {
            out::note(problem);
        }
        if !unpaired.is_empty() {
            out::note(&format!("nodes of one side only: {}", shown(&unpaired)));
        }
        if !plan.held_back.is_empty() {
            out::note(&held_back(&plan).to_string());
        }
        for action in &plan.actions {
            out::line(&action_text(action));
        }
        let is_done = plan.actions.is_empty() && plan.held_back.is_empty();
        Ok(if is_done {
            CommandExit::Fine
        } else {
            CommandExit::Finding
        })
    }

    /// Reads both sides and carries out what is missing. Without both answers nothing is changed.
    async fn compare(&mut self) {
        let (listing, status) = tokio::join!(self.scontrol.nodes(), self.client.status());
        let listing = listing.map_err(|problem| problem.to_string());
        let status = status.map_err(|problem| problem.to_string()).and_then(current_status);
        report_silence("Slurm", &mut self.reported.slurm_problem, listing.as_ref().err());
        report_silence(
            "the controller",
            &mut self.reported.controller_problem,
            status.as_ref().err(),
        );
        let (Ok(listing), Ok(status)) = (listing, status) else {
            return;
        };
        let (pairs, unpaired) = pairs(&self.names, &listing, &status);
        let plan = reconcile(&pairs, self.limit);
        self.report(listing.problems, unpaired, &plan);
        for action in &plan.actions {
            match self.apply(action).await {
                Ok(true) => info!("{}", done_text(action)),
                Ok(false) => {}
                Err(problem) => {
                    warn!(%problem, "not done: {}", action_text(action));
                    if problem.is_lasting() {
                        return;
                    }
                }
            }
        }
    }

    fn report(&mut self, problems: Vec<String>, unpaired: BTreeSet<String>, plan: &SyncPlan) {
        let problems: BTreeSet<String> = problems.into_iter().collect();
        for problem in problems.difference(&self.reported.unreadable) {
            warn!("a node of Slurm is left alone: {problem}");
        }
        self.reported.unreadable = problems;
        self.reported.exceptions.report(unpaired, &held_back(plan));
    }

    /// Carries out one action. Returns false if the node has changed since it was read.
    async fn apply(&self, action: &SyncAction) -> Result<bool, ApplyError> {
        match action {
            SyncAction::Drain { node, reason } => {
                if self.scontrol.availability(node).await? != NodeAvailability::Open {
                    return Ok(false);
                }
                self.scontrol.drain(node, reason).await?;
            }
            SyncAction::Undrain { node, reason, .. } => {
                let now = self.scontrol.availability(node).await?;
                if !matches!(now, NodeAvailability::Mirrored { reason: now, .. } if now == *reason) {
                    return Ok(false);
                }
                self.scontrol.undrain(node).await?;
            }
            SyncAction::Cordon { node, reason } => self.client.cordon(&NodeId::from(node.as_str()), reason).await?,
            SyncAction::Uncordon { node, reasons } => {
                let node = NodeId::from(node.as_str());
                self.client.uncordon_only(&node, reasons.clone()).await?;
            }
        }
        Ok(true)
    }
}

/// Failure of an action.
#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error("{0}")]
    Slurm(#[from] ScontrolError),
    #[error("{0}")]
    Controller(#[from] ClientError),
}

impl ApplyError {
    /// True if the further actions would fail in the same way.
    fn is_lasting(&self) -> bool {
        match self {
            Self::Slurm(problem) => matches!(problem, ScontrolError::Silent { .. } | ScontrolError::Start { .. }),
            Self::Controller(problem) => problem.is_away(),
        }
    }
}

/// Pairs the nodes of both sides, in order of the names in Slurm; the second value are nodes of one side only.
fn pairs(names: &NameMap, listing: &NodeListing, status: &StatusView) -> (Vec<NodePair>, BTreeSet<String>) {
    let slurm = listing.nodes.iter().map(|node| node.name.as_str());
    let found = names.pair(slurm, status.nodes.iter().map(|node| node.node.as_str()));
    let mut pairs: Vec<NodePair> = Vec::new();
    for node in &listing.nodes {
        let Some(name) = found.known.get(&node.name) else {
            continue;
        };
        // The status is sorted by name.
        let view = status.nodes.binary_search_by(|view| view.node.as_str().cmp(name));
        let Some(view) = view.ok().and_then(|at| status.nodes.get(at)) else {
            continue;
        };
        pairs.push(NodePair {
            slurm_name: node.name.clone(),
            controller_name: name.clone(),
            slurm: node.availability.clone(),
            controller: controller_node(view),
        });
    }
    pairs.sort_by(|one, other| one.slurm_name.cmp(&other.slurm_name));
    let slurm = found.only_scheduler.iter().map(|name| format!("{name} (Slurm)"));
    let rankguard = found.only_rankguard.iter().map(|name| format!("{name} (Rankguard)"));
    (pairs, slurm.chain(rankguard).collect())
}

fn held_back(plan: &SyncPlan) -> HeldBackNodes<'_> {
    HeldBackNodes {
        change: "drained in Slurm",
        option: "--max-drained",
        limit: plan.limit,
        nodes: &plan.held_back,
    }
}

fn action_text(action: &SyncAction) -> String {
    match action {
        SyncAction::Drain { node, reason } => format!("drain {node} in Slurm: {reason}"),
        SyncAction::Undrain { node, reason, .. } => format!("lift the drain of {node} in Slurm: {reason}"),
        SyncAction::Cordon { node, reason } => format!("cordon {node} in Rankguard: {reason}"),
        SyncAction::Uncordon { node, reasons } => {
            format!("lift the cordon of {node} in Rankguard: {}", reasons.join("; "))
        }
    }
}

fn done_text(action: &SyncAction) -> String {
    let down = match action {
        SyncAction::Undrain { is_down: true, .. } => " (it is down besides; `scontrol update state=resume` ends that)",
        _ => "",
    };
    format!("done: {}{down}", action_text(action))
}
