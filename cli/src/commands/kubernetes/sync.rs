//! `rankguard kubernetes sync`: compares both sides at an interval and carries out what is missing.
//!
//! The program has no state besides what it has already reported. Directly before a change the node is read again, and the
//! change is conditional on the version that was read.

use std::time::Duration;

use clap::Args;
use rankguard_kubernetes::{
    ApiClient, ApiError, ControllerChange, LeaseClaim, NodeRecord, NodeWatch, NodeWriter, ServerAccess, SyncAction,
    SyncPlan, WantedCondition, WriteOutcome, disturbed_jobs, eviction_exemption, is_heartbeat_due, reconcile,
};
use rankguard_model::StatusView;
use rankguard_scheduler_nodes::{NameMap, NodeLimit};
use tracing::{info, warn};

use super::case_classes::CaseClasses;
use super::evictions::{EvictionQueue, pod_text};
use super::pairs::{PairedNodes, action_text, held_back, overruled_text};
use super::reported::ReportedFacts;
use super::{KubernetesServerArgs, api_failure};
use crate::args::{CommonArgs, ControllerAddress};
use crate::client::{ClientError, ControllerClient};
use crate::commands::scheduler_sides::{compare_until_signal, current_status, shown};
use crate::config::FlagValue;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::runtime::block_on;
use crate::{logging, out};

/// Name of the lease by which one of several programs acts.
const LEASE_NAME: &str = "rankguard-sync";
/// Namespace of the lease outside of a pod.
const LEASE_NAMESPACE: &str = "rankguard";
/// Most conditions written in one comparison: heartbeats of a large cluster are spread.
const CONDITIONS_MAX: usize = 200;
/// Longest wait for the release of the lease at the end.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// Options of `kubernetes sync`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SyncArgs {
    /// Interval between two comparisons, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) interval: u64,
    /// Interval between two reports of an unchanged node condition, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(10..=86400))]
    pub(crate) heartbeat: u64,
    /// Maximum number of nodes to cordon in Kubernetes at a time, or share of the nodes of both sides: 8, 10%
    #[arg(long, value_name = "LIMIT", default_value_t = NodeLimit::DEFAULT)]
    pub(crate) max_unavailable: NodeLimit,
    /// Evict the pods of nodes that a case cordoned, within their disruption budgets; drills and operators evict none
    #[arg(long)]
    pub(crate) evict: bool,
    /// Compare once, print what would be changed, and change nothing; exit code 1: there is something to change
    #[arg(long, conflicts_with = "shadow")]
    pub(crate) dry_run: bool,
    /// Compare at the interval, log and count what would be changed, and change nothing
    #[arg(long)]
    pub(crate) shadow: bool,
    /// Namespace of the lease `rankguard-sync`, by which one of several programs acts [default: that of the pod, or rankguard]
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) lease_namespace: Option<String>,
    #[command(flatten)]
    pub(crate) server: KubernetesServerArgs,
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
}

pub(crate) fn run(args: &SyncArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let flag = FlagValue::of("client.controller", "--controller", args.address.controller.as_deref());
    let config = common.settings([flag])?;
    let api = args.server.client()?;
    let watch = NodeWatch::new(api.clone(), args.server.node_name_label.clone());
    let mut sync = NodeSync {
        client: ControllerClient::new(&config.client_address(), config.network()).without_notes(),
        writer: NodeWriter::new(api.clone(), watch.clone()),
        names: args.server.name_map()?,
        limit: args.max_unavailable,
        heartbeat: Duration::from_secs(args.heartbeat),
        evictions: args.evict.then(EvictionQueue::default),
        lease: (!args.shadow).then(|| lease_claim(args, &api)),
        classes: CaseClasses::default(),
        reported: ReportedFacts::default(),
        api,
        watch,
    };
    if args.dry_run {
        return block_on(sync.print_plan())?;
    }
    logging::start(&config);
    block_on(sync.serve(Duration::from_secs(args.interval)))?
}

fn lease_claim(args: &SyncArgs, api: &ApiClient) -> LeaseClaim {
    let namespace = args.lease_namespace.clone().or_else(ServerAccess::pod_namespace);
    let namespace = namespace.unwrap_or_else(|| LEASE_NAMESPACE.to_owned());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // A process id is not unique among pods of one host name that follow each other.
    let start = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let start = start.map_or(0, |since| since.as_millis());
    let identity = format!("{}_{}_{start:x}", host.trim(), std::process::id());
    LeaseClaim::new(api.clone(), &namespace, LEASE_NAME, identity)
}

/// Both sides, and what was reported about them.
struct NodeSync {
    client: ControllerClient,
    api: ApiClient,
    watch: NodeWatch,
    writer: NodeWriter,
    names: NameMap,
    limit: NodeLimit,
    heartbeat: Duration,
    /// Absent without `--evict`.
    evictions: Option<EvictionQueue>,
    /// Absent in a shadow run, which changes nothing.
    lease: Option<LeaseClaim>,
    classes: CaseClasses,
    reported: ReportedFacts,
}

