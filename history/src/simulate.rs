//! `rankguard simulate`: comparison of checkpoint interval policies on recorded or generated traces of failures, or on
//! recorded traces of capacity.
//!
//! Each combination of the given sizes, spares, elasticities and placements of copies is a scenario; it runs every
//! policy on the same failure schedules. Values that a data set lacks (repair times, population) must be given on the
//! command line; none is assumed silently.

mod args;
mod calibrate;
mod plot;
mod print;
mod traces;

use rankguard_checkpoint_schedule::priors::{FailurePrior, PRIOR_WEIGHT};
use rankguard_checkpoint_schedule::rates::{FailureExtent, FailureRates, RateBelief};
use rankguard_checkpoint_schedule::spares;
use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::out;
use rankguard_policies::compare::{PolicyComparison, PolicyExperiment, ScheduleSource};
use rankguard_policies::job::{CopyPlacement, ElasticLimits, SimulatedJob, SurvivedFailures};
use rankguard_policies::policy::IntervalPolicy;
use rankguard_policies::projection::{EttrProjection, project};
use rankguard_policies::synthetic::TraceParameters;
use rankguard_policies::trace::{FailureTrace, NodeOrder};
use serde::Serialize;

pub(crate) use args::SimulateArgs;
use args::{CopiesArg, ElasticArg, PublishedJob, SimulateAction};

use crate::picture;

/// Probability with which the default number of spares suffices.
const ENOUGH_SPARES: f64 = 0.99;

/// One combination of the options, with its result.
#[derive(Debug, Serialize)]
struct ScenarioResult {
    nodes: u32,
    gpus: u32,
    spares: u32,
    elastic: Option<ElasticLimits>,
    copies: CopiesArg,
    /// Projection for this size by the formulas of Kokolis et al. (HPCA 2025), if the trace is generated.
    projection: Option<EttrProjection>,
    comparison: PolicyComparison,
}

/// Result of all scenarios.
#[derive(Debug, Serialize)]
struct SimulationReport {
    /// Description of the trace.
    trace: String,
    notes: Vec<String>,
    scenarios: Vec<ScenarioResult>,
}

/// Runs the command and prints the report. Returns an error for an unknown prior, a data set that cannot be used, or a
/// job that cannot be simulated.
pub(crate) fn run(args: &SimulateArgs) -> Result<CommandExit, CliError> {
    if let Some(SimulateAction::Calibrate(args)) = &args.action {
        return calibrate::run(args);
    }
    let mut notes = Vec::new();
    let policies = if args.policy.is_empty() {
        IntervalPolicy::USUAL.to_vec()
    } else {
        args.policy.clone()
    };
    let prior = FailurePrior::by_id(&args.prior).ok_or_else(|| {
        let known: Vec<&str> = FailurePrior::all().iter().map(|prior| prior.id.as_str()).collect();
        CliError::usage(
            format!("there is no prior {:?}", args.prior),
            format!("priors: {}", known.join(", ")),
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
                "synthetic: {per_node_hour:.3e} failures per node-hour ({}), shape {}, domains of {} nodes, repairs of {} s on average, {} days",
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
    let answer = SimulationReport {
        trace: name,
        notes,
        scenarios,
    };
    print::print(args.format.format, &answer);
    if let Some(file) = &args.plot {
        picture::write(file, &plot::drawing(&answer))?;
        out::note(&format!("plot: {}", file.display()));
    }
    Ok(CommandExit::Fine)
}

/// Returns a belief in a failure rate per node-hour with the weight of [`PRIOR_WEIGHT`] failures.
fn belief(per_node_hour: f64) -> RateBelief {
    RateBelief {
        failures: PRIOR_WEIGHT,
        node_hours: PRIOR_WEIGHT / per_node_hour,
    }
}

/// Runs the scenarios on a recorded trace. Adds notes about derived spares and about the replicates.
fn on_history(
    args: &SimulateArgs,
    trace: &FailureTrace,
    policies: &[IntervalPolicy],
    per_node_hour: f64,
    notes: &mut Vec<String>,
) -> Result<Vec<ScenarioResult>, CliError> {
    let counted = trace.order() == NodeOrder::Count;
    let spares = if !args.spares.is_empty() {
        args.spares.clone()
    } else if counted {
        vec![0]
    } else {
        let expected = trace.away() * f64::from(trace.nodes());
        let wanted = spares::required_spares(expected, ENOUGH_SPARES)
            .unwrap_or(0)
            .min(trace.nodes() / 2);
        notes.push(format!(
            "{expected:.1} of {} nodes are in repair on average: {wanted} spares suffice with probability {ENOUGH_SPARES} for independent losses",
            trace.nodes()
        ));
        vec![wanted]
    };
    notes.push(
        "replicates vary nodes and start time; for a job on all nodes of the trace only the start time varies, so its intervals do not apply to other clusters"
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
            // By default, jobs on a trace of capacity are compared with and without elasticity.
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
                    ScheduleSource::History(trace),
                    policies,
                    per_node_hour,
                    None,
                )?);
            }
        }
    }
    Ok(scenarios)
}

