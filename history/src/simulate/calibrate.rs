//! `rankguard simulate calibrate`: calibration of published failure rates with a cluster's own record.
//!
//! Failures form a Poisson process for each scope; the distribution of a rate is Gamma. The published figure is the
//! prior, failures and node-hours of the data are the observation. Classes have no published figure and start with
//! Jeffreys' prior, Gamma(1/2, 0).

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use rankguard_checkpoint_schedule::priors::{FailurePrior, PRIOR_WEIGHT};
use rankguard_checkpoint_schedule::rates::{FailureExtent, RateBelief};
use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::listing::{self, TableColumn};
use rankguard_console::{FormatArgs, OutputFormat, out};
use rankguard_datasets::{Dataset, TableKind};
use serde::Serialize;

use crate::input::DataArgs;

/// Arguments of `rankguard simulate calibrate`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    from: DataArgs,
    /// Published failure rate to start with
    #[arg(long, value_name = "PRIOR", default_value = "llama3-2024")]
    prior: String,
    /// Number of observed nodes, failed or not, if the data lacks it
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    population: Option<u32>,
    /// Probability that a rate lies in its printed interval
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, value_parser = share)]
    level: f64,
    /// Output file of the fragment for `rankguard controller --config`; default: standard output
    #[arg(long, value_name = "FILE.toml")]
    out: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err("expected a share between 0 and 1".to_owned()),
    }
}

/// Distribution of one rate, before and after.
#[derive(Debug, Serialize)]
struct CalibratedRate {
    of: String,
    failures: u64,
    node_hours: f64,
    before: Option<f64>,
    mean: f64,
    low: f64,
    high: f64,
}

/// Result of the whole calibration.
#[derive(Debug, Serialize)]
struct CalibrationReport {
    data: String,
    prior: String,
    exposure: &'static str,
    scopes: Vec<CalibratedRate>,
    classes: Vec<CalibratedRate>,
    config: String,
    notes: Vec<String>,
}

const COLUMNS: &[TableColumn<CalibratedRate>] = &[
    ("of", |belief| belief.of.clone()),
    ("failures", |belief| belief.failures.to_string()),
    ("node-hours", |belief| format!("{:.1}", belief.node_hours)),
    ("published /node-h", |belief| {
        belief.before.map_or(String::new(), |rate| format!("{rate:.3e}"))
    }),
    ("estimated /node-h", |belief| format!("{:.3e}", belief.mean)),
    ("from", |belief| format!("{:.3e}", belief.low)),
    ("to", |belief| format!("{:.3e}", belief.high)),
    ("node-hours between", |belief| format!("{:.0}", 1.0 / belief.mean)),
];

pub(super) fn run(args: &CalibrateArgs) -> Result<CommandExit, CliError> {
    let prior = FailurePrior::by_id(&args.prior).ok_or_else(|| {
        let known: Vec<&str> = FailurePrior::all().iter().map(|prior| prior.id.as_str()).collect();
        CliError::usage(
            format!("there is no prior {:?}", args.prior),
            format!("priors: {}", known.join(", ")),
        )
    })?;
    let data = args.from.open()?;
    if data.problems.count("replayed") > 0 {
        return Err(CliError::failure(
            format!(
                "{} was written by a replay: its hours are not those of a cluster",
                args.from.data.display()
            ),
            "calibrate from the replayed data, or from the journal of a controller with live agents",
        ));
    }
    let answer = answer(args, prior, &data)?;
    match args.format.format {
        OutputFormat::Json => out::json(&answer),
        OutputFormat::Jsonl => answer.scopes.iter().chain(&answer.classes).for_each(out::json_line),
        OutputFormat::Csv => listing::print(OutputFormat::Csv, &answer.scopes, COLUMNS),
        OutputFormat::Table => {
            listing::print(OutputFormat::Table, &answer.scopes, COLUMNS);
            out::line("");
            listing::print(OutputFormat::Table, &answer.classes, COLUMNS);
            if args.out.is_none() {
                out::text(&format!("\n{}", answer.config));
            }
        }
    }
    answer.notes.iter().for_each(|note| out::note(&format!("note: {note}")));
    if let Some(file) = &args.out {
        std::fs::write(file, &answer.config).map_err(|problem| {
            CliError::failure(
                format!("cannot write {}", file.display()),
                "use a file in an existing folder",
            )
            .because(problem)
        })?;
        out::note(&format!(
            "{}: pass it to a new controller with --config; the policy of an existing journal does not change",
            file.display()
        ));
    }
    Ok(CommandExit::Fine)
}

