//! Conversion of a data set's tables to a trace.

use std::collections::BTreeMap;
use std::path::Path;

use rankguard_checkpoint_schedule::rates::FailureExtent;
use rankguard_console::error::CliError;
use rankguard_datasets::{Dataset, TableKind};
use rankguard_policies::trace::{FailureTrace, NodeFailure};

use super::args::SimulateArgs;

/// Trace with its name.
pub(super) struct NamedTrace {
    pub(super) trace: FailureTrace,
    pub(super) name: String,
}

type TextColumn = Vec<Option<String>>;
type NumberColumn = Vec<Option<f64>>;

/// Reads the failures of a data set, or its capacity.
pub(super) fn read(path: &Path, args: &SimulateArgs, notes: &mut Vec<String>) -> Result<NamedTrace, CliError> {
    let unusable = |problem: rankguard_datasets::Error| {
        CliError::failure(
            format!("cannot use {}", path.display()),
            "`rankguard dataset check PATH` lists its tables",
        )
        .because(problem)
    };
    let data = args.mapping.open(path)?;
    if data.has(TableKind::Failures) {
        failures(&data, args, notes).map_err(|problem| problem.into_cli(unusable))
    } else if data.has(TableKind::Capacity) {
        capacity(&data, args, notes).map_err(|problem| problem.into_cli(unusable))
    } else {
        let tables: Vec<&str> = data.rows.keys().map(|table| table.name()).collect();
        Err(CliError::failure(
            format!(
                "{} has neither failures nor capacity, only {}",
                data.title,
                tables.join(", ")
            ),
            "use a data set of failures or of capacity",
        ))
    }
}

/// Error of converting a table to a trace.
enum TraceProblem {
    Table(rankguard_datasets::Error),
    Said(CliError),
}

impl TraceProblem {
    fn into_cli(self, table: impl FnOnce(rankguard_datasets::Error) -> CliError) -> CliError {
        match self {
            Self::Table(problem) => table(problem),
            Self::Said(problem) => problem,
        }
    }
}

impl From<rankguard_datasets::Error> for TraceProblem {
    fn from(problem: rankguard_datasets::Error) -> Self {
        Self::Table(problem)
    }
}

impl From<CliError> for TraceProblem {
    fn from(problem: CliError) -> Self {
        Self::Said(problem)
    }
}

fn failures(data: &Dataset, args: &SimulateArgs, notes: &mut Vec<String>) -> Result<NamedTrace, TraceProblem> {
    let times = data.f64s(TableKind::Failures, "time")?;
    let repairs = data.f64s(TableKind::Failures, "repair_s")?;
    let nodes = data.strings(TableKind::Failures, "node")?;
    let systems = data.strings(TableKind::Failures, "system")?;
    let classes = data.strings(TableKind::Failures, "class")?;
    // Only a controller's own history records the scope of a failure.
    let scopes = data.strings(TableKind::Failures, "x_scope").ok();
    let stays = |at: usize| {
        scopes
            .as_ref()
            .is_some_and(|scopes| scopes[at].as_deref() == Some("process"))
    };
    let system = choose("system", &systems, &[], args.system.as_deref(), notes)?;
    let untold = (0..repairs.len()).all(|at| repairs[at].is_none() && !stays(at));
    if untold && args.repair.is_none() {
        return Err(CliError::usage(
            format!("{} has no repair times", data.title),
            "set one for all failures with --repair SECONDS",
        )
        .into());
    }
    let mut window = data.window;
    let mut ids = BTreeMap::new();
    let mut causes = BTreeMap::new();
    let mut rows = Vec::new();
    let mut without_node = 0_u64;
    let mut without_time = 0_u64;
    let mut without_repair = 0_u64;
    for (at, time) in times.iter().enumerate() {
        if system.is_some() && systems[at].as_deref() != system.as_deref() {
            continue;
        }
        let class = classes[at].as_deref().unwrap_or("unknown");
        if !args.classes.is_empty() && !args.classes.iter().any(|wanted| wanted == class) {
            continue;
        }
        let Some(time) = time.filter(|time| time.is_finite()) else {
            without_time += 1;
            continue;
        };
        let Some(node) = nodes[at].as_deref() else {
            without_node += 1;
            continue;
        };
        let scope = if stays(at) {
            FailureExtent::Process
        } else {
            FailureExtent::Node
        };
        let known = repairs[at].filter(|repair| *repair >= 0.0).or(args.repair);
        let Some(repair_s) = known.or((scope == FailureExtent::Process).then_some(0.0)) else {
            without_repair += 1;
            continue;
        };
        let next = ids.len() as u32;
        let node = *ids.entry(node.to_owned()).or_insert(next);
        let next = causes.len() as u16;
        let cause = *causes.entry(class.to_owned()).or_insert(next);
        rows.push((time, node, repair_s, cause, scope));
    }
    for (count, what) in [
        (without_time, "no time"),
        (without_node, "no node"),
        (without_repair, "no repair time, and --repair is not set"),
    ] {
        if count > 0 {
            notes.push(format!("{count} failures with {what} are omitted"));
        }
    }
    if untold {
        let repair_s = args.repair.unwrap_or_default();
        notes.push(format!(
            "the data have no repair times; --repair {repair_s} s is used for every failure"
        ));
    }
    // For a part of a data set, only the span of its own rows is known to be observed.
    if system.is_some() || window.is_none() {
        let first = rows.iter().map(|row| row.0).fold(f64::INFINITY, f64::min);
        let last = rows.iter().map(|row| row.0).fold(f64::NEG_INFINITY, f64::max);
        window = (first < last).then_some((first, last));
        notes.push(
            "the data have no observation period; the time from the first to the last failure is used".to_owned(),
        );
    }
    let Some((begin, end)) = window else {
        return Err(CliError::failure(
            "fewer than two failures at different times",
            "select others with --class and --system",
        )
        .into());
    };
    let seen = ids.len() as u32;
    let population = population(data, system.as_deref(), args)?;
    let count = population.max(seen);
    if count > population {
        notes.push(format!(
            "{seen} nodes appear, more than the stated {population}; {seen} are used"
        ));
    }
    let failures = rows.iter().map(|(time, node, repair_s, cause, scope)| NodeFailure {
        at_s: (time - begin).clamp(0.0, end - begin),
        node: *node,
        repair_s: *repair_s,
        cause: *cause,
        scope: *scope,
    });
    let mut names = vec![String::new(); causes.len()];
    for (name, at) in causes {
        names[usize::from(at)] = name;
    }
    let trace = FailureTrace::new(count, end - begin, names, failures.collect()).map_err(|problem| {
        CliError::failure(
            "cannot use the failures as a trace",
            "`rankguard dataset check PATH` shows details",
        )
        .because(problem)
    })?;
    let system = system.map(|system| format!(", system {system}")).unwrap_or_default();
    Ok(NamedTrace {
        name: format!(
            "{}{system}: {} failures of {count} nodes ({seen} of them failed) in {:.1} days",
            data.title,
            trace.failures().len(),
            trace.span_s() / 86_400.0
        ),
        trace,
    })
}