/// Runs the scenarios on generated traces, one for each number of GPUs in `args.synthetic`.
fn on_synthetic(
    args: &SimulateArgs,
    prior: &FailurePrior,
    per_node_hour: f64,
    policies: &[IntervalPolicy],
) -> Result<Vec<ScenarioResult>, CliError> {
    let repair_s = args.repair.unwrap_or(args::REPAIR_S);
    let mut rates = FailureRates::default();
    for scope in FailureExtent::ALL {
        let share = prior.share(scope);
        if share > 0.0 {
            rates.insert(scope, belief(per_node_hour * share));
        }
    }
    let lost = per_node_hour
        * (prior.share(FailureExtent::Node) + prior.share(FailureExtent::Domain) * f64::from(args.domain));
    let mut scenarios = Vec::new();
    for gpus in &args.synthetic {
        let nodes = gpus.div_ceil(args.gpus_per_node).max(1);
        let wanted =
            spares::required_spares(spares::in_repair(nodes, lost, repair_s / 3_600.0), ENOUGH_SPARES).unwrap_or(0);
        // A failure of a domain takes all its nodes, so spares are a multiple of the domain.
        let usual = vec![wanted.next_multiple_of(args.domain)];
        for spare in if args.spares.is_empty() { &usual } else { &args.spares } {
            for (elastic, copies) in ways(args, &[ElasticArg::Off]) {
                let job = job(args, nodes, *spare, elastic, copies);
                let synthetic = TraceParameters {
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
                let source = ScheduleSource::Synthetic(&synthetic);
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

/// Returns every combination of elasticity (by default `usual`) and placement of copies (by default spread).
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

/// Builds the job of a scenario.
fn job(args: &SimulateArgs, nodes: u32, spares: u32, elastic: ElasticArg, copies: CopiesArg) -> SimulatedJob {
    let base = match args.case {
        Some(PublishedJob::Bloom) => SimulatedJob::bloom(nodes, args.detect, args.restart),
        None => SimulatedJob {
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
    let mut job = SimulatedJob {
        spares,
        step_s: args.step.unwrap_or(base.step_s),
        reshard_s: args.reshard,
        elastic: match elastic {
            ElasticArg::Off => None,
            ElasticArg::Unit(unit) => Some(ElasticLimits { unit, least: unit }),
        },
        ..base
    };
    let stride = match copies {
        CopiesArg::Neighbours => 1,
        CopiesArg::Spread => args.domain,
    };
    for tier in &mut job.tiers {
        if let SurvivedFailures::Peers(placement) = &mut tier.survives {
            *placement = CopyPlacement { copies: 2, stride };
        }
    }
    // A job of one node has no peers to hold copies.
    if nodes < 2 {
        job.tiers
            .retain(|tier| !matches!(tier.survives, SurvivedFailures::Peers(_)));
    }
    job
}

/// Simulates every policy for one job. Returns an error if the job cannot be simulated.
fn scenario(
    args: &SimulateArgs,
    job: &SimulatedJob,
    copies: CopiesArg,
    source: ScheduleSource<'_>,
    policies: &[IntervalPolicy],
    per_node_hour: f64,
    projection: Option<EttrProjection>,
) -> Result<ScenarioResult, CliError> {
    let experiment = PolicyExperiment {
        job,
        source,
        policies,
        replicates: args.replicates,
        seed: args.seed,
        prior: belief(per_node_hour),
    };
    let comparison = experiment.compare().map_err(|problem| {
        CliError::failure(
            "cannot simulate this job",
            "set the size with --nodes and --spares, the cost of images with --tier",
        )
        .because(problem)
    })?;
    Ok(ScenarioResult {
        nodes: job.nodes,
        gpus: job.nodes.saturating_mul(args.gpus_per_node),
        spares: job.spares,
        elastic: job.elastic,
        copies,
        projection,
        comparison,
    })
}