impl NodeSync {
    /// Compares the sides until a signal.
    async fn serve(&mut self, pause: Duration) -> Result<CommandExit, CliError> {
        let network = self.client.network().clone();
        let watch = self.watch.clone();
        let follower = tokio::spawn(async move { watch.run().await });
        info!(
            controller = self.client.address(),
            kubernetes = self.api.address(),
            interval_s = pause.as_secs(),
            max_unavailable = %self.limit,
            "node states of Kubernetes and Rankguard are compared"
        );
        let signal = compare_until_signal(&network, pause, async || self.compare().await).await?;
        follower.abort();
        self.end(signal).await;
        Ok(CommandExit::Fine)
    }

    async fn end(&mut self, signal: &'static str) {
        for (rule, count) in self.reported.counts() {
            info!(rule, count, "would have been carried out");
        }
        if let Some(lease) = &mut self.lease
            && let Ok(Err(problem)) = tokio::time::timeout(RELEASE_LIMIT, lease.release()).await
        {
            warn!(%problem, "the lease is not released; it ends by itself");
        }
        info!(signal, "the comparison ends; cordons and conditions remain as they are");
    }

    /// Prints the actions of one comparison.
    async fn print_plan(&mut self) -> Result<CommandExit, CliError> {
        self.watch.list().await.map_err(|problem| api_failure(&problem))?;
        let status = self.client.status().await?;
        let nodes = self.watch.nodes().ok().flatten().unwrap_or_default();
        let paired = self.paired(nodes, &status).await?;
        let plan = reconcile(&paired.pairs, self.limit);
        if !paired.unpaired.is_empty() {
            out::note(&format!("nodes of one side only: {}", shown(&paired.unpaired)));
        }
        if !plan.held_back.is_empty() {
            out::note(&held_back(&plan).to_string());
        }
        if !plan.overruled.is_empty() {
            out::note(&overruled_text(&plan.overruled));
        }
        let due = self
            .due(&paired, &plan)
            .await
            .map_err(|problem| api_failure(&problem))?;
        let mut counts = std::collections::BTreeMap::new();
        for (rule, text) in &due {
            out::line(text);
            *counts.entry(*rule).or_insert(0_u64) += 1;
        }
        if !counts.is_empty() {
            let counts: Vec<String> = counts.iter().map(|(rule, count)| format!("{rule}: {count}")).collect();
            out::note(&format!("by rule: {}", counts.join(", ")));
        }
        let is_done = due.is_empty() && plan.held_back.is_empty();
        Ok(if is_done {
            CommandExit::Fine
        } else {
            CommandExit::Finding
        })
    }

    /// Returns everything that is due with its rule; heartbeats are not counted.
    async fn due(&self, paired: &PairedNodes, plan: &SyncPlan) -> Result<Vec<(&'static str, String)>, ApiError> {
        let mut due: Vec<_> = plan
            .actions
            .iter()
            .map(|action| (action.rule(), action_text(action)))
            .collect();
        for (node, wanted) in &paired.conditions {
            if !wanted.is_same(node.condition.as_ref()) {
                due.push(("condition", condition_text(node, wanted)));
            }
        }
        if self.evictions.is_some() {
            let mut nodes = paired.to_be_emptied();
            let cordons = plan
                .actions
                .iter()
                .filter(|action| matches!(action, SyncAction::Cordon { .. }));
            let cordoned = cordons.map(|action| action.basis().0);
            nodes.extend(cordoned.filter(|node| paired.evictable.contains(*node)));
            for node in nodes {
                let pods = self.api.pods_on(node).await?;
                let pods = pods.iter().filter(|pod| eviction_exemption(pod).is_none());
                due.extend(pods.map(|pod| ("evict", format!("evict {} from {node}", pod_text(pod)))));
            }
        }
        Ok(due)
    }

    /// Reads both sides and carries out what is missing. Without both answers nothing is changed.
    async fn compare(&mut self) {
        if !self.holds_lease().await {
            return;
        }
        let nodes = self.watch.nodes();
        self.reported.kubernetes(nodes.as_ref().err());
        let status = self.client.status().await;
        let status = status.map_err(|problem| problem.to_string()).and_then(current_status);
        self.reported.controller(status.as_ref().err());
        let (Ok(Some(nodes)), Ok(status)) = (nodes, status) else {
            return;
        };
        let mut paired = match self.paired(nodes, &status).await {
            Ok(paired) => paired,
            Err(problem) => return self.reported.controller(Some(&problem.to_string())),
        };
        let plan = reconcile(&paired.pairs, self.limit);
        self.reported.plan(std::mem::take(&mut paired.unpaired), &plan);
        if self.lease.is_none() {
            match self.due(&paired, &plan).await {
                Ok(due) => self.reported.shadow(due),
                Err(problem) => warn!(%problem, "the pods cannot be listed"),
            }
            return;
        }
        if let Err(problem) = self.carry_out(&paired, &plan).await {
            warn!(%problem, "the comparison is cut off; the next one completes it");
        }
    }

