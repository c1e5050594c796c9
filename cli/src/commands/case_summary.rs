//! `rankguard cases summary`: cases counted by group, with their cost.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use rankguard_faults::Catalogue;
use rankguard_model::{NodeId, Rank, StatusView, Timestamp, printable};
use rankguard_summary::{CaseGroup, CaseGrouping, CaseSummary, RankCounts, SummaryInput};
use serde::Serialize;

use super::case_filter::CaseFilterArgs;
use super::case_source::{CaseSourceArgs, SourcedCases};
use crate::args::{CommonArgs, OutputFormat};
use crate::config::nearest;
use crate::display_text;
use crate::error::CliError;
use crate::listing::{self, TableColumn};
use crate::out;

#[derive(Debug, Clone, Args)]
pub(crate) struct CasesSummaryArgs {
    /// Group the cases by class, layer, blamed, node, failure-domain, job, week, or the id of a taxonomy
    #[arg(long, value_name = "GROUPING", default_value = "class")]
    by: String,
    #[command(flatten)]
    asked: CaseSourceArgs,
    /// Format of the output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: SummaryFormat,
    #[command(flatten)]
    filter: CaseFilterArgs,
}

/// Output format of a summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum SummaryFormat {
    /// Aligned table for people
    #[default]
    Table,
    /// JSON: one document
    Json,
    /// JSON Lines: one group per line
    Jsonl,
    /// Comma-separated values with a header row
    Csv,
    /// Table in Markdown, with the selection above it
    Markdown,
}

/// Summary with its selection.
#[derive(Debug, Serialize)]
struct SummaryDocument<'a> {
    by: &'a str,
    /// Beginning and end of the selection: `--since` or the first selected case, `--until` or the end of the source.
    from: Option<Timestamp>,
    to: Timestamp,
    #[serde(flatten)]
    summary: &'a CaseSummary,
}

const COLUMNS: &[TableColumn<CaseGroup>] = &[
    ("group", |group| group.name.clone()),
    ("cases", |group| group.cases.to_string()),
    ("open", |group| group.open.to_string()),
    ("jobs", |group| group.jobs.to_string()),
    ("recoveries", |group| group.recoveries.to_string()),
    ("mean recovery", |group| {
        group.mean_recovery_ms().map_or_else(String::new, seconds)
    }),
    ("downtime", |group| match group.recoveries {
        0 => String::new(),
        _ => seconds(group.downtime_ms),
    }),
    ("rank hours lost", rank_hours),
    ("steps lost", |group| group.steps_lost.to_string()),
    ("first", |group| group.first_at.to_string()),
    ("newest", |group| group.newest_at.to_string()),
    ("newest case", |group| group.newest_case.to_string()),
];

pub(super) fn run(args: &CasesSummaryArgs, common: &CommonArgs) -> Result<(), CliError> {
    let catalogue = Catalogue::builtin();
    let grouping = CaseGrouping::parse(&args.by, catalogue).ok_or_else(|| unknown_grouping(&args.by, catalogue))?;
    let SourcedCases { cases, status, end } = args.asked.cases(common)?;
    args.filter.check(&cases, status.as_ref())?;
    let cases = args.filter.page(cases, None).cases;
    let domains = status.as_ref().map(domains).unwrap_or_default();
    let ranks = status.as_ref().map(rank_counts).unwrap_or_default();
    let input = SummaryInput {
        catalogue,
        domain_of: &|node| domains.get(node).cloned(),
        ranks: &ranks,
    };
    let summary = CaseSummary::of(&cases, grouping, &input);
    let (from, to) = args.filter.window(&cases, end);
    print(args, &summary, from, to);
    if let Some(status) = &status {
        super::status::note_journal_gaps(status);
    }
    Ok(())
}

fn unknown_grouping(name: &str, catalogue: &Catalogue) -> CliError {
    let known: Vec<&str> = CaseGrouping::NAMES
        .into_iter()
        .chain(catalogue.taxonomy_ids())
        .collect();
    let near = nearest(name, known.iter().copied()).map_or_else(String::new, |near| format!("did you mean {near}? "));
    CliError::usage(
        format!("there is no grouping {name:?}"),
        format!(
            "{near}use {}, or the id of a taxonomy (`rankguard taxonomy ls`)",
            CaseGrouping::NAMES.join(", ")
        ),
    )
}

