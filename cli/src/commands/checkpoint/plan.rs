//! `rankguard checkpoint plan`: checkpoint intervals per tier, with reasons. Reads no store and no controller.

mod args;
mod text;
mod windows;

use std::collections::BTreeMap;

pub(crate) use args::PlanArgs;
use args::{TierCoverage, TierSpec};
use rankguard_checkpoint_schedule::admission::{MemoryNeed, MemoryRequest, NodeMemory};
use rankguard_checkpoint_schedule::governor::IntervalLimits;
use rankguard_checkpoint_schedule::plan::{CheckpointPlan, PlanInputs, StorageTier};
use rankguard_checkpoint_schedule::priors::FailurePrior;
use rankguard_checkpoint_schedule::rates::{FailureExtent, FailureRates, RateBelief};
use rankguard_checkpoint_schedule::windows::SaveRecommendation;
use rankguard_checkpoint_schedule::{spares, survival};
use serde::{Deserialize, Serialize};

use crate::args::OutputFormat;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing;
use crate::out;
use crate::parity::{self, ImageSurvival, ParityLanes};
use windows::WindowEffect;

/// Target probability that the spares suffice.
const SPARES_SUFFICE: f64 = 0.99;

/// Failure counts of a cluster.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureRecord {
    node_hours: f64,
    failures: BTreeMap<FailureExtent, u64>,
}

/// Expected failure rate of the job.
#[derive(Debug, Serialize)]
struct FailureEstimate {
    /// Failures per second of the whole job.
    rate: f64,
    /// Mean time between failures of the job, hours.
    mttf_h: f64,
    /// Lower and upper bound of `mttf_h` (90 % interval of the failure rate); `None` for `--mttf`.
    mttf_h_between: Option<(f64, f64)>,
    /// Known share of each scope.
    shares: BTreeMap<FailureExtent, f64>,
    /// Sources of the rate, as text.
    from: Vec<String>,
}

/// Result of the memory check.
#[derive(Debug, Serialize)]
struct MemoryCheck {
    fits: bool,
    need: Option<MemoryNeed>,
    refusal: Option<String>,
}

/// Number of spare nodes.
#[derive(Debug, Serialize)]
struct SpareCount {
    expected_in_repair: f64,
    wanted: Option<u32>,
}

/// Result of the command, as JSON contains it.
#[derive(Debug, Serialize)]
struct PlanReport {
    nodes: u32,
    state_gib_per_node: f64,
    failures: FailureEstimate,
    plan: CheckpointPlan,
    memory: Option<MemoryCheck>,
    windows: Option<WindowEffect>,
    survival: Vec<ImageSurvival>,
    spares: Option<SpareCount>,
}

pub(crate) fn run(args: &PlanArgs) -> Result<CommandExit, CliError> {
    let rating = rating(args)?;
    let question = question(args, &rating)?;
    let hint = "`rankguard checkpoint plan --help` has an example";
    let plan = question
        .solve()
        .map_err(|problem| CliError::usage(format!("cannot plan: {problem}"), hint))?;
    let state = bytes(args.state_gib / f64::from(args.nodes));
    let memory = args.memory_gib.map(|_| admission(args, state, Some(args.slots)));
    let answer = PlanReport {
        windows: windows::windows(args, &question, (&plan, memory.as_ref()))?,
        nodes: args.nodes,
        state_gib_per_node: args.state_gib / f64::from(args.nodes),
        memory,
        survival: survival(args),
        spares: args.repair_h.map(|repair| {
            // A process failure restarts ranks in place and takes no node out.
            let in_place = rating.shares.get(&FailureExtent::Process).copied().unwrap_or(0.0);
            let losses = rating.rate * (1.0 - in_place) * 3_600.0 / f64::from(args.nodes);
            let expected = spares::in_repair(args.nodes, losses, repair);
            SpareCount {
                expected_in_repair: expected,
                wanted: spares::required_spares(expected, SPARES_SUFFICE),
            }
        }),
        failures: rating,
        plan,
    };
    match args.format.format {
        OutputFormat::Json => out::json(&answer),
        OutputFormat::Jsonl => out::json_line(&answer),
        OutputFormat::Csv => listing::print(OutputFormat::Csv, &answer.plan.tiers, text::TIERS),
        OutputFormat::Table => out::page(&text::lines(&question, &answer).join("\n")),
    }
    let fits = match &answer.windows {
        Some(windows) => windows.prefer != SaveRecommendation::Neither,
        None => answer.memory.as_ref().is_none_or(|memory| memory.fits),
    };
    Ok(if fits { CommandExit::Fine } else { CommandExit::Finding })
}

