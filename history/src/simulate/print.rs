//! Output of the comparison as text or JSON.

use rankguard_console::OutputFormat;
use rankguard_console::display_text::count;
use rankguard_console::listing::{self, TableColumn};
use rankguard_console::out;
use rankguard_policies::compare::{MeanEstimate, PolicyResult};
use serde::Serialize;

use super::args::{PublishedJob, SimulateArgs};
use super::{ScenarioResult, SimulationReport};

/// Result of one policy in one scenario.
#[derive(Debug, Serialize)]
struct ComparisonLine {
    job: String,
    mtbf_h: Option<f64>,
    #[serde(flatten)]
    row: PolicyResult,
}

const COLUMNS: &[TableColumn<ComparisonLine>] = &[
    ("job", |line| line.job.clone()),
    ("mtbf h", |line| {
        line.mtbf_h.map_or(String::new(), |hours| format!("{hours:.2}"))
    }),
    ("policy", |line| line.row.policy.to_string()),
    ("every s", |line| intervals(&line.row)),
    ("goodput %", |line| percent(line.row.goodput)),
    ("ETTR %", |line| percent(line.row.ettr)),
    ("behind bound", |line| {
        format!("{:.2}", 100.0 * line.row.behind_bound.mean)
    }),
    ("lost", |line| share(line.row.waste.lost)),
    ("saving", |line| share(line.row.waste.saving)),
    ("detecting", |line| share(line.row.waste.detecting)),
    ("waiting", |line| share(line.row.waste.waiting)),
    ("restoring", |line| share(line.row.waste.restoring)),
    ("resharding", |line| share(line.row.waste.resharding)),
    ("restarts/day", |line| format!("{:.2}", line.row.restarts_per_day)),
    ("main cause", |line| {
        let dearest = line.row.causes.first();
        dearest.map_or(String::new(), |cause| {
            format!("{} {:.2}", cause.name, 100.0 * cause.share)
        })
    }),
];

fn share(value: f64) -> String {
    format!("{:.2}", 100.0 * value)
}

/// Formats a mean and its interval in percent.
fn percent(of: MeanEstimate) -> String {
    format!("{:.2} [{:.2}, {:.2}]", 100.0 * of.mean, 100.0 * of.low, 100.0 * of.high)
}

fn intervals(row: &PolicyResult) -> String {
    if row.intervals_s.iter().all(Option::is_none) {
        return String::new();
    }
    let one = |interval: &Option<f64>| interval.map_or("-".to_owned(), |interval| format!("{interval:.0}"));
    row.intervals_s.iter().map(one).collect::<Vec<_>>().join("/")
}

/// Returns the label of a scenario.
pub(super) fn label(of: &ScenarioResult) -> String {
    let mut text = count(of.nodes as usize, "node");
    if of.spares > 0 {
        text.push_str(&format!(" + {}", of.spares));
    }
    if let Some(elastic) = of.elastic {
        text.push_str(&format!(", elastic by {}", elastic.unit));
    }
    if of.copies == super::CopiesArg::Neighbours {
        text.push_str(", copies on neighbours");
    }
    text
}

/// Describes the assumptions in one sentence.
pub(super) fn assumptions(args: &SimulateArgs) -> String {
    let job = super::job(args, 2, 0, super::ElasticArg::Off, super::CopiesArg::Spread);
    let tier = |tier: &rankguard_policies::job::TierCosts| {
        format!(
            "{} blocks for {} s, usable after {} s, read in {} s",
            tier.name, tier.blocking_s, tier.latency_s, tier.restore_s
        )
    };
    let tiers: Vec<String> = job.tiers.iter().map(tier).collect();
    let origin = match (args.case, args.tier.is_empty()) {
        (Some(PublishedJob::Bloom), _) => "published for BLOOM (restore time: that of an image)",
        (None, true) => "assumed",
        (None, false) => "as given",
    };
    format!(
        "step {} s; tiers, {origin}: {}; detection {} s, restart {} s, resharding {} s; {} replicates, seed {}",
        job.step_s,
        tiers.join("; "),
        job.detect_s,
        job.restart_s,
        job.reshard_s,
        args.replicates,
        args.seed
    )
}

pub(super) fn print(format: OutputFormat, answer: &SimulationReport) {
    if format == OutputFormat::Json {
        out::json(answer);
        return;
    }
    let lines: Vec<ComparisonLine> = answer
        .scenarios
        .iter()
        .flat_map(|scenario| {
            scenario.comparison.rows.iter().map(move |row| ComparisonLine {
                job: label(scenario),
                mtbf_h: scenario.comparison.mtbf_h,
                row: row.clone(),
            })
        })
        .collect();
    listing::print(format, &lines, COLUMNS);
    out::note(&answer.trace);
    for note in &answer.notes {
        out::note(note);
    }
    for scenario in &answer.scenarios {
        if let Some(expected) = scenario.projection {
            out::note(&format!(
                "{} GPUs by arXiv 2410.21680: MTTF {:.3} h, and ETTR {:.1} % at {:.0} s between images of the last tier",
                expected.gpus,
                expected.mttf_h,
                100.0 * expected.ettr,
                expected.interval_s
            ));
        }
    }
    out::note(
        "shares are percent of wall time; brackets are 95 % bootstrap intervals over replicates; the bound has perfect knowledge of failures",
    );
}
