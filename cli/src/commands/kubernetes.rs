//! `rankguard kubernetes sync|pods`.

mod case_classes;
mod evictions;
mod pairs;
mod pods;
mod reported;
mod sync;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rankguard_kubernetes::{AccessError, ApiClient, ApiError, ServerAccess};
use rankguard_scheduler_nodes::NameMap;

use super::scheduler_sides::read_names;
use crate::args::CommonArgs;
use crate::error::CliError;
use crate::exit::CommandExit;
use pods::PodsArgs;
use sync::SyncArgs;

#[derive(Debug, Clone, Args)]
pub(crate) struct KubernetesArgs {
    #[command(subcommand)]
    pub(crate) action: KubernetesAction,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum KubernetesAction {
    /// Report node conditions, and keep cordons equal: cordon in Kubernetes what is cordoned here, and the reverse
    Sync(SyncArgs),
    /// List the pods of a node with their jobs, and which of them an eviction would end
    Pods(PodsArgs),
}

/// Options for the side of Kubernetes.
#[derive(Debug, Clone, Args)]
pub(crate) struct KubernetesServerArgs {
    /// Address of the API server: https://HOST:PORT, or that of `kubectl proxy` on this machine [default: that of the pod]
    #[arg(long, value_name = "URL")]
    pub(crate) kubernetes: Option<String>,
    /// File of the bearer token, read for each request [default: that of the pod, if --kubernetes is not given]
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    pub(crate) token_file: Option<PathBuf>,
    /// Certificates of the authorities of the API server (PEM) [default: that of the pod, or those of the system]
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    pub(crate) kubernetes_ca: Option<PathBuf>,
    /// File with the nodes of which the names differ, one pair a line: the name in Kubernetes, the name in Rankguard
    #[arg(long, value_name = "FILE")]
    pub(crate) node_name_map: Option<PathBuf>,
    /// Label of nodes of which the value is the name in Rankguard
    #[arg(long, value_name = "LABEL")]
    pub(crate) node_name_label: Option<String>,
}

impl KubernetesServerArgs {
    fn client(&self) -> Result<ApiClient, CliError> {
        let access = match &self.kubernetes {
            Some(address) => ServerAccess::of_address(address, self.token_file.clone(), self.kubernetes_ca.clone()),
            None => {
                let variable = |name: &str| std::env::var(name).ok();
                let (host, port) = (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"));
                ServerAccess::of_pod(host.as_deref(), port.as_deref())
            }
        };
        let access = access.map_err(|problem| access_failure(&problem))?;
        ApiClient::new(access).map_err(|problem| {
            CliError::usage(
                problem.to_string(),
                "--kubernetes-ca names the certificates of the authorities",
            )
        })
    }

    fn name_map(&self) -> Result<NameMap, CliError> {
        let hint = "write one pair a line: the name in Kubernetes, the name in Rankguard";
        read_names(self.node_name_map.as_deref(), hint)
    }
}

fn access_failure(problem: &AccessError) -> CliError {
    CliError::usage(
        problem.to_string(),
        "outside of a pod: run `kubectl proxy` and give --kubernetes http://127.0.0.1:8001, or --kubernetes with --token-file",
    )
}

fn api_failure(problem: &ApiError) -> CliError {
    let hint = match problem.code() {
        401 => "the API server does not accept the token; --token-file names another one",
        403 => "the service account lacks a right; deploy/kubernetes/sync.yaml grants those that are needed",
        _ => "`kubectl get nodes` must work with the same address and token",
    };
    CliError::failure(problem.to_string(), hint)
}

pub(crate) fn run(args: KubernetesArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    match args.action {
        KubernetesAction::Sync(args) => sync::run(&args, common),
        KubernetesAction::Pods(args) => pods::run(&args),
    }
}
