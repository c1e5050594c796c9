//! `rankguard node cordon|uncordon|drain|forget|show`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use rankguard_model::{
    Case, CaseId, ClassId, Entity, JobId, JobState, JobView, NodeId, NodeState, NodeView, StateSpan, StatusView,
    Timestamp, printable,
};
use serde::Serialize;

use crate::args::{CommonArgs, ControllerAddress, DocumentFormat, DocumentFormatArgs};
use crate::client::{ClientError, ControllerClient};
use crate::config::nearest;
use crate::display_text::{case_progress, case_progress_id, node_use, or_dash, or_empty};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;
use crate::runtime::block_on;

#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    pub(crate) action: NodeAction,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NodeAction {
    /// Cordon nodes: place no new work on them
    Cordon {
        /// Names of the nodes
        #[arg(required = true)]
        nodes: Vec<String>,
        /// Reason for the cordon, shown by `status` and `node show`
        #[arg(long, default_value = "cordoned by hand")]
        reason: String,
        #[command(flatten)]
        address: ControllerAddress,
    },
    /// Uncordon nodes: use them again and clear earlier findings against them
    Uncordon {
        /// Names of the nodes
        #[arg(required = true)]
        nodes: Vec<String>,
        #[command(flatten)]
        address: ControllerAddress,
    },
    /// Drain nodes: their jobs checkpoint and move; wait until no rank is left
    Drain {
        /// Names of the nodes
        #[arg(required = true)]
        nodes: Vec<String>,
        /// Reason for the drain, shown by `status` and `node show`
        #[arg(long, default_value = "drained by hand")]
        reason: String,
        /// Maximum wait in seconds; 0 returns at once
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        timeout: u64,
        #[command(flatten)]
        address: ControllerAddress,
    },
    /// Remove nodes that are permanently lost
    Forget {
        /// Names of the nodes
        #[arg(required = true)]
        nodes: Vec<String>,
        #[command(flatten)]
        address: ControllerAddress,
    },
    /// Show a node with its history: states, cases and jobs
    Show {
        /// Name of the node
        node: String,
        #[command(flatten)]
        address: ControllerAddress,
        #[command(flatten)]
        format: DocumentFormatArgs,
    },
}

pub(crate) fn run(args: NodeArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    match args.action {
        NodeAction::Cordon { nodes, reason, address } => {
            let client = address.client(common)?;
            block_on(each(&nodes, async |node| {
                client.cordon(node, &reason).await?;
                out::note(&format!(
                    "cordoned {node}; running ranks of jobs go on, and a torchrun there, if any, becomes a spare"
                ));
                Ok(())
            }))?
        }
        NodeAction::Uncordon { nodes, address } => {
            let client = address.client(common)?;
            block_on(async {
                let before = client.status().await?.nodes;
                each(&nodes, async |node| {
                    client.uncordon(node).await?;
                    out::note(&uncordoned(node, &before));
                    Ok(())
                })
                .await
            })?
        }
        NodeAction::Drain {
            nodes,
            reason,
            timeout,
            address,
        } => {
            let client = address.client(common)?;
            block_on(async {
                each(&nodes, async |node| client.drain(node, &reason).await).await?;
                let emptied = await_empty(&client, &nodes, Duration::from_secs(timeout)).await;
                if emptied.is_err() {
                    out::note(&format!(
                        "the drain of {} is recorded and goes on without this command; the same command waits for it again",
                        nodes.join(" ")
                    ));
                }
                emptied
            })?
        }
        NodeAction::Forget { nodes, address } => {
            let client = address.client(common)?;
            block_on(each(&nodes, async |node| {
                client.forget(node).await?;
                out::note(&format!("removed {node}"));
                Ok(())
            }))?
        }
        NodeAction::Show { node, address, format } => {
            let client = address.client(common)?;
            let history = block_on(history(&client, &NodeId::from(node.as_str())))??;
            print(&history, format.format)
        }
    }
}

/// Describes what an uncordon did to a node, by its state before. Without a cordon it clears findings all the same.
fn uncordoned(node: &NodeId, before: &[NodeView]) -> String {
    let known = before.iter().find(|view| view.node == *node);
    match known {
        Some(view) if view.cordon.is_none() && view.faulty_in_use.is_none() => {
            format!("{node} was not cordoned; earlier findings against it are cleared")
        }
        Some(view) if view.cordon.is_none() => {
            format!("{node} was not cordoned; its fault counts as settled, and earlier findings against it are cleared")
        }
        _ => format!("uncordoned {node}"),
    }
}