    async fn holds_lease(&mut self) -> bool {
        let Some(lease) = &mut self.lease else { return true };
        let held = lease.refresh().await;
        self.reported
            .lease(held.as_ref().err().map(ToString::to_string).as_ref());
        let is_held = held.unwrap_or(false);
        let holder = lease.holder().to_owned();
        if !holder.is_empty() {
            self.reported.holder(&holder, is_held);
        }
        is_held
    }

    async fn paired(&mut self, nodes: Vec<NodeRecord>, status: &StatusView) -> Result<PairedNodes, ClientError> {
        let mut blamed = Vec::with_capacity(status.nodes.len());
        for view in &status.nodes {
            blamed.push(self.classes.blamed(&self.client, view).await?);
        }
        self.classes.retain(&status.nodes);
        Ok(PairedNodes::new(&self.names, nodes, &blamed))
    }

    /// Carries out the actions, then reports conditions, then evicts. Stops at a failure that would repeat.
    async fn carry_out(&mut self, paired: &PairedNodes, plan: &SyncPlan) -> Result<(), ApplyError> {
        for action in &plan.actions {
            match self.apply(action).await {
                Ok(true) => self.report_done(action).await,
                Ok(false) => {}
                Err(problem) if problem.is_lasting() => return Err(problem),
                Err(problem) => warn!(%problem, "not done: {}", action_text(action)),
            }
        }
        self.write_conditions(&paired.conditions).await?;
        if let Some(evictions) = &mut self.evictions {
            evictions.run(&self.api, paired.to_be_emptied()).await?;
        }
        Ok(())
    }

    /// Carries out one action. Returns false if the node has changed since it was read.
    async fn apply(&self, action: &SyncAction) -> Result<bool, ApplyError> {
        match self.writer.write(action).await? {
            WriteOutcome::Written => {}
            WriteOutcome::Outdated => return Ok(false),
            WriteOutcome::Due(ControllerChange::Cordon(node, reason)) => self.client.cordon(&node, &reason).await?,
            WriteOutcome::Due(ControllerChange::Uncordon(node, reasons)) => {
                self.client.uncordon_only(&node, reasons).await?;
            }
        }
        Ok(true)
    }

    async fn report_done(&self, action: &SyncAction) {
        info!("done: {}", action_text(action));
        let SyncAction::Cordon { node, .. } = action else {
            return;
        };
        // The names of the jobs help people; without them the cordon stands as well.
        if let Ok(pods) = self.api.pods_on(node).await {
            let jobs: Vec<String> = disturbed_jobs(&pods).iter().map(ToString::to_string).collect();
            if !jobs.is_empty() {
                info!("jobs with pods on {node}: {}", shown(&jobs));
            }
        }
    }

    /// Writes changed conditions first, then those with a heartbeat that is due.
    async fn write_conditions(&self, conditions: &[(NodeRecord, WantedCondition)]) -> Result<(), ApplyError> {
        let now = self.api.server_time();
        let is_changed = |(node, wanted): &&(NodeRecord, WantedCondition)| !wanted.is_same(node.condition.as_ref());
        let changed = conditions.iter().filter(is_changed);
        let is_due = |(node, wanted): &&(NodeRecord, WantedCondition)| {
            wanted.is_same(node.condition.as_ref()) && is_heartbeat_due(node.condition.as_ref(), now, self.heartbeat)
        };
        let due = conditions.iter().filter(is_due);
        for (node, wanted) in changed.chain(due).take(CONDITIONS_MAX) {
            let condition = wanted.at(node.condition.as_ref(), now);
            let is_news = node.condition.as_ref().map(|found| found.status.as_str()) != Some(wanted.status);
            match self.writer.report(&node.name, &condition).await {
                Ok(true) if is_news => info!("done: {}", condition_text(node, wanted)),
                Ok(_) => {}
                Err(problem) if problem.is_lasting() => return Err(problem.into()),
                Err(problem) => warn!(%problem, "not done: {}", condition_text(node, wanted)),
            }
        }
        Ok(())
    }
}

/// Failure of an action.
#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error("{0}")]
    Kubernetes(#[from] ApiError),
    #[error("{0}")]
    Controller(#[from] ClientError),
}

impl ApplyError {
    /// True if the further actions would fail in the same way.
    fn is_lasting(&self) -> bool {
        match self {
            Self::Kubernetes(problem) => problem.is_lasting(),
            Self::Controller(problem) => problem.is_away(),
        }
    }
}

fn condition_text(node: &NodeRecord, wanted: &WantedCondition) -> String {
    format!(
        "report {} in Kubernetes: RankguardHealthy={} ({}): {}",
        node.name, wanted.status, wanted.reason, wanted.message
    )
}
