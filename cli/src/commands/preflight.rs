//! `rankguard preflight`: checks this node against the requirements of a job, or the links between nodes.

mod pairs;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rankguard_agent::{CheckVerdict, JobRequirements, PreflightCheck};
use rankguard_console::waiting::WorkNote;
use rankguard_console::{FormatArgs, OutputFormat};
use rankguard_model::NodeId;
use serde::Serialize;

use super::{gpu_calls, local};
use crate::args::{CommonArgs, ControllerAddress};
use crate::config::FlagValue;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::runtime::block_on;
use crate::{display_text, out};

/// Taxonomy of the category column in the table; the other formats contain all taxonomies.
const SHOWN: &str = "zhang-icse2020";

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Exit codes: 0 no check failed, 1 a check failed. Resources without a requirement are reported and do not fail.
Each check names the failure class that it prevents; --format json adds its category in every published taxonomy.")]
pub(crate) struct PreflightArgs {
    /// File or directory that must exist and be readable; may be repeated
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Directory that must exist and be writable (checkpoints, logs); may be repeated
    #[arg(long = "write-path", value_name = "DIR")]
    write_paths: Vec<PathBuf>,
    /// Program that must be on PATH and executable; may be repeated
    #[arg(long = "command", value_name = "PROGRAM")]
    commands: Vec<String>,
    /// Python module that must be importable; may be repeated
    #[arg(long = "import", value_name = "MODULE")]
    imports: Vec<String>,
    /// Python interpreter of the job
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// TCP port of this node that must be free; may be repeated
    #[arg(long = "port", value_name = "PORT")]
    ports: Vec<u16>,
    /// Host name that must resolve; may be repeated
    #[arg(long = "resolve", value_name = "HOST")]
    hosts: Vec<String>,
    /// Number of GPUs that must respond
    #[arg(long, alias = "min-gpus", value_name = "N")]
    gpus: Option<u32>,
    /// Number of RDMA ports that must be active
    #[arg(long, value_name = "N")]
    links: Option<u32>,
    /// Free space that each --write-path must have, GiB
    #[arg(long, value_name = "GIB", value_parser = gibibytes)]
    disk_gib: Option<u64>,
    /// Free space that /dev/shm must have, GiB
    #[arg(long, value_name = "GIB", value_parser = gibibytes)]
    shm_gib: Option<u64>,
    /// Host memory of one rank's state, GiB; this amount times --ranks must be available
    #[arg(long, value_name = "GIB", value_parser = gibibytes)]
    state_gib: Option<u64>,
    /// Ranks of the job on this node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Maximum wait for each check that may hang, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    deadline_s: u64,
    /// Measure the links between these nodes instead, through their agents
    #[arg(long, value_name = "NODE,NODE...", value_delimiter = ',')]
    between: Vec<String>,
    /// With --between: duration of each pair's measurement, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// With --between: minimum bandwidth of every pair, Gb/s; half of what the best tenth reaches is always required
    #[arg(long, value_name = "GIGABITS", default_value_t = 0.0)]
    min_gbps: f64,
    #[command(flatten)]
    address: ControllerAddress,
    /// Root of the sysfs tree [setting agent.sysfs_root]
    #[arg(long, value_name = "DIR")]
    sysfs_root: Option<PathBuf>,
    /// Root of the procfs tree [setting agent.proc_root]
    #[arg(long, value_name = "DIR")]
    proc_root: Option<PathBuf>,
    /// Path of the GPU management library (NVML) [setting agent.nvml_library]
    #[arg(long, value_name = "FILE")]
    nvml_library: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Parses a number of GiB, such as `1.5`, to bytes.
fn gibibytes(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(gib) if gib.is_finite() && gib >= 0.0 => Ok((gib * f64::from(1 << 30)) as u64),
        _ => Err("expected a number of GiB".to_owned()),
    }
}

/// A check, with its category as text.
#[derive(Serialize)]
struct CheckRow {
    #[serde(flatten)]
    check: PreflightCheck,
    /// Categories in the table's taxonomy, as text.
    #[serde(skip)]
    shown: String,
}

const COLUMNS: &[TableColumn<CheckRow>] = &[
    ("result", |row| verdict(row.check.verdict).to_owned()),
    ("check", |row| row.check.check.to_owned()),
    ("subject", |row| row.check.subject.clone()),
    ("found", |row| row.check.found.clone()),
    ("prevents", |row| row.check.class.to_string()),
    ("Zhang et al. category", |row| row.shown.clone()),
    ("action", |row| row.check.advice.clone()),
];

