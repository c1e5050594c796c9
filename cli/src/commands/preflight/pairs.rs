//! `rankguard preflight --between`: links between nodes, measured pair by pair through their agents.

use std::time::Duration;

use rankguard_agent::MeasuringAgent;
use rankguard_agent::{LinkMeasurement, NodePair};
use rankguard_console::OutputFormat;
use rankguard_model::{NodeId, NodeState, NodeView};
use serde::Serialize;

use crate::client::ControllerClient;
use crate::display_text::count;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;
use crate::waiting::report_long_wait;

/// Measurement of one pair.
#[derive(Debug, Serialize)]
struct PairRow {
    from: NodeId,
    to: NodeId,
    gigabits_per_s: Option<f64>,
    latency_us: Option<f64>,
    problem: String,
}

const COLUMNS: &[TableColumn<PairRow>] = &[
    ("from", |row| row.from.to_string()),
    ("to", |row| row.to.to_string()),
    ("Gb/s", |row| number(row.gigabits_per_s, 2)),
    ("latency us", |row| number(row.latency_us, 0)),
    ("problem", |row| row.problem.clone()),
];

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}

/// Options of a measurement.
pub(super) struct PairOptions {
    pub(super) nodes: Vec<NodeId>,
    pub(super) lasts: Duration,
    /// Minimum bandwidth of a pair, gigabits per second.
    pub(super) least: f64,
    pub(super) format: OutputFormat,
}

pub(super) async fn run(wanted: PairOptions, client: &ControllerClient) -> Result<CommandExit, CliError> {
    let status = client.status().await?;
    let nodes = chosen(&wanted.nodes, &status.nodes)?;
    let station = |view: &NodeView| MeasuringAgent {
        node: view.node.clone(),
        address: view.address.clone(),
    };
    let stations: Vec<MeasuringAgent> = nodes.iter().map(station).collect();
    let least = wanted.least * 1e9 / 8.0;
    let what = format!("measuring the links between {}", count(nodes.len(), "node"));
    let survey = rankguard_agent::survey(client.network(), &stations, least, wanted.lasts, None);
    let survey = report_long_wait(&what, survey).await;
    let mut rows: Vec<PairRow> = survey
        .rows
        .iter()
        .map(|(pair, measured)| row(&nodes, *pair, measured))
        .collect();
    rows.sort_by(|one, other| (&one.from, &one.to).cmp(&(&other.from, &other.to)));
    listing::print(wanted.format, &rows, COLUMNS);
    let name = |index: &usize| nodes[*index].node.to_string();
    let blame = survey.blame;
    for node in &blame.nodes {
        out::note(&format!(
            "node {}: every measured link is slow or failed; check its adapter, cable and switch port",
            name(node)
        ));
    }
    for (one, other) in &blame.links {
        out::note(&format!(
            "link between {} and {}: slow or failed, while both nodes are fast with others; check the switches between them",
            name(one),
            name(other)
        ));
    }
    for (one, other) in &blame.open {
        out::note(&format!(
            "link between {} and {}: slow or failed, and no other link of either node is fast; measure with more nodes",
            name(one),
            name(other)
        ));
    }
    let fine = blame.nodes.is_empty() && blame.links.is_empty() && blame.open.is_empty();
    out::note(&format!(
        "{} between {}: {}",
        count(rows.len(), "measurement"),
        count(nodes.len(), "node"),
        if fine { "no slow link" } else { "slow links found" }
    ));
    Ok(if fine { CommandExit::Fine } else { CommandExit::Finding })
}

/// Returns the selected nodes. Each must be known and free, because a measurement uses the network of running jobs.
fn chosen(wanted: &[NodeId], known: &[NodeView]) -> Result<Vec<NodeView>, CliError> {
    let mut nodes: Vec<NodeView> = Vec::new();
    for name in wanted {
        let found = known.iter().find(|view| view.node == *name);
        let Some(view) = found else {
            let advice = "`rankguard status` lists the nodes";
            return Err(CliError::failure(format!("there is no node {name}"), advice));
        };
        if view.state == NodeState::Lost {
            let why = view.reason.clone().unwrap_or_default();
            return Err(CliError::failure(
                format!("cannot measure from node {name}: {why}"),
                "check that its agent runs",
            ));
        }
        if let Some(job) = &view.job {
            let advice = "measure before the job starts, or select other nodes";
            return Err(CliError::failure(
                format!("node {name} runs job {job}, which the measurement would disturb"),
                advice,
            ));
        }
        if !nodes.iter().any(|other| other.node == view.node) {
            nodes.push(view.clone());
        }
    }
    if nodes.len() < 2 {
        return Err(CliError::usage(
            "cannot measure links with fewer than two nodes",
            "name two or more: --between NODE,NODE,...",
        ));
    }
    Ok(nodes)
}

fn row(nodes: &[NodeView], (from, to): NodePair, result: &Result<LinkMeasurement, String>) -> PairRow {
    let measured = result.as_ref().ok();
    PairRow {
        from: nodes[from].node.clone(),
        to: nodes[to].node.clone(),
        gigabits_per_s: measured.map(|it| it.bandwidth * 8.0 / 1e9),
        latency_us: measured.map(|it| it.latency * 1e6),
        problem: result.as_ref().err().cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::JobId;

    use super::*;

    fn view(name: &str, state: NodeState, job: Option<&str>) -> NodeView {
        NodeView {
            node: NodeId::from(name),
            state,
            reason: None,
            cordon: None,
            faulty_in_use: None,
            slots: 1,
            job: job.map(JobId::from),
            address: "127.0.0.1:1".to_owned(),
            failure_domain: String::new(),
            refused_evidence: 0,
            lease_ms: 0,
        }
    }

    #[test]
    fn only_nodes_that_are_there_and_free_are_measured() {
        let known = [
            view("a", NodeState::Healthy, None),
            view("b", NodeState::Cordoned, None),
            view("c", NodeState::Lost, None),
            view("d", NodeState::Healthy, Some("llm")),
        ];
        let choose = |names: &[&str]| {
            let wanted: Vec<NodeId> = names.iter().map(|name| NodeId::from(*name)).collect();
            chosen(&wanted, &known)
                .map(|nodes| nodes.len())
                .map_err(|problem| problem.to_string())
        };
        assert_eq!(choose(&["a", "b", "a"]), Ok(2));
        for (names, why) in [
            (&["a", "x"][..], "no node x"),
            (&["a", "c"], "cannot measure from node c"),
            (&["a", "d"], "runs job llm"),
            (&["a", "a"], "fewer than two nodes"),
        ] {
            assert!(choose(names).is_err_and(|problem| problem.contains(why)), "{names:?}");
        }
    }
}
