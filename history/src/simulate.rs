//! `rankguard simulate`: comparison of recovery policies on failure and capacity traces, or on generated ones.
//!
//! Several sizes, spares, placements or kinds of elasticity give all their combinations, each with every policy on the
//! same failure schedules. Values that a data set lacks (repair times, population) must be given on the command line;
//! none is assumed silently.

mod args;
mod calibrate;
mod plot;
mod print;
mod traces;

use rankguard_checkpoint_schedule::priors::{PRIOR_WEIGHT, Prior};
use rankguard_checkpoint_schedule::rates::{Rate, Rates, Scope};
use rankguard_checkpoint_schedule::spares;
use rankguard_console::error::CliError;
use rankguard_console::exit::Exit;
use rankguard_console::out;
use rankguard_policies::compare::{Comparison, Experiment, Source};
use rankguard_policies::job::{Elastic, Job, Placement, Survives};
use rankguard_policies::policy::Policy;
use rankguard_policies::projection::{Projection, project};
use rankguard_policies::synthetic::Synthetic;
use rankguard_policies::trace::{Order, Trace};
use serde::Serialize;

pub(crate) use args::SimulateArgs;
use args::{Action, Case, CopiesArg, ElasticArg};

use crate::picture;

/// Probability that the default number of spares suffices.
const ENOUGH_SPARES: f64 = 0.99;

/// One combination of the options, with its result.
#[derive(Debug, Serialize)]
struct Scenario {
    nodes: u32,
    gpus: u32,
    spares: u32,
    elastic: Option<Elastic>,
    copies: CopiesArg,
    /// Projection for this size by the publication's formulas, if the trace is generated.
    projection: Option<Projection>,
    comparison: Comparison,
}

/// Result of the whole comparison.
#[derive(Debug, Serialize)]
struct Answer {
    trace: String,
    notes: Vec<String>,
    scenarios: Vec<Scenario>,
}

pub(crate) fn run(args: &SimulateArgs) -> Result<Exit, CliError> {
    if let Some(Action::Calibrate(args)) = &args.action {
        return calibrate::run(args);
    }
    let mut notes = Vec::new();
    let policies = if args.policy.is_empty() {
        Policy::USUAL.to_vec()
    } else {
        args.policy.clone()
    };
    let prior = Prior::named(&args.prior).ok_or_else(|| {
        let known: Vec<&str> = Prior::all().iter().map(|prior| prior.id.as_str()).collect();
        CliError::usage(
            format!("there is no prior {:?}", args.prior),
            format!("there are {}", known.join(", ")),
        )
    })?;
    let per_node_hour = args.rate.unwrap_or(prior.per_node_hour());
    let (name, scenarios) = match &args.data {
        Some(path) => {
            let found = traces::read(path, args, &mut notes)?;
            let scenarios = on_history(args, &found.trace, &policies, per_node_hour, &mut notes)?;
            (found.name, scenarios)
        }
        None => {
            let name = format!(
                "made up: {per_node_hour:.3e} failures a node-hour ({}), shape {}, domains of {} nodes, repairs of {} s on average, {} days",
                args.rate.map_or(prior.title.as_str(), |_| "as given"),
                args.shape,
                args.domain,
                args.repair.unwrap_or(args::REPAIR_S),
                args.days
            );
            (name, on_synthetic(args, prior, per_node_hour, &policies)?)
        }
    };
    notes.push(print::assumptions(args));
    let answer = Answer {
        trace: name,
        notes,
        scenarios,
    };
    print::print(args.format.format, &answer);
    if let Some(file) = &args.plot {
        picture::write(file, &plot::drawing(&answer))?;
        out::note(&format!("plot: {}", file.display()));
    }
    Ok(Exit::Fine)
}

/// Returns the prior failure rate of a job.
fn belief(per_node_hour: f64) -> Rate {
    Rate {
        failures: PRIOR_WEIGHT,
        node_hours: PRIOR_WEIGHT / per_node_hour,
    }
}

fn on_history(
    args: &SimulateArgs,
    trace: &Trace,
    policies: &[Policy],
    per_node_hour: f64,
    notes: &mut Vec<String>,
) -> Result<Vec<Scenario>, CliError> {
    let counted = trace.order() == Order::Count;
    let spares = if !args.spares.is_empty() {
        args.spares.clone()
    } else if counted {
        vec![0]
    } else {
        let expected = trace.away() * f64::from(trace.nodes());
        let wanted = spares::wanted(expected, ENOUGH_SPARES)
            .unwrap_or(0)
            .min(trace.nodes() / 2);
        notes.push(format!(
            "{expected:.1} of {} nodes are away on average: {wanted} spares are enough with probability {ENOUGH_SPARES}, were losses independent",
            trace.nodes()
        ));
        vec![wanted]
    };
    notes.push(
        "replicates draw nodes and begin the clock anywhere; a job that takes all nodes of the trace is left with the clock, and its intervals tell nothing of another cluster"
            .to_owned(),
    );
    let mut scenarios = Vec::new();
    for spare in spares {
        let nodes = if args.nodes.is_empty() {
            vec![trace.nodes().saturating_sub(spare).max(1)]
        } else {
            args.nodes.clone()
        };
        for nodes in nodes {
            // Capacity traces are compared with and without elasticity.
            let usual = if counted {
                &[ElasticArg::Off, ElasticArg::Unit(1)][..]
            } else {
                &[ElasticArg::Off]
            };
            for (elastic, copies) in ways(args, usual) {
                let job = job(args, nodes, spare, elastic, copies);
                scenarios.push(scenario(
                    args,
                    &job,
                    copies,
                    Source::History(trace),
                    policies,
                    per_node_hour,
                    None,
                )?);
            }
        }
    }
    Ok(scenarios)
}