fn answer(args: &CalibrateArgs, prior: &FailurePrior, data: &Dataset) -> Result<CalibrationReport, CliError> {
    let mut notes = Vec::new();
    let (node_hours, exposure) = exposure(args, data)?;
    let (scopes, classes) = counts(data, &mut notes)?;
    // The published figure has the weight of this many failures, which corresponds to this many hours.
    if node_hours < PRIOR_WEIGHT / prior.per_node_hour() {
        notes.push(format!(
            "only {node_hours:.1} node-hours observed: the published figure still outweighs these data"
        ));
    }
    notes.extend(rounding_note(node_hours));
    let lost = data.problems.rows_lost();
    if lost > 0 {
        notes.push(format!(
            "{lost} rows lost; `rankguard dataset check PATH` shows the reasons"
        ));
    }
    let tail = 0.5 * (1.0 - args.level);
    let belief = |of: String, before: Option<RateBelief>, failures: u64| {
        // Jeffreys' prior has no hours of its own.
        let mut rate = before.unwrap_or(RateBelief {
            failures: 0.5,
            node_hours: 0.0,
        });
        rate.observe(failures, node_hours);
        CalibratedRate {
            of,
            failures,
            node_hours,
            before: before.map(|rate| rate.mean()),
            mean: rate.mean(),
            low: rate.quantile(tail),
            high: rate.quantile(1.0 - tail),
        }
    };
    let of = |scope: FailureExtent| scopes.get(&scope).copied().unwrap_or(0);
    let before = prior.rates();
    let by_scope = FailureExtent::ALL
        .into_iter()
        .map(|scope| belief(scope.to_string(), before.get(scope).copied(), of(scope)));
    let mut by_class: Vec<CalibratedRate> = classes
        .into_iter()
        .map(|(class, failures)| belief(class, None, failures))
        .collect();
    by_class.sort_by(|one, other| other.failures.cmp(&one.failures).then_with(|| one.of.cmp(&other.of)));
    let window = data.window.map_or(String::new(), |(from, to)| {
        format!(" over {:.2} days", (to - from) / 86_400.0)
    });
    let config = format!(
        "# {}{window}: counted by `rankguard simulate calibrate`\n[controller.policy]\nprior = \"{}\"\n\n[controller.policy.record]\n\
         node_hours = {:.0}{}\nprocess_failures = {}\nnode_failures = {}\ndomain_failures = {}\n",
        data.title,
        prior.id,
        whole_hours(node_hours),
        rounding_comment(node_hours),
        of(FailureExtent::Process),
        of(FailureExtent::Node),
        of(FailureExtent::Domain)
    );
    Ok(CalibrationReport {
        data: data.title.to_owned(),
        prior: prior.title.clone(),
        exposure,
        scopes: by_scope.collect(),
        classes: by_class,
        config,
        notes,
    })
}

/// Returns the node-hours as the whole number that the controller takes: the nearest one, and at least 1, so that
/// failures in less than half an hour do not give a division by zero.
fn whole_hours(node_hours: f64) -> f64 {
    node_hours.round().max(1.0)
}

/// Returns a comment for the fragment where its whole number is not the number of the table, which has one decimal.
fn rounding_comment(node_hours: f64) -> String {
    if (whole_hours(node_hours) - node_hours).abs() < 0.05 {
        return String::new();
    }
    format!(" # {node_hours:.1} observed; the controller takes whole hours, at least 1")
}

/// Returns a note if the whole number differs from the observed node-hours by a tenth or more.
fn rounding_note(node_hours: f64) -> Option<String> {
    let written = whole_hours(node_hours);
    let is_far = (written - node_hours).abs() * 10.0 >= written;
    is_far.then(|| {
        format!(
            "the controller takes whole node-hours: node_hours = {written:.0} in the fragment stands for {node_hours:.3}, so that its \
             rates are {:.2} times these; use the history of a longer time",
            node_hours / written
        )
    })
}

