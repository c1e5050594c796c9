//! `rankguard slurm prolog`: gate of a node for slurmd.
//!
//! Slurm drains a node of which the prolog fails, and requeues the job. A mistake here would drain the whole cluster;
//! therefore every doubt counts as unknown, which passes by default: no answer, no configuration, a lost agent. Only a cordon
//! with a reason of Rankguard makes a node unfit, as for `slurm sync`: a mirror of a drain may be some seconds older
//! than the end of that drain.

use std::env;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rankguard_model::{NodeId, NodeState, NodeView, with_causes};
use rankguard_slurm::{NodeAvailability, Scontrol, ScontrolError, reason};
use tokio::time::timeout;

use super::controller_node;
use crate::args::CommonArgs;
use crate::client::ControllerClient;
use crate::config::FlagValue;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;
use crate::runtime::block_on;

/// Name of the node in Slurm, which slurmd sets.
const NODE_VARIABLE: &str = "SLURMD_NODENAME";

/// Result if the controller does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnknownResult {
    /// The job starts.
    Pass,
    /// Slurm drains the node.
    Fail,
}

/// Options of `slurm prolog`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PrologArgs {
    /// Result if the state of the node cannot be found out
    #[arg(long, value_enum, default_value = "pass")]
    pub(crate) when_unknown: UnknownResult,
    /// Maximum wait for the controller, and for scontrol, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub(crate) timeout: u64,
    /// Leave the drain of an unfit node to slurmd, which gives it the reason `Prolog error`
    #[arg(long)]
    pub(crate) no_drain: bool,
    /// Program scontrol of Slurm
    #[arg(long, value_name = "PROGRAM", default_value = "scontrol")]
    pub(crate) scontrol: std::path::PathBuf,
    /// Name of this node in Rankguard [default: setting agent.node]
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Address of the controller [setting agent.controller]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) controller: Option<String>,
}

/// Fitness of a node.
#[derive(Debug, PartialEq, Eq)]
enum NodeFitness {
    Fit,
    /// The node has a fault, and the cordon limit permitted no cordon.
    Faulty(String),
    Unfit(Vec<String>),
    Unknown(String),
}

pub(crate) fn run(args: &PrologArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let limit = Duration::from_secs(args.timeout);
    let (node, fitness) = match target(args, common, limit) {
        Ok((node, client)) => {
            let fitness = block_on(async {
                match timeout(limit, client.node(&node)).await {
                    Ok(Ok(view)) => fitness_of(&view),
                    Ok(Err(problem)) => NodeFitness::Unknown(problem.to_string()),
                    Err(_) => NodeFitness::Unknown(format!("no answer within {} s", args.timeout)),
                }
            });
            (
                node,
                fitness.unwrap_or_else(|problem| NodeFitness::Unknown(with_causes(&problem))),
            )
        }
        Err(problem) => (NodeId::from(""), NodeFitness::Unknown(with_causes(&problem))),
    };
    match fitness {
        NodeFitness::Fit => Ok(CommandExit::Fine),
        NodeFitness::Faulty(why) => {
            out::note(&format!("node {node} passes although it has a fault: {why}"));
            Ok(CommandExit::Fine)
        }
        NodeFitness::Unknown(why) if args.when_unknown == UnknownResult::Pass => {
            out::note(&format!(
                "the state of node {node} is unknown, and the job starts: {why}"
            ));
            Ok(CommandExit::Fine)
        }
        NodeFitness::Unknown(why) => Err(CliError::failure(
            format!("the state of node {node} is unknown: {why}"),
            "check the agent of this node and the controller; with `--when-unknown pass` jobs start all the same",
        )),
        NodeFitness::Unfit(reasons) => {
            let reasons: Vec<&str> = reasons.iter().map(String::as_str).collect();
            out::note(&format!("node {node} is unfit: {}", reasons.join("; ")));
            if !args.no_drain {
                let scontrol = Scontrol::new(args.scontrol.clone(), limit);
                let name = env::var(NODE_VARIABLE).unwrap_or_else(|_| node.to_string());
                if let Err(problem) = block_on(drain(&scontrol, &name, &reasons))? {
                    out::note(&format!("cannot drain node {name} with this reason: {problem}"));
                }
            }
            Ok(CommandExit::Finding)
        }
    }
}

/// Returns the name of this node and a client.
fn target(args: &PrologArgs, common: &CommonArgs, limit: Duration) -> Result<(NodeId, ControllerClient), CliError> {
    let config = common.settings([
        FlagValue::of("agent.node", "--node", args.node.as_deref()),
        FlagValue::of("agent.controller", "--controller", args.controller.as_deref()),
    ])?;
    let client = ControllerClient::new(&config.agent_controller(), config.network());
    let client = client.without_notes().within(limit);
    Ok((NodeId::from(config.node_name()), client))
}

fn fitness_of(view: &NodeView) -> NodeFitness {
    let node = controller_node(view);
    let own = node.own_reasons();
    let fault = view.reason.as_ref().filter(|_| view.faulty_in_use.is_some());
    if !own.is_empty() {
        NodeFitness::Unfit(own.into_iter().map(str::to_owned).collect())
    } else if view.state == NodeState::Lost {
        NodeFitness::Unknown("its agent is silent".to_owned())
    } else if let Some(fault) = fault {
        NodeFitness::Faulty(fault.clone())
    } else {
        NodeFitness::Fit
    }
}

/// Drains the node with the reason of a mirror, so that the end of the cordon ends the drain. slurmctld does not replace the
/// reason of a node that is drained already.
async fn drain(scontrol: &Scontrol, name: &str, reasons: &[&str]) -> Result<(), ScontrolError> {
    if scontrol.availability(name).await? == NodeAvailability::Open {
        scontrol.drain(name, &reason::drain_reason(reasons)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rankguard_model::{CaseId, CordonView};
    use rankguard_report::sample;

    use super::*;

    fn view(state: NodeState, reasons: &[&str]) -> NodeView {
        let (mut status, _) = sample::cluster();
        let mut view = status.nodes.remove(0);
        view.state = state;
        view.cordon = (!reasons.is_empty()).then(|| CordonView {
            since: rankguard_model::Timestamp(0),
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
            case: None,
        });
        view
    }

    #[test]
    fn only_a_reason_of_rankguard_makes_a_node_unfit() {
        let mirror = "slurm drain: fan (set by ada)";
        let unfit = |reason: &str| NodeFitness::Unfit(vec![reason.to_owned()]);
        assert_eq!(fitness_of(&view(NodeState::Healthy, &[])), NodeFitness::Fit);
        assert_eq!(fitness_of(&view(NodeState::Cordoned, &[mirror])), NodeFitness::Fit);
        assert_eq!(
            fitness_of(&view(NodeState::Cordoned, &[mirror, "ticket"])),
            unfit("ticket")
        );
        // A lost node retains its cordon; without one, silence proves no defect.
        assert_eq!(fitness_of(&view(NodeState::Lost, &["case 1: x"])), unfit("case 1: x"));
        assert!(matches!(
            fitness_of(&view(NodeState::Lost, &[])),
            NodeFitness::Unknown(_)
        ));
        // RG-6: a person decides about a fault beyond the cordon limit.
        let mut faulty = view(NodeState::Healthy, &[]);
        faulty.reason = Some("in use although faulty".to_owned());
        faulty.faulty_in_use = Some(CaseId(1));
        assert!(matches!(fitness_of(&faulty), NodeFitness::Faulty(_)));
    }
}
