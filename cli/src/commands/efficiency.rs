//! `rankguard efficiency`: use of the wall time of jobs, and their effective training time ratio.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use rankguard_model::{JobId, StatusView, Timestamp};
use rankguard_report::fleet::{escaped, interval};
use rankguard_summary::{JobTime, UnknownJob};

use super::case_source::JobSourceArgs;
use crate::args::{CommonArgs, OutputFormat};
use crate::display_text::job_state;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;

#[derive(Debug, Clone, Args)]
pub(crate) struct EfficiencyArgs {
    /// Jobs to report; all of the source without one
    #[arg(value_name = "JOB")]
    jobs: Vec<JobId>,
    #[command(flatten)]
    source: JobSourceArgs,
    /// Format of the output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: EfficiencyFormat,
}

/// Output format of the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum EfficiencyFormat {
    /// Aligned table for people
    #[default]
    Table,
    /// JSON: one document
    Json,
    /// JSON Lines: one job per line
    Jsonl,
    /// Comma-separated values with a header row
    Csv,
    /// Table in Markdown
    Markdown,
}

const COLUMNS: &[TableColumn<JobTime>] = &[
    ("job", |time| time.job.to_string()),
    ("state", |time| job_state(time.state).to_owned()),
    ("ETTR", ettr),
    ("wall", |time| duration(time.wall_ms)),
    ("productive", |time| duration(time.productive_ms)),
    ("repeated", |time| duration(time.repeated_ms)),
    ("starting", |time| duration(time.starting_ms)),
    ("idle", |time| duration(time.idle_ms)),
    ("waiting", |time| duration(time.waiting_ms)),
    ("without steps", |time| duration(time.unmeasured_ms)),
    ("rank hours", |time| format!("{:.3}", time.rank_hours)),
    ("rank hours lost", |time| format!("{:.3}", time.rank_hours_lost)),
];

pub(crate) fn run(args: &EfficiencyArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let Some((status, end)) = args.source.status(common)? else {
        return Err(CliError::failure(
            "the journal has no jobs",
            "name journal.redb in the state directory of a controller, or a copy of it",
        ));
    };
    let times = times(&args.jobs, &status, end)?;
    print(args.format, &times);
    super::status::note_journal_gaps(&status);
    Ok(CommandExit::Fine)
}

fn times(names: &[JobId], status: &StatusView, now: Timestamp) -> Result<Vec<JobTime>, CliError> {
    JobTime::of_jobs(&status.jobs, names, now).map_err(|UnknownJob(name)| {
        CliError::usage(
            format!("there is no job {name}"),
            "`rankguard status --all` lists the jobs of a controller",
        )
    })
}

/// Formats the ratio as a percentage; a plus marks a lower bound.
fn ettr(time: &JobTime) -> String {
    let more = if time.is_complete { "" } else { "+" };
    time.ettr
        .map_or_else(String::new, |ratio| format!("{:.1} %{more}", 100.0 * ratio))
}

fn duration(millis: i64) -> String {
    match millis {
        0 => String::new(),
        some => interval(some as f64 / 1e3),
    }
}

fn print(format: EfficiencyFormat, times: &[JobTime]) {
    match format {
        EfficiencyFormat::Table => listing::print(OutputFormat::Table, times, COLUMNS),
        EfficiencyFormat::Json => listing::print(OutputFormat::Json, times, COLUMNS),
        EfficiencyFormat::Jsonl => listing::print(OutputFormat::Jsonl, times, COLUMNS),
        EfficiencyFormat::Csv => listing::print(OutputFormat::Csv, times, COLUMNS),
        EfficiencyFormat::Markdown => out::text(&markdown(times)),
    }
}

fn markdown(times: &[JobTime]) -> String {
    let headings: Vec<&str> = COLUMNS.iter().map(|(heading, _)| *heading).collect();
    let mut text = format!("| {} |\n|{}\n", headings.join(" | "), "---|".repeat(headings.len()));
    for time in times {
        let cells: Vec<String> = COLUMNS.iter().map(|(_, cell)| escaped(&cell(time))).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}