fn verdict(verdict: CheckVerdict) -> &'static str {
    match verdict {
        CheckVerdict::Ok => "ok",
        CheckVerdict::Warn => "warn",
        CheckVerdict::Unknown => "unknown",
        CheckVerdict::Fail => "FAIL",
    }
}

pub(crate) fn run(args: PreflightArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    if !args.between.is_empty() {
        let client = args.address.client(common)?;
        let wanted = pairs::PairOptions {
            nodes: args.between.into_iter().map(NodeId::from).collect(),
            lasts: Duration::from_secs(args.seconds),
            least: args.min_gbps.max(0.0),
            format: args.format.format,
        };
        return block_on(pairs::run(wanted, &client))?;
    }
    let flags = [
        FlagValue::of("agent.sysfs_root", "--sysfs-root", args.sysfs_root.as_deref()),
        FlagValue::of("agent.proc_root", "--proc-root", args.proc_root.as_deref()),
        FlagValue::of("agent.nvml_library", "--nvml-library", args.nvml_library.as_deref()),
    ];
    let agent = common.settings(flags)?.agent();
    local::read_catalogue(&agent.knowledge)?;
    let need = JobRequirements {
        knowledge: agent.knowledge,
        paths: args.paths,
        write_paths: args.write_paths,
        commands: args.commands,
        imports: args.imports,
        python: args.python,
        ports: args.ports,
        hosts: args.hosts,
        gpus: args.gpus,
        links: args.links,
        disk_bytes: args.disk_gib,
        shm_bytes: args.shm_gib,
        memory_bytes: args.state_gib.map(|state| state.saturating_mul(u64::from(args.ranks))),
        deadline: Duration::from_secs(args.deadline_s),
        proc_root: agent.proc_root,
        sysfs_root: agent.sysfs_root,
        // A call is given up before the process is, so that the result can name the call.
        gpu_process: gpu_calls::helper_command(agent.nvml_library.as_deref(), Duration::from_secs(args.deadline_s) / 2),
        ..JobRequirements::default()
    };
    let note = WorkNote::start(format!("checking this node, at most {} s per check", args.deadline_s));
    let checks = rankguard_agent::preflight(&need);
    drop(note);
    Ok(print(checks, args.format.format))
}

fn print(checks: Vec<PreflightCheck>, format: OutputFormat) -> CommandExit {
    let mut counts: BTreeMap<CheckVerdict, usize> = BTreeMap::new();
    for check in &checks {
        *counts.entry(check.verdict).or_default() += 1;
    }
    let rows: Vec<CheckRow> = checks.into_iter().map(row).collect();
    listing::print(format, &rows, COLUMNS);
    let count = |verdict| counts.get(&verdict).copied().unwrap_or_default();
    out::note(&format!(
        "{}: {} ok, {}, {} unknown, {} failed",
        display_text::count(rows.len(), "check"),
        count(CheckVerdict::Ok),
        display_text::count(count(CheckVerdict::Warn), "warning"),
        count(CheckVerdict::Unknown),
        count(CheckVerdict::Fail),
    ));
    if count(CheckVerdict::Fail) > 0 {
        CommandExit::Finding
    } else {
        CommandExit::Fine
    }
}

fn row(check: PreflightCheck) -> CheckRow {
    let categories = check.prevents.get(SHOWN).into_iter().flatten();
    let names: Vec<String> = categories
        .map(|category| display_text::category(SHOWN, category))
        .collect();
    CheckRow {
        shown: names.join("; "),
        check,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_path_prevents_what_the_study_of_4960_failed_jobs_calls_path_not_found() {
        let checks = rankguard_agent::preflight(&JobRequirements {
            paths: vec!["/no/such/path/at/all".into()],
            ..JobRequirements::default()
        });
        let check = checks.into_iter().find(|check| check.check == "path");
        let row = row(check.expect("the path was asked for"));
        assert_eq!(row.check.verdict, CheckVerdict::Fail);
        assert!(row.shown.contains("Path Not Found"), "{}", row.shown);
    }

    #[test]
    fn sizes_are_gibibytes() {
        assert_eq!(gibibytes("1.5"), Ok(3 << 29));
        assert!(gibibytes("-1").is_err() && gibibytes("NaN").is_err() && gibibytes("many").is_err());
    }
}
