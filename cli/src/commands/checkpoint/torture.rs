//! `rankguard checkpoint torture`: corruption and crash matrices on a scratch checkpoint.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rankguard_bench::torture::TortureError;
use rankguard_bench::torture::corruption::{self, DamageKind};
use rankguard_bench::torture::crash::{self, victim_process};
use serde::Serialize;

use super::args::TortureArgs;
use crate::args::DocumentFormat;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

/// Both matrices with their parameters.
#[derive(Debug, Serialize)]
struct TortureReport {
    seed: u64,
    /// Cases of each kind of damage. Kills, and disk faults, have as many in total, for whole images and for windows
    /// each.
    cases_each: u64,
    corruption: ResultMatrix<corruption::CorruptionRow>,
    crash: ResultMatrix<crash::CrashRow>,
}

/// A total and its rows.
#[derive(Debug, Serialize)]
struct ResultMatrix<R> {
    #[serde(flatten)]
    total: R,
    rows: Vec<R>,
}

const CORRUPTION: &[TableColumn<corruption::CorruptionRow>] = &[
    ("corruption", |row| named(&row.kind)),
    ("cases", |row| row.cases.to_string()),
    ("refused", |row| row.refused.to_string()),
    ("repaired", |row| row.repaired.to_string()),
    ("silent", |row| row.silent.to_string()),
];

const CRASH: &[TableColumn<crash::CrashRow>] = &[
    ("crash", |row| named(&row.phase)),
    ("cases", |row| row.cases.to_string()),
    ("in phase", |row| row.in_phase.to_string()),
    ("lost commits", |row| row.lost_commits.to_string()),
    ("wrong bytes", |row| row.wrong_bytes.to_string()),
    ("intervals lost max", |row| row.intervals_lost_max.to_string()),
    ("stuck", |row| row.stuck.to_string()),
];

fn named(name: &str) -> String {
    if name.is_empty() {
        "all".to_owned()
    } else {
        name.to_owned()
    }
}

/// Maximum number of failed cases that are printed; further ones are only counted.
const PRINTED: u64 = 20;
/// Interval between progress notes.
const PROGRESS: Duration = Duration::from_secs(2);

pub(super) fn run(args: &TortureArgs) -> Result<CommandExit, CliError> {
    let failed = |problem: TortureError| {
        CliError::failure(
            "cannot run the torture test",
            "check the free space and permissions of --dir",
        )
        .because(problem.to_string())
    };
    let dir = match &args.dir {
        Some(dir) => tempfile::Builder::new().prefix("rankguard-torture-").tempdir_in(dir),
        None => tempfile::Builder::new().prefix("rankguard-torture-").tempdir(),
    };
    let dir = dir.map_err(|problem| failed(problem.into()))?;
    let program = std::env::current_exe().map_err(|problem| failed(problem.into()))?;

    let all = args.cases * DamageKind::ALL.len() as u64 + crash::cases(args.cases);
    let done = AtomicU64::new(0);
    let wrong = AtomicU64::new(0);
    let printed = Mutex::new(Instant::now());
    let watch = |fault: Option<String>| {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(fault) = fault
            && wrong.fetch_add(1, Ordering::Relaxed) < PRINTED
        {
            out::note(&format!("wrong: {fault}"));
        }
        if let Ok(mut printed) = printed.try_lock()
            && printed.elapsed() >= PROGRESS
        {
            *printed = Instant::now();
            out::note(&format!("{done} of {all} cases"));
        }
    };
    let corruption = corruption::run(dir.path(), args.seed, args.cases, &DamageKind::ALL, &watch).map_err(failed)?;
    let crash = crash::run(&program, dir.path(), args.seed, args.cases, &watch).map_err(failed)?;

    let mut report = TortureReport {
        seed: args.seed,
        cases_each: args.cases,
        corruption: ResultMatrix {
            total: corruption::CorruptionRow::default(),
            rows: corruption,
        },
        crash: ResultMatrix {
            total: crash::CrashRow::default(),
            rows: crash,
        },
    };
    for row in &report.corruption.rows {
        report.corruption.total.add(row);
    }
    for row in &report.crash.rows {
        report.crash.total.add(row);
    }
    let good = report.corruption.total.is_good() && report.crash.total.is_good();
    print(args.format.format, report);
    Ok(if good { CommandExit::Fine } else { CommandExit::Finding })
}

fn print(format: DocumentFormat, mut report: TortureReport) {
    match format {
        DocumentFormat::Json => out::json(&report),
        DocumentFormat::Jsonl => out::json_line(&report),
        DocumentFormat::Table => {
            report.corruption.rows.push(report.corruption.total);
            report.crash.rows.push(report.crash.total);
            out::text(&listing::table(&report.corruption.rows, CORRUPTION));
            out::line("");
            out::text(&listing::table(&report.crash.rows, CRASH));
        }
    }
}

/// Runs the process of a victim.
pub(super) fn run_victim(errand: &str) -> Result<CommandExit, CliError> {
    let failed = |problem: String| {
        CliError::failure(
            "cannot run the victim process",
            "this command is started by `rankguard checkpoint torture` only",
        )
        .because(problem)
    };
    let errand = serde_json::from_str(errand).map_err(|problem| failed(problem.to_string()))?;
    victim_process::run(&errand).map_err(|problem| failed(problem.to_string()))?;
    Ok(CommandExit::Fine)
}