/// Applies `act` to each node. A failure for one node does not stop the others; an unreachable controller does.
async fn each(
    nodes: &[String],
    act: impl AsyncFn(&NodeId) -> Result<(), ClientError>,
) -> Result<CommandExit, CliError> {
    let names: BTreeSet<&String> = nodes.iter().collect();
    let mut failed: Vec<(&String, ClientError)> = Vec::new();
    for name in names {
        match act(&NodeId::from(name.as_str())).await {
            Ok(()) => {}
            Err(problem) if problem.is_away() => return Err(problem.into()),
            Err(problem) => failed.push((name, problem)),
        }
    }
    match failed.len() {
        0 => Ok(CommandExit::Fine),
        1 => Err(failed.remove(0).1.into()),
        count => {
            let lines = failed.iter().map(|(name, problem)| format!("\n{name}: {problem}"));
            Err(CliError::failure(
                format!(
                    "cannot change {count} of {} nodes:{}",
                    nodes.len(),
                    lines.collect::<String>()
                ),
                "`rankguard status nodes` lists the nodes",
            ))
        }
    }
}

/// Poll interval of a drain, and interval between its progress notes.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// Waits until no job is placed on the nodes, and no old rank is left there.
async fn await_empty(client: &ControllerClient, nodes: &[String], limit: Duration) -> Result<CommandExit, CliError> {
    let started = Instant::now();
    let mut noted: Option<Instant> = None;
    let mut shown = Vec::new();
    loop {
        let status = client.status().await?;
        let left: Vec<String> = nodes.iter().filter_map(|node| occupied(&status, node)).collect();
        if left.is_empty() {
            out::note(&drained_note(&status, nodes));
            return Ok(CommandExit::Fine);
        }
        if started.elapsed() >= limit {
            left.iter()
                .filter(|line| !shown.contains(*line))
                .for_each(|line| out::note(line));
            out::note("not empty yet; the nodes remain drained and take no new work");
            return Ok(CommandExit::Finding);
        }
        if noted.is_none_or(|at| at.elapsed() > NOTE_EVERY) {
            noted = Some(Instant::now());
            left.iter().for_each(|line| out::note(line));
            shown = left;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Describes nodes on which no rank runs. What runs on a lost node is not known.
fn drained_note(status: &StatusView, nodes: &[String]) -> String {
    let is_lost = |name: &str| {
        let mut all = status.nodes.iter();
        all.any(|node| node.node.as_str() == name && node.state == NodeState::Lost)
    };
    let (lost, empty): (Vec<&str>, Vec<&str>) = nodes.iter().map(String::as_str).partition(|name| is_lost(name));
    let lost = lost.iter().map(|name| {
        format!(
            "drained {name}, which is lost: no job is placed there, and it takes no new work when its agent returns"
        )
    });
    let empty = (!empty.is_empty()).then(|| format!("drained {}; no rank runs there", empty.join(" ")));
    empty.into_iter().chain(lost).collect::<Vec<_>>().join("\n")
}

/// Describes the job or the old ranks that occupy a node; `None` if it is empty.
fn occupied(status: &StatusView, node: &str) -> Option<String> {
    let living = status
        .jobs
        .iter()
        .filter(|job| !matches!(job.state, JobState::Finished | JobState::Stopped));
    for job in living {
        if job.placements.iter().any(|place| place.node.as_str() == node) {
            let why = job.drain.as_deref().unwrap_or("it has not left yet");
            return Some(format!("node {node}: job {} runs here; {why}", job.spec.id));
        }
    }
    let unconfirmed = |job: &&JobView| job.unconfirmed.iter().any(|left| left.node.as_str() == node);
    let job = status.jobs.iter().find(unconfirmed)?;
    Some(format!(
        "node {node}: the end of old ranks of job {} is not confirmed",
        job.spec.id
    ))
}

/// A node and its history.
#[derive(Debug, Serialize)]
struct NodeReport {
    #[serde(flatten)]
    node: NodeView,
    /// States of the node, oldest first.
    states: Vec<StateSpan>,
    /// Cases that blame the node or contain evidence of it, oldest first.
    cases: Vec<NodeCase>,
    /// Jobs that had ranks on the node and are over, as far as the controller retains them.
    jobs: Vec<JobId>,
    /// Runs of torchrun with workers on the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    torchruns: Vec<String>,
}

/// A case in the history of a node.
#[derive(Debug, Serialize)]
struct NodeCase {
    case: CaseId,
    /// As in the JSON of `cases`.
    state: &'static str,
    #[serde(skip)]
    state_words: &'static str,
    since: Timestamp,
    class: ClassId,
    /// Entity that the verdict blames.
    blamed: String,
    /// True if the verdict blames the node or a device of it. A rank that failed there by its program does not count.
    is_blamed: bool,
    /// True for a drill.
    is_synthetic: bool,
    outcome: Option<String>,
}

async fn history(client: &ControllerClient, name: &NodeId) -> Result<NodeReport, CliError> {
    let status = client.status().await?;
    let cases = client.cases().await?;
    let Some(node) = status.nodes.iter().find(|node| node.node == *name) else {
        let known = status.nodes.iter().map(|node| node.node.as_str());
        let hint = match nearest(name.as_str(), known) {
            Some(near) => format!("did you mean {near}? `rankguard status nodes` lists the nodes"),
            None => "`rankguard status nodes` lists the nodes".to_owned(),
        };
        return Err(CliError::failure(format!("there is no node {name}"), hint));
    };
    Ok(NodeReport {
        node: node.clone(),
        states: status
            .node_spans
            .iter()
            .filter(|span| span.node == *name)
            .cloned()
            .collect(),
        cases: cases.iter().filter_map(|case| node_case(case, name)).collect(),
        jobs: earlier_jobs(&status, name, node.job.as_ref()),
        torchruns: status.torchruns_on(name).into_iter().map(str::to_owned).collect(),
    })
}

fn dash_if_empty(text: &str) -> String {
    or_dash(Some(text).filter(|text| !text.is_empty()))
}

fn is_over(job: &JobView) -> bool {
    matches!(job.state, JobState::Finished | JobState::Stopped)
}

/// Returns the jobs that ran on a node and are not placed there now; `present` is the job that is.
fn earlier_jobs(status: &StatusView, node: &NodeId, present: Option<&JobId>) -> Vec<JobId> {
    let ran = status
        .jobs
        .iter()
        .filter(|job| job.spans.iter().any(|span| span.node == *node))
        // A job that goes on elsewhere is an earlier job of the node.
        .filter(|job| is_over(job) || present != Some(&job.spec.id));
    ran.map(|job| job.spec.id.clone()).collect()
}

fn node_case(case: &Case, node: &NodeId) -> Option<NodeCase> {
    let blamed = &case.verdict.blamed;
    let is_blamed = matches!(blamed, Entity::Node { node: at } | Entity::Device { node: at, .. } if at == node);
    let ran_here = blamed.node() == Some(node);
    let is_named = case.findings.iter().any(|finding| finding.node() == Some(node));
    (ran_here || is_named).then(|| NodeCase {
        case: case.id,
        state: case_progress_id(case),
        state_words: case_progress(case),
        since: case.first_at,
        class: case.verdict.class.clone(),
        blamed: case.blamed_text(),
        is_blamed,
        is_synthetic: case.is_synthetic(),
        outcome: case.outcome.clone(),
    })
}

const STATES: &[TableColumn<StateSpan>] = &[
    ("state", |span| span.state.clone()),
    ("from", |span| span.from.to_string()),
    ("to", |span| or_empty(span.to)),
];

const CASES: &[TableColumn<NodeCase>] = &[
    ("case", |case| case.case.to_string()),
    ("state", |case| case.state_words.to_owned()),
    ("since", |case| case.since.to_string()),
    ("class", |case| {
        let marker = if case.is_synthetic { " (synthetic)" } else { "" };
        format!("{}{marker}", case.class)
    }),
    ("blamed", |case| case.blamed.clone()),
    ("outcome", |case| or_empty(case.outcome.as_ref())),
];

fn print(history: &NodeReport, format: DocumentFormat) -> Result<CommandExit, CliError> {
    match format {
        DocumentFormat::Json => out::json(history),
        DocumentFormat::Jsonl => out::json_line(history),
        DocumentFormat::Table => {
            let node = &history.node;
            let jobs: Vec<&str> = history.jobs.iter().map(JobId::as_str).collect();
            let jobs = jobs.join(" ");
            let torchruns = history.torchruns.join(" ");
            let mut facts = vec![
                ("reason", or_dash(node.reason.as_ref())),
                ("slots", node.slots.to_string()),
                ("address", node.address.clone()),
                ("failure domain", dash_if_empty(&node.failure_domain)),
                ("job", or_dash(node.job.as_ref())),
                ("earlier jobs", dash_if_empty(&jobs)),
            ];
            if !torchruns.is_empty() {
                facts.push(("torchruns", torchruns));
            }
            let mut page = format!("node {}: {}\n", node.node, node_use(node));
            for (name, value) in facts {
                page.push_str(&format!("  {name:<14}  {}\n", printable(&value)));
            }
            out::page(&page);
            out::line("");
            out::text(&listing::table(&history.states, STATES));
            if !history.cases.is_empty() {
                out::line("");
                out::text(&listing::table(&history.cases, CASES));
            }
        }
    }
    Ok(CommandExit::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankguard_report::sample;

    #[test]
    fn a_job_that_goes_on_elsewhere_is_an_earlier_job_of_the_node() {
        let (mut status, _) = sample::cluster();
        let job = &mut status.jobs[0];
        job.state = JobState::Recovering;
        let name = job.spec.id.clone();
        let node = job.spans.first().expect("it ran").node.clone();
        assert!(earlier_jobs(&status, &node, None).contains(&name));
        assert!(!earlier_jobs(&status, &node, Some(&name)).contains(&name));
    }

    #[test]
    fn a_lost_node_is_not_called_empty() {
        let (mut status, _) = sample::cluster();
        let name = status.nodes[0].node.to_string();
        status.nodes[0].state = NodeState::Healthy;
        let nodes = [name.clone()];
        assert_eq!(
            drained_note(&status, &nodes),
            format!("drained {name}; no rank runs there")
        );
        status.nodes[0].state = NodeState::Lost;
        let note = drained_note(&status, &nodes);
        assert!(
            note.contains("which is lost") && !note.contains("no rank runs"),
            "{note}"
        );
    }
}