/// Returns the node-hours in which a failure would have been observed, and the method of counting.
fn exposure(args: &CalibrateArgs, data: &Dataset) -> Result<(f64, &'static str), CliError> {
    if data.has(TableKind::Outages) && args.population.is_none() {
        let starts = data.f64s(TableKind::Outages, "start").map_err(unusable)?;
        let ends = data.f64s(TableKind::Outages, "end").map_err(unusable)?;
        let states = data.strings(TableKind::Outages, "state").map_err(unusable)?;
        let up = states.iter().map(|state| state.as_deref() == Some("up"));
        let seconds: f64 = starts
            .iter()
            .zip(&ends)
            .zip(up)
            .filter_map(|((start, end), up)| up.then_some((*end)? - (*start)?))
            .map(|seconds| seconds.max(0.0))
            .sum();
        if seconds > 0.0 {
            return Ok((seconds / 3_600.0, "intervals in which nodes were up"));
        }
    }
    let stated = data
        .population
        .filter(|stated| stated.unit.to_lowercase().contains("node") || stated.unit.to_lowercase().contains("server"));
    let nodes = args
        .population
        .map(f64::from)
        .or(stated.map(|stated| stated.count as f64));
    let Some(nodes) = nodes else {
        return Err(CliError::usage(
            format!("{} has no number of observed nodes", data.title),
            "set it with --population NODES, including nodes without failures",
        ));
    };
    match data.window {
        Some((from, to)) if to > from => Ok((nodes * (to - from) / 3_600.0, "all nodes over the whole window")),
        _ => Err(CliError::failure(
            format!("{} has no observation period", data.title),
            "a rate requires a period; `rankguard dataset info` describes the data",
        )),
    }
}

type ScopeCounts = BTreeMap<FailureExtent, u64>;
type ClassCounts = BTreeMap<String, u64>;

/// Returns failures by scope and by class.
fn counts(data: &Dataset, notes: &mut Vec<String>) -> Result<(ScopeCounts, ClassCounts), CliError> {
    let classes = data.strings(TableKind::Failures, "class").map_err(unusable)?;
    // Only a controller's own history has these columns.
    let scopes = data.strings(TableKind::Failures, "x_scope").ok();
    let synthetic = data.f64s(TableKind::Failures, "x_synthetic").ok();
    let layers = data.strings(TableKind::Failures, "x_layer").unwrap_or_default();
    let by_users = layers
        .iter()
        .flatten()
        .filter(|layer| layer.starts_with("user-"))
        .count();
    if by_users > 0 {
        notes.push(format!(
            "{by_users} failures of user programs or data are included, as in the controller"
        ));
    }
    let mut by_scope = ScopeCounts::new();
    let mut by_class = ClassCounts::new();
    let mut made_up = 0_u64;
    for (at, class) in classes.iter().enumerate() {
        if synthetic.as_ref().is_some_and(|made_up| made_up[at] == Some(1.0)) {
            made_up += 1;
            continue;
        }
        let scope = match scopes.as_ref().and_then(|scopes| scopes[at].as_deref()) {
            Some("process") => FailureExtent::Process,
            Some("domain") => FailureExtent::Domain,
            _ => FailureExtent::Node,
        };
        *by_scope.entry(scope).or_default() += 1;
        *by_class
            .entry(class.as_deref().unwrap_or("unknown").to_owned())
            .or_default() += 1;
    }
    if scopes.is_none() {
        notes.push("the data have no extent of failures: each counts as a failure of its node".to_owned());
    }
    if made_up > 0 {
        notes.push(format!("{made_up} simulated or injected failures are omitted"));
    }
    Ok((by_scope, by_class))
}

fn unusable(problem: rankguard_datasets::Error) -> CliError {
    CliError::failure(
        "the data have no usable failures",
        "`rankguard dataset check PATH` lists the tables",
    )
    .because(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fragment_has_the_node_hours_of_the_table() {
        let written = [0.0, 0.2, 1.04, 1.4, 1.6, 81_233.6].map(whole_hours);
        assert_eq!(written, [1.0, 1.0, 1.0, 1.0, 2.0, 81_234.0]);
    }

    #[test]
    fn the_fragment_names_the_observed_hours_beside_other_ones() {
        assert!(rounding_comment(0.1).contains("0.1 observed"));
        assert!(rounding_comment(20.4).contains("20.4 observed"));
        assert_eq!(rounding_comment(20.02), "");
    }

    #[test]
    fn a_tenth_of_an_hour_is_not_called_an_hour() {
        let note = rounding_note(0.1).unwrap_or_default();
        assert!(
            note.contains("node_hours = 1 in the fragment stands for 0.100") && note.contains("0.10 times"),
            "{note}"
        );
        assert!(rounding_note(1.4).is_some_and(|note| note.contains("1.40 times")));
        for hours in [1.05, 20.4, 81_233.6] {
            assert_eq!(rounding_note(hours), None, "{hours}");
        }
    }
}
