//! `rankguard status`.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use rankguard_model::{JobView, NodeView, StatusView};
use serde::Serialize;

use crate::args::{ControllerAddress, Format, FormatArgs};
use crate::client::Client;
use crate::error::CliError;
use crate::exit::Exit;
use crate::listing::{self, Column};
use crate::out;
use crate::words::{job_state, node_state, or_dash};

/// `status`.
#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    /// Where the controller is.
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
    /// How to print.
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// What to list; json gives both
    #[arg(value_enum, default_value_t)]
    pub(crate) what: StatusPart,
}

/// What `status` lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusPart {
    /// Nodes and jobs
    #[default]
    All,
    /// Nodes
    Nodes,
    /// Jobs
    Jobs,
}

const NODES: &[Column<NodeView>] = &[
    ("node", |node| node.node.to_string()),
    ("state", |node| node_state(node.state).to_owned()),
    ("slots", |node| node.slots.to_string()),
    ("job", |node| or_dash(node.job.as_ref())),
    ("lease s", |node| {
        or_dash((node.lease_ms > 0).then(|| node.lease_ms as f64 / 1e3))
    }),
    ("reason", |node| or_dash(node.reason.as_ref())),
];

const JOBS: &[Column<JobView>] = &[
    ("job", |job| job.spec.id.to_string()),
    ("state", |job| job_state(job.state).to_owned()),
    ("nodes", |job| {
        job.placements
            .iter()
            .map(|at| &at.node)
            .collect::<BTreeSet<_>>()
            .len()
            .to_string()
    }),
    ("ranks", |job| job.placements.len().to_string()),
    ("generation", |job| job.generation.to_string()),
    ("step", |job| or_dash(job.step)),
    ("checkpoint", |job| {
        or_dash(job.checkpoints.last().map(|checkpoint| checkpoint.step))
    }),
    ("committed", |job| job.checkpoint_counts.committed.to_string()),
    ("void", |job| job.checkpoint_counts.void.to_string()),
    ("reason", |job| or_dash(job.reason.as_ref())),
];

/// A line of `--format jsonl`, where nodes and jobs stand side by side.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Line<'a> {
    Node(&'a NodeView),
    Job(&'a JobView),
}

pub(crate) async fn run(args: &StatusArgs, client: &Client) -> Result<Exit, CliError> {
    if args.what == StatusPart::All && args.format.format == Format::Csv {
        return Err(CliError::usage(
            "nodes and jobs do not fit into one csv",
            "`rankguard status nodes --format csv` and `rankguard status jobs --format csv` list each",
        ));
    }
    let status = client.status().await?;
    print(args, &status);
    Ok(Exit::Fine)
}

fn print(args: &StatusArgs, status: &StatusView) {
    match (args.what, args.format.format) {
        (StatusPart::Nodes, format) => listing::print(format, &status.nodes, NODES),
        (StatusPart::Jobs, format) => listing::print(format, &status.jobs, JOBS),
        (StatusPart::All, Format::Json) => out::json(status),
        (StatusPart::All, Format::Jsonl) => {
            status.nodes.iter().for_each(|node| out::json_line(&Line::Node(node)));
            status.jobs.iter().for_each(|job| out::json_line(&Line::Job(job)));
        }
        (StatusPart::All, Format::Table | Format::Csv) => {
            out::text(&listing::table(&status.nodes, NODES));
            if status.nodes.is_empty() {
                out::note("no agent has joined; `rankguard agent` runs on each node");
            }
            out::line("");
            out::text(&listing::table(&status.jobs, JOBS));
            for job in &status.jobs {
                if let Some(start) = &job.resumed_from {
                    out::note(&format!("job {} resumed from {start}", job.spec.id));
                }
                for left in &job.unconfirmed {
                    out::note(&format!(
                        "job {}: old ranks on {} have not been confirmed as ended since {}: {}",
                        job.spec.id, left.node, left.since, left.reason
                    ));
                }
                if let Some(void) = &job.checkpoint_counts.newest_void {
                    out::note(&format!(
                        "job {}: {} checkpoints are void, the newest of step {}: {}",
                        job.spec.id, job.checkpoint_counts.void, void.step, void.reason
                    ));
                }
                for slow in &job.stragglers {
                    out::note(&format!(
                        "job {}: rank {} on {} takes {:.1} ms a step and the others {:.1} ms, since {}",
                        job.spec.id, slow.rank, slow.node, slow.step_ms, slow.usual_ms, slow.since
                    ));
                }
            }
            for node in status.nodes.iter().filter(|node| node.refused_evidence > 0) {
                out::note(&format!(
                    "node {}: {} pieces of its evidence were refused",
                    node.node, node.refused_evidence
                ));
            }
            if !status.open_cases.is_empty() {
                let open: Vec<String> = status.open_cases.iter().map(ToString::to_string).collect();
                out::note(&format!(
                    "open cases: {}; `rankguard cases show N` tells more",
                    open.join(", ")
                ));
            }
        }
    }
}