/// Chooses one of the values of a column: the given one, otherwise the one with the largest size, otherwise the one
/// with the most rows; `None` if there is at most one.
fn choose(
    what: &str,
    column: &TextColumn,
    sizes: &[Option<f64>],
    named: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<Option<String>, CliError> {
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (at, value) in column.iter().enumerate() {
        let Some(value) = value else { continue };
        let (largest, rows) = counts.entry(value).or_default();
        let size = sizes.get(at).copied().flatten().unwrap_or(0.0);
        *largest = (*largest).max(size as u64);
        *rows += 1;
    }
    let list = || counts.keys().copied().collect::<Vec<_>>().join(", ");
    match named {
        Some(name) if counts.contains_key(name) => Ok(Some(name.to_owned())),
        Some(name) => Err(CliError::usage(
            format!("there is no {what} {name:?}"),
            format!("known: {}", list()),
        )),
        None if counts.len() < 2 => Ok(None),
        None => {
            let most = counts
                .iter()
                .max_by_key(|(name, count)| (**count, std::cmp::Reverse(**name)));
            let most = most.map(|(name, _)| (*name).to_owned());
            notes.push(format!(
                "{what} {}, the largest, is used; select another with --{what}: {}",
                most.as_deref().unwrap_or_default(),
                list()
            ));
            Ok(most)
        }
    }
}

fn population(data: &Dataset, system: Option<&str>, args: &SimulateArgs) -> Result<u32, TraceProblem> {
    if let Some(given) = args.population {
        return Ok(given);
    }
    if let (Some(system), true) = (system, data.has(TableKind::Nodes)) {
        let names = data.strings(TableKind::Nodes, "system")?;
        let counts = data.f64s(TableKind::Nodes, "x_nodes");
        let counts: NumberColumn = counts.unwrap_or_default();
        let mut both = names.iter().zip(&counts);
        if let Some((_, Some(count))) = both.find(|(name, _)| name.as_deref() == Some(system)) {
            return Ok(*count as u32);
        }
    } else if let Some(population) = &data.population
        && ["node", "server"]
            .iter()
            .any(|word| population.unit.to_lowercase().contains(word))
    {
        return Ok(population.count.min(u64::from(u32::MAX)) as u32);
    }
    Err(CliError::usage(
        format!("{} has no number of observed nodes", data.title),
        "set it with --population NODES, including nodes without failures",
    )
    .into())
}

fn capacity(data: &Dataset, args: &SimulateArgs, notes: &mut Vec<String>) -> Result<NamedTrace, TraceProblem> {
    let times = data.f64s(TableKind::Capacity, "time")?;
    let zones = data.strings(TableKind::Capacity, "zone")?;
    let counts = data.f64s(TableKind::Capacity, "available")?;
    let zone = choose("zone", &zones, &counts, args.zone.as_deref(), notes)?;
    let mut points: Vec<(f64, u32)> = Vec::new();
    for ((time, count), of) in times.iter().zip(&counts).zip(&zones) {
        if zone.is_some() && *of != zone {
            continue;
        }
        if let (Some(time), Some(count)) = (time, count)
            && (0.0..=1e6).contains(count)
        {
            points.push((*time, *count as u32));
        }
    }
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (Some((begin, _)), Some((last, _))) = (points.first().copied(), points.last().copied()) else {
        return Err(CliError::failure("no capacity data", "select another zone with --zone").into());
    };
    // The last sample is valid for the mean interval between samples.
    let tick = (last - begin) / (points.len().max(2) - 1) as f64;
    for point in &mut points {
        point.0 -= begin;
    }
    let trace = FailureTrace::of_capacity(&points, last - begin + tick).map_err(|problem| {
        CliError::failure(
            "cannot use the capacity as a trace",
            "`rankguard dataset check PATH` shows details",
        )
        .because(problem)
    })?;
    notes.push("counts do not identify nodes: the node that joined last leaves first".to_owned());
    let zone = zone.map(|zone| format!(", zone {zone}")).unwrap_or_default();
    Ok(NamedTrace {
        name: format!(
            "{}{zone}: at most {} nodes, {:.1} on average, in {:.1} days",
            data.title,
            trace.nodes(),
            f64::from(trace.nodes()) * (1.0 - trace.away()),
            trace.span_s() / 86_400.0
        ),
        trace,
    })
}