fn rating(args: &PlanArgs) -> Result<FailureEstimate, CliError> {
    let prior = FailurePrior::by_id(&args.prior).ok_or_else(|| {
        let known: Vec<&str> = FailurePrior::all().iter().map(|prior| prior.id.as_str()).collect();
        CliError::usage(
            format!("there is no published figure {}", args.prior),
            format!("published figures: {}", known.join(", ")),
        )
    })?;
    let mut rates = prior.rates();
    let mut from = vec![format!("{} ({}): {}", prior.title, prior.url, prior.population)];
    if let Some(path) = &args.failures {
        let record = record(path)?;
        rates.observe_hours(record.node_hours);
        record
            .failures
            .iter()
            .for_each(|(scope, count)| rates.observe_failures(*scope, *count));
        let seen: u64 = record.failures.values().sum();
        from.push(format!(
            "{}: {} in {} node-hours, combined with a prior of {} failures",
            path.display(),
            crate::display_text::count(usize::try_from(seen).unwrap_or(usize::MAX), "failure"),
            record.node_hours,
            rankguard_checkpoint_schedule::priors::PRIOR_WEIGHT
        ));
    }
    let all = rates.per_node_hour();
    let shares = rates.iter().map(|(scope, rate)| (scope, rate.mean() / all)).collect();
    let hours = |per_node_hour: f64| 1.0 / (per_node_hour * f64::from(args.nodes));
    if let Some(mttf_h) = args.mttf {
        let from = vec![
            "--mttf".to_owned(),
            format!("split over scopes: {} ({})", prior.title, prior.url),
        ];
        let rate = 1.0 / (mttf_h * 3_600.0);
        return Ok(FailureEstimate {
            rate,
            mttf_h,
            mttf_h_between: None,
            shares,
            from,
        });
    }
    let together = together(&rates);
    Ok(FailureEstimate {
        rate: rates.per_second(args.nodes),
        mttf_h: hours(all),
        mttf_h_between: Some((hours(together.quantile(0.95)), hours(together.quantile(0.05)))),
        shares,
        from,
    })
}

/// All scopes were observed for the same hours, so their sum is again a Gamma distribution.
fn together(rates: &FailureRates) -> RateBelief {
    RateBelief {
        failures: rates.iter().map(|(_, rate)| rate.failures).sum(),
        node_hours: rates
            .iter()
            .map(|(_, rate)| rate.node_hours)
            .fold(f64::MIN_POSITIVE, f64::max),
    }
}

/// Maximum size of a file of failure counts, in bytes.
const PLAN_BYTES: u64 = 1 << 20;

fn record(path: &std::path::Path) -> Result<FailureRecord, CliError> {
    let hint = "write `node_hours = 12000` and below `[failures]` lines such as `node = 3` (process, node, domain)";
    let what = || format!("cannot use {}", path.display());
    let text = rankguard_files::read_text(path, PLAN_BYTES)
        .map_err(|problem| CliError::failure(what(), hint).because(problem))?;
    let record: FailureRecord =
        toml::from_str(&text).map_err(|problem| CliError::usage(what(), hint).because(problem))?;
    if record.node_hours.is_finite() && record.node_hours >= 0.0 {
        return Ok(record);
    }
    Err(CliError::usage(
        format!("{}: node_hours is {}, but must be 0 or more", what(), record.node_hours),
        hint,
    ))
}

fn question(args: &PlanArgs, rating: &FailureEstimate) -> Result<PlanInputs, CliError> {
    let covers = |tier: &TierSpec| match tier.covers {
        TierCoverage::Share(share) => share,
        TierCoverage::Scope(FailureExtent::Domain) => 1.0,
        TierCoverage::Scope(most) => FailureExtent::ALL
            .into_iter()
            .filter(|scope| *scope <= most)
            .filter_map(|scope| rating.shares.get(&scope))
            .sum(),
    };
    if let Some(tier) = args.tiers.iter().find(|tier| tier.latency_s < tier.blocking_s) {
        return Err(CliError::usage(
            format!(
                "tier {} has a latency of {} s, which is below its blocking time of {} s",
                tier.name, tier.latency_s, tier.blocking_s
            ),
            "the latency begins with the image; set it to the blocking time or more",
        ));
    }
    Ok(PlanInputs {
        tiers: args
            .tiers
            .iter()
            .map(|tier| StorageTier {
                name: tier.name.clone(),
                blocking_s: tier.blocking_s,
                latency_s: tier.latency_s,
                covers: covers(tier),
                restore_s: tier.restore_s,
            })
            .collect(),
        rate: rating.rate,
        detect_s: args.detect_s,
        restart_s: args.restart_s,
        queue_s: args.queue_s,
        in_flight: args.in_flight,
        step_s: args.step_s,
        limits: IntervalLimits {
            budget: args.budget.map(|percent| percent / 100.0),
            ..IntervalLimits::default()
        },
    })
}

/// A float beyond the range of u64 becomes the largest value, which no memory can hold.
fn bytes(gib: f64) -> u64 {
    (gib * f64::from(1 << 30)).ceil() as u64
}

/// Checks if a node's memory holds `state` bytes in each slot. Without slots they are windows, which have no copies on
/// other nodes. Without `--memory-gib` everything fits.
fn admission(args: &PlanArgs, state: u64, slots: Option<u32>) -> MemoryCheck {
    let wanted = MemoryRequest {
        state,
        slots: slots.unwrap_or(1),
        copies: slots.map_or(0, |_| args.copies),
        parity: args.parity.filter(|_| slots.is_some()),
        buffers: bytes(args.buffers_gib),
    };
    let has = NodeMemory {
        available: args.memory_gib.map_or(u64::MAX, bytes),
        reserve: bytes(args.reserve_gib),
    };
    match wanted.admit(&has) {
        Ok(need) => MemoryCheck {
            fits: true,
            need: Some(need),
            refusal: None,
        },
        Err(refusal) => MemoryCheck {
            fits: false,
            need: None,
            refusal: Some(refusal.to_string()),
        },
    }
}

fn survival(args: &PlanArgs) -> Vec<ImageSurvival> {
    if let Some(parity) = args.parity {
        return ParityLanes::of_any(args.nodes, parity).survival();
    }
    if args.copies == 0 {
        return Vec::new();
    }
    let parts = survival::groups(args.nodes, args.copies + 1);
    let counts = parity::LOST.into_iter().filter(|lost| *lost < args.nodes);
    counts
        .map(|lost| ImageSurvival {
            lost,
            probability: survival::survival(&parts, lost),
            exact: true,
        })
        .collect()
}
