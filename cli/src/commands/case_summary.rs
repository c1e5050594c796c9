//! `rankguard cases summary`: cases counted by group, with their cost.

use clap::{Args, ValueEnum};
use rankguard_faults::Catalogue;
use rankguard_model::Case;
use rankguard_report::fleet;
use rankguard_summary::{CaseGrouping, FleetReport, FleetSelection};

use super::case_filter::CaseFilterArgs;
use super::case_source::{CaseSourceArgs, SourcedCases};
use crate::args::{CommonArgs, OutputFormat};
use crate::config::nearest;
use crate::error::CliError;
use crate::{listing, out};

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
    /// Report in Markdown: the figures, and the tables of groups, weeks, new classes, nodes and jobs
    Markdown,
    /// The same report as one HTML page without script and external files
    Html,
}

pub(super) fn run(args: &CasesSummaryArgs, common: &CommonArgs) -> Result<(), CliError> {
    let catalogue = Catalogue::builtin();
    let grouping = CaseGrouping::parse(&args.by, catalogue).ok_or_else(|| unknown_grouping(&args.by, catalogue))?;
    let SourcedCases {
        cases: known,
        status,
        end,
    } = args.asked.cases(common)?;
    args.filter.check(&known, status.as_ref())?;
    let cases = args.filter.page(known.clone(), None).cases;
    let (from, to) = args.filter.window(&cases, end);
    let selected: Vec<&Case> = cases.iter().collect();
    let selection = FleetSelection {
        by: &args.by,
        from,
        to,
        cases: &selected,
        known: &known,
        status: status.as_ref(),
    };
    print(args.format, &FleetReport::of(&selection, grouping, catalogue));
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

fn print(format: SummaryFormat, report: &FleetReport) {
    let groups = &report.summary.groups;
    match format {
        SummaryFormat::Json => out::json(report),
        SummaryFormat::Jsonl => groups.iter().for_each(out::json_line),
        SummaryFormat::Csv => listing::print(OutputFormat::Csv, groups, fleet::GROUP_COLUMNS),
        SummaryFormat::Markdown => out::text(&fleet::markdown(report, None)),
        SummaryFormat::Html => out::text(&fleet::html(report, "Failure report")),
        SummaryFormat::Table => {
            listing::print(OutputFormat::Table, groups, fleet::GROUP_COLUMNS);
            out::note(&fleet::selection(report));
        }
    }
}