fn domains(status: &StatusView) -> BTreeMap<NodeId, String> {
    let nodes = status.nodes.iter();
    nodes
        .map(|node| (node.node.clone(), node.failure_domain.clone()))
        .collect()
}

/// Counts the ranks of each generation that the status still has.
fn rank_counts(status: &StatusView) -> RankCounts {
    let mut counts = RankCounts::new();
    for job in &status.jobs {
        let mut ranks: BTreeMap<_, BTreeSet<Rank>> = BTreeMap::new();
        for span in &job.spans {
            if let Some((generation, rank)) = span.generation.zip(span.rank) {
                ranks.entry(generation).or_default().insert(rank);
            }
        }
        for (generation, ranks) in ranks {
            counts.insert((job.spec.id.clone(), generation), ranks.len() as u64);
        }
    }
    counts
}

fn seconds(millis: i64) -> String {
    format!("{:.1} s", millis as f64 / 1_000.0)
}

/// Formats the lost hours of ranks; a plus states that the size of some generations is not known.
fn rank_hours(group: &CaseGroup) -> String {
    let known = group.recoveries > group.recoveries_of_unknown_size;
    let more = if group.recoveries_of_unknown_size > 0 { "+" } else { "" };
    if known {
        format!("{:.3}{more}", group.rank_hours_lost)
    } else {
        String::new()
    }
}

fn print(args: &CasesSummaryArgs, summary: &CaseSummary, from: Option<Timestamp>, to: Timestamp) {
    let groups = &summary.groups;
    match args.format {
        SummaryFormat::Json => out::json(&SummaryDocument {
            by: &args.by,
            from,
            to,
            summary,
        }),
        SummaryFormat::Jsonl => groups.iter().for_each(out::json_line),
        SummaryFormat::Csv => listing::print(OutputFormat::Csv, groups, COLUMNS),
        SummaryFormat::Markdown => out::text(&markdown(args, summary, from, to)),
        SummaryFormat::Table => {
            listing::print(OutputFormat::Table, groups, COLUMNS);
            out::note(&selection(args, summary, from, to));
        }
    }
}

/// Formats a time between cases in the unit that shows it.
pub(super) fn interval(seconds: f64) -> String {
    match seconds {
        short if short < 600.0 => display_text::millis((short * 1e3).round()),
        medium if medium < 3_600.0 => format!("{:.1} min", medium / 60.0),
        long => format!("{:.2} h", long / 3_600.0),
    }
}

/// Describes the selection in a sentence.
fn selection(args: &CasesSummaryArgs, summary: &CaseSummary, from: Option<Timestamp>, to: Timestamp) -> String {
    let cases = display_text::count(usize::try_from(summary.cases).unwrap_or(usize::MAX), "case");
    let mut text = match from {
        Some(from) => format!("{cases} by {} from {from} to {to}", args.by),
        None => format!("{cases} by {}", args.by),
    };
    if let Some(from) = from
        && summary.cases > 0
    {
        let seconds = to.since(from).as_secs_f64() / summary.cases as f64;
        let _ = write!(text, ", one every {}", interval(seconds));
    }
    if summary.without_group > 0 {
        let _ = write!(text, "; {} of them without a group", summary.without_group);
    }
    text
}

/// Renders the summary as Markdown; bars of foreign text are escaped.
fn markdown(args: &CasesSummaryArgs, summary: &CaseSummary, from: Option<Timestamp>, to: Timestamp) -> String {
    let mut text = format!("{}.\n\n", selection(args, summary, from, to));
    let headings: Vec<&str> = COLUMNS.iter().map(|(heading, _)| *heading).collect();
    let _ = writeln!(text, "| {} |", headings.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(headings.len()));
    for group in &summary.groups {
        let cell = |cell: fn(&CaseGroup) -> String| escaped(&cell(group));
        let cells: Vec<String> = COLUMNS.iter().map(|(_, column)| cell(*column)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// Escapes characters that Markdown or HTML reads as marks.
pub(super) fn escaped(cell: &str) -> String {
    let mut text = String::new();
    for c in printable(cell).chars() {
        if matches!(c, '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}