fn on_synthetic(
    args: &SimulateArgs,
    prior: &Prior,
    per_node_hour: f64,
    policies: &[Policy],
) -> Result<Vec<Scenario>, CliError> {
    let repair_s = args.repair.unwrap_or(args::REPAIR_S);
    let mut rates = Rates::default();
    for scope in Scope::ALL {
        let share = prior.share(scope);
        if share > 0.0 {
            rates.insert(scope, belief(per_node_hour * share));
        }
    }
    let lost = per_node_hour * (prior.share(Scope::Node) + prior.share(Scope::Domain) * f64::from(args.domain));
    let mut scenarios = Vec::new();
    for gpus in &args.synthetic {
        let nodes = gpus.div_ceil(args.gpus_per_node).max(1);
        let wanted = spares::wanted(spares::in_repair(nodes, lost, repair_s / 3_600.0), ENOUGH_SPARES).unwrap_or(0);
        // Losses affect whole domains.
        let usual = vec![wanted.next_multiple_of(args.domain)];
        for spare in if args.spares.is_empty() { &usual } else { &args.spares } {
            for (elastic, copies) in ways(args, &[ElasticArg::Off]) {
                let job = job(args, nodes, *spare, elastic, copies);
                let synthetic = Synthetic {
                    nodes: nodes.saturating_add(*spare),
                    span_s: args.days * 86_400.0,
                    rates: rates.clone(),
                    shape: args.shape,
                    domain: args.domain,
                    repair_s,
                };
                let stall_s = job.tiers.last().map_or(0.0, |tier| tier.blocking_s);
                let back_s = job.detect_s + job.restart_s + job.tiers.last().map_or(0.0, |tier| tier.restore_s);
                let per_node = per_node_hour * 8.0 / f64::from(args.gpus_per_node);
                let expected = project(*gpus, per_node, stall_s, back_s);
                let source = Source::Synthetic(&synthetic);
                scenarios.push(scenario(
                    args,
                    &job,
                    copies,
                    source,
                    policies,
                    per_node_hour,
                    Some(expected),
                )?);
            }
        }
    }
    Ok(scenarios)
}

/// Returns every combination of elasticity and placement.
fn ways(args: &SimulateArgs, usual: &[ElasticArg]) -> Vec<(ElasticArg, CopiesArg)> {
    let elastic = if args.elastic.is_empty() { usual } else { &args.elastic };
    let copies = if args.copies.is_empty() {
        &[CopiesArg::Spread]
    } else {
        &args.copies[..]
    };
    let both = elastic
        .iter()
        .flat_map(|elastic| copies.iter().map(move |copies| (*elastic, *copies)));
    both.collect()
}

fn job(args: &SimulateArgs, nodes: u32, spares: u32, elastic: ElasticArg, copies: CopiesArg) -> Job {
    let base = match args.case {
        Some(Case::Bloom) => Job::bloom(nodes, args.detect, args.restart),
        None => Job {
            nodes,
            spares,
            step_s: 3.0,
            tiers: args.tiers(),
            detect_s: args.detect,
            restart_s: args.restart,
            reshard_s: args.reshard,
            elastic: None,
            in_flight: 1,
        },
    };
    let mut job = Job {
        spares,
        step_s: args.step.unwrap_or(base.step_s),
        reshard_s: args.reshard,
        elastic: match elastic {
            ElasticArg::Off => None,
            ElasticArg::Unit(unit) => Some(Elastic { unit, least: unit }),
        },
        ..base
    };
    let stride = match copies {
        CopiesArg::Neighbours => 1,
        CopiesArg::Spread => args.domain,
    };
    for tier in &mut job.tiers {
        if let Survives::Peers(placement) = &mut tier.survives {
            *placement = Placement { copies: 2, stride };
        }
    }
    // A job of one node has no peers.
    if nodes < 2 {
        job.tiers.retain(|tier| !matches!(tier.survives, Survives::Peers(_)));
    }
    job
}

fn scenario(
    args: &SimulateArgs,
    job: &Job,
    copies: CopiesArg,
    source: Source<'_>,
    policies: &[Policy],
    per_node_hour: f64,
    projection: Option<Projection>,
) -> Result<Scenario, CliError> {
    let experiment = Experiment {
        job,
        source,
        policies,
        replicates: args.replicates,
        seed: args.seed,
        prior: belief(per_node_hour),
    };
    let comparison = experiment.compare().map_err(|problem| {
        CliError::failure(
            "this cannot be simulated",
            "--nodes and --spares say how large the job is, --tier what its images cost",
        )
        .because(problem)
    })?;
    Ok(Scenario {
        nodes: job.nodes,
        gpus: job.nodes.saturating_mul(args.gpus_per_node),
        spares: job.spares,
        elastic: job.elastic,
        copies,
        projection,
        comparison,
    })
}
