//! `rankguard kubernetes pods NODE`.

use clap::Args;
use rankguard_kubernetes::objects::PodObject;
use rankguard_kubernetes::{NodeWatch, eviction_exemption, pod_job};
use serde::Serialize;

use super::{KubernetesServerArgs, api_failure};
use crate::args::FormatArgs;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::runtime::block_on;

/// Options of `kubernetes pods`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PodsArgs {
    /// Name of the node in Kubernetes, or its name in Rankguard by --node-name-map or --node-name-label
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) server: KubernetesServerArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Pod of a node.
#[derive(Debug, Clone, Serialize)]
struct PodLine {
    namespace: String,
    pod: String,
    phase: String,
    /// Kind and name of its job; empty without one.
    job: String,
    /// Reason why an eviction leaves it alone; empty if it would be evicted.
    exempt: &'static str,
}

pub(crate) fn run(args: &PodsArgs) -> Result<CommandExit, CliError> {
    let api = args.server.client()?;
    let names = args.server.name_map()?;
    let watch = NodeWatch::new(api.clone(), args.server.node_name_label.clone());
    block_on(async {
        watch.list().await.map_err(|problem| api_failure(&problem))?;
        let nodes = watch.nodes().ok().flatten().unwrap_or_default();
        let by_label = nodes.iter().find(|node| node.label_name.as_deref() == Some(&args.node));
        let kubernetes = nodes.iter().map(|node| node.name.as_str());
        let found = names.pair(kubernetes, [args.node.as_str()]).known.into_keys().next();
        let node = by_label.map(|node| node.name.clone()).or(found);
        let Some(node) = node else {
            return Err(CliError::failure(
                format!("Kubernetes has no node {}", args.node),
                "`kubectl get nodes` lists the nodes; --node-name-map pairs names that differ",
            ));
        };
        let pods = api.pods_on(&node).await.map_err(|problem| api_failure(&problem))?;
        let lines: Vec<PodLine> = pods.iter().map(pod_line).collect();
        listing::print(args.format.format, &lines, COLUMNS);
        Ok(CommandExit::Fine)
    })?
}

fn pod_line(pod: &PodObject) -> PodLine {
    PodLine {
        namespace: pod.metadata.namespace.clone(),
        pod: pod.metadata.name.clone(),
        phase: pod.status.phase.clone(),
        job: pod_job(pod)
            .map(|job| format!("{} {}", job.kind, job.name))
            .unwrap_or_default(),
        exempt: eviction_exemption(pod).map_or("", |exemption| exemption.text()),
    }
}

const COLUMNS: &[TableColumn<PodLine>] = &[
    ("namespace", |line| line.namespace.clone()),
    ("pod", |line| line.pod.clone()),
    ("phase", |line| line.phase.clone()),
    ("job", |line| line.job.clone()),
    ("not evicted", |line| line.exempt.to_owned()),
];
