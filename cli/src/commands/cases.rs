//! `rankguard cases [list|summary|show|ack|comment|close|correct]`, for a controller, its journal or the agent of this node.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use rankguard_faults::classes;
use rankguard_model::{Case, CaseDelays, CaseId, CaseNoteKind, CaseState, EvidenceSource, ReasoningEntry, Timestamp};
use rankguard_proto::v1;
use serde::Serialize;

use super::case_filter::CaseFilterArgs;
use super::case_reading;
use super::case_source::{CaseSourceArgs, SourcedCases};
use super::case_summary::{self, CasesSummaryArgs};
use crate::args::{CommonArgs, ControllerAddress, DocumentFormat, DocumentFormatArgs, FormatArgs, OutputFormat};
use crate::display_text::{self, CaseDocument, case_progress, or_dash, or_empty, role};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::listing::{self, TableColumn};
use crate::out;
use crate::recovery_text;
use crate::runtime::block_on;
use crate::second_reader::{AskedReader, ShownReading};

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct CasesArgs {
    /// Action; `list` if none is given.
    #[command(subcommand)]
    pub(crate) action: Option<CasesAction>,
    /// Options of `list`.
    #[command(flatten)]
    pub(crate) list: CasesListArgs,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum CasesAction {
    /// List cases, one line each
    List(CasesListArgs),
    /// Count cases by class, layer, part, node, job, week or category of a taxonomy, with their cost
    Summary(CasesSummaryArgs),
    /// Show everything about one case
    Show(CasesShowArgs),
    /// Acknowledge a case: record that you handle it
    Ack(CaseNoteArgs),
    /// Add a comment to a case
    Comment(CaseNoteArgs),
    /// Close a case with a fault that is still present: you repaired or accept it
    Close(CaseNoteArgs),
    /// Record the correct class of a case; the verdict is kept next to it
    Correct {
        /// Number of the case
        case: u64,
        /// Correct failure class
        class: String,
        /// Reason for the correction
        #[arg(default_value = "")]
        text: String,
        #[command(flatten)]
        address: ControllerAddress,
    },
}

/// Options of `cases ack`, `cases comment` and `cases close`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CaseNoteArgs {
    /// Number of the case
    pub(crate) case: u64,
    /// Text of the note
    #[arg(default_value = "")]
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CasesListArgs {
    #[command(flatten)]
    pub(crate) asked: CaseSourceArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) filter: CaseFilterArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CasesShowArgs {
    /// Number of the case
    pub(crate) case: u64,
    /// Also ask the language model of the settings reader.url and reader.model about the redacted evidence; if it reads
    /// another class, a comment of the case asks for a review
    #[arg(long)]
    pub(crate) reader: bool,
    #[command(flatten)]
    pub(crate) asked: CaseSourceArgs,
    #[command(flatten)]
    pub(crate) format: DocumentFormatArgs,
}

const COLUMNS: &[TableColumn<Case>] = &[
    ("case", |case| case.id.to_string()),
    ("state", |case| case_progress(case).to_owned()),
    ("since", |case| case.first_at.to_string()),
    ("job", |case| or_empty(case.job.as_ref())),
    ("class", class_words),
    ("confidence", |case| format!("{:.2}", case.verdict.confidence)),
    ("blamed", |case| case.blamed_text()),
    ("first step after ms", |case| or_empty(case.delays.first_step_ms)),
    ("outcome", |case| or_empty(case.outcome.as_ref())),
];

pub(crate) fn run(args: CasesArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    match args.action.unwrap_or(CasesAction::List(args.list)) {
        CasesAction::List(args) => {
            let SourcedCases { cases, status, .. } = args.asked.cases(common)?;
            args.filter.check(&cases, status.as_ref())?;
            print(&args, cases);
            if let Some(status) = &status {
                super::status::note_journal_gaps(status);
            }
        }
        CasesAction::Summary(args) => case_summary::run(&args, common)?,
        CasesAction::Show(args) => show(&args, common)?,
        CasesAction::Ack(args) => note(args, NoteKind::Acknowledgement, common)?,
        CasesAction::Comment(args) if args.text.trim().is_empty() => {
            return Err(CliError::usage(
                "the comment is empty",
                "write `rankguard cases comment N \"TEXT\"`",
            ));
        }
        CasesAction::Comment(args) => note(args, NoteKind::Comment, common)?,
        CasesAction::Close(args) => note(args, NoteKind::Close, common)?,
        CasesAction::Correct {
            case,
            class,
            text,
            address,
        } => note(
            CaseNoteArgs { case, text, address },
            NoteKind::Correction(class),
            common,
        )?,
    }
    Ok(CommandExit::Fine)
}

/// Purpose of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NoteKind {
    Acknowledgement,
    Comment,
    Close,
    /// With the correct class.
    Correction(String),
}

/// Adds a note to a case, under the name of this user.
fn note(args: CaseNoteArgs, kind: NoteKind, common: &CommonArgs) -> Result<(), CliError> {
    let CaseNoteArgs { case, text, address } = args;
    let by = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let request = v1::CaseNoteRequest {
        id: case,
        // The audit log names a caller without an identity so.
        by: by.unwrap_or_else(|| "local".to_owned()),
        text,
        acknowledges: kind == NoteKind::Acknowledgement,
        closes: kind == NoteKind::Close,
        class: match kind {
            NoteKind::Correction(class) => Some(class),
            NoteKind::Acknowledgement | NoteKind::Comment | NoteKind::Close => None,
        },
    };
    let client = address.client(common)?;
    block_on(client.note_case(request))??;
    out::note(&format!("saved; `rankguard cases show {case}` shows the note"));
    Ok(())
}

/// Formats the class of a case, with the correction or confirmation of an operator.
fn class_words(case: &Case) -> String {
    match case.corrected_class() {
        Some(class) if *class == case.verdict.class => format!("{class} (confirmed)"),
        Some(class) => format!("{} (corrected: {class})", case.verdict.class),
        None => case.verdict.class.to_string(),
    }
}

/// Rows of a table if no limit is given; the other formats contain all cases.
const TABLE_ROWS: usize = 100;

fn print(args: &CasesListArgs, cases: Vec<Case>) {
    let limit = (args.format.format == OutputFormat::Table).then_some(TABLE_ROWS);
    let page = args.filter.page(cases, limit);
    let cases = page.cases;
    let documents = || cases.iter().map(CaseDocument);
    match args.format.format {
        OutputFormat::Json => out::json(&documents().collect::<Vec<_>>()),
        OutputFormat::Jsonl => documents().for_each(|case| out::json_line(&case)),
        OutputFormat::Csv | OutputFormat::Table => listing::print(args.format.format, &cases, COLUMNS),
    }
    for case in cases.iter().filter(|case| case.is_synthetic()) {
        out::note(&format!(
            "case {} is synthetic: based on simulated or injected evidence",
            case.id
        ));
    }
    for case in &cases {
        if let Some(decision) = &case.awaits_operator {
            out::note(&format!("case {} awaits an operator: {decision}", case.id));
        } else if case.state == CaseState::FaultPresent {
            out::note(&format!("case {}: {}", case.id, present_fault_text(case)));
        }
    }
    if cases.iter().any(|case| case.replayed) {
        out::note("these cases are replayed: based on recorded evidence, no action was taken");
    }
    if let Some(last) = cases.last().filter(|_| page.older > 0) {
        out::note(&format!(
            "{} not shown; `--after {}` lists older cases",
            display_text::count(page.older, "older case"),
            last.id
        ));
    }
    if cases.is_empty() {
        out::note("no cases");
    }
}

/// Returns true if the fault of a case belongs to ranks of a job, or to its store, and not to a machine of which an agent
/// reports the state: that does not end with the job.
fn ends_with_job(case: &Case) -> bool {
    let class = &case.verdict.class;
    let reports = |source| {
        let mut findings = case.findings.iter();
        findings.any(|finding| finding.source == source && finding.class == *class)
    };
    let is_of_ranks = RANK_FAULTS.contains(&class.as_str());
    let is_of_store = reports(EvidenceSource::Checkpoint) && !reports(EvidenceSource::Host);
    case.job.is_some() && (is_of_ranks || is_of_store)
}

/// Classes of faults of ranks and jobs that last; the end of the job, or of its generation, ends them.
const RANK_FAULTS: [&str; 4] = [
    classes::HANG_STALLED_RANKS,
    classes::HANG_NO_ERROR,
    classes::JOB_HANG,
    classes::STRAGGLER,
];

/// Describes all that ends a case with a fault that is still present.
fn present_fault_text(case: &Case) -> String {
    let job = if !ends_with_job(case) {
        ""
    } else if RANK_FAULTS.contains(&case.verdict.class.as_str()) {
        ", when its job ends (also by `rankguard cancel`) or restarts its ranks"
    } else {
        ", when its job ends (also by `rankguard cancel`)"
    };
    format!(
        "its fault is still present; the case is closed when the end of the fault is reported{job}, or by `rankguard cases close {}`",
        case.id
    )
}

fn show(args: &CasesShowArgs, common: &CommonArgs) -> Result<(), CliError> {
    let case = args.asked.case(CaseId(args.case), common)?;
    let reader = args.reader.then(|| AskedReader::configured(common)).transpose()?;
    if args.format.format == DocumentFormat::Table {
        // People read the verdict while the reader is asked.
        out::page(&page(&case));
    }
    let second_reader = reader.map(|reader| case_reading::ask(&case, &reader));
    let document = CaseWithReading {
        case: CaseDocument(&case),
        second_reader: second_reader.as_ref(),
    };
    match (args.format.format, &second_reader) {
        (DocumentFormat::Json, _) => out::json(&document),
        (DocumentFormat::Jsonl, _) => out::json_line(&document),
        (DocumentFormat::Table, Some(reading)) => out::page(&format!("\n{}\n", reading.page().join("\n"))),
        (DocumentFormat::Table, None) => {}
    }
    if let Some(reading) = &second_reader
        && let Some(address) = args.asked.controller()
    {
        case_reading::mark_for_review(&case, reading, address, common);
    }
    Ok(())
}

/// Case with the answer of the second reader, if one was asked.
#[derive(Serialize)]
struct CaseWithReading<'a> {
    #[serde(flatten)]
    case: CaseDocument<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    second_reader: Option<&'a ShownReading>,
}

/// Renders a case for the person on call: the answer first, then the evidence.
fn page(case: &Case) -> String {
    let verdict = &case.verdict;
    let mut page = CaseText(String::new());
    page.line(&format!("case {}: {}", case.id, verdict.class));
    page.fact("state", case_progress(case));
    page.fact("blamed", &case.blamed_text());
    page.fact("root rank", &or_dash(case.first_failed_rank()));
    if case.is_synthetic() {
        page.fact("synthetic", "yes: based on simulated or injected evidence");
    }
    if case.replayed {
        page.fact("replayed", "yes: based on recorded evidence, no action was taken");
    }
    page.fact(
        "verdict",
        &format!(
            "{}, {}, confidence {:.2}",
            display_text::verdict_layer(verdict),
            display_text::severity(verdict.severity),
            verdict.confidence
        ),
    );
    page.fact("job", &or_dash(case.job.as_ref()));
    page.fact("generation", &or_dash(case.generation));
    if let Some(decision) = &case.awaits_operator {
        page.fact("decision", decision);
    } else if case.state == CaseState::FaultPresent {
        page.fact("open", &present_fault_text(case));
    }
    page.fact(
        "outcome",
        case.outcome.as_deref().unwrap_or(display_text::no_outcome(case)),
    );
    page.fact("steps lost", &or_dash(case.steps_lost));

    for note in &case.notes {
        let what = match &note.kind {
            CaseNoteKind::Acknowledged => "acknowledged".to_owned(),
            CaseNoteKind::Comment => "comment".to_owned(),
            CaseNoteKind::Closed => "closed".to_owned(),
            CaseNoteKind::Corrected { class } => format!("corrected to {class}"),
        };
        let text = if note.text.is_empty() {
            String::new()
        } else {
            format!(": {}", note.text)
        };
        page.fact("note", &format!("{} {} {what}{text}", note.at, note.by));
    }

    page.heading("Action");
    if verdict.mitigation.action.is_empty() {
        page.item("none yet: evidence is being collected");
    } else {
        let advice = format!("{}: {}", verdict.mitigation.action, verdict.mitigation.advice);
        if case.plan.is_some() || !case.actions.is_empty() {
            page.item(if case.plan.is_some() {
                "done: see the plan and actions below"
            } else {
                "see the actions below"
            });
            page.item(&format!("recommended for {} in general: {advice}", verdict.class));
        } else {
            page.item(&advice);
        }
        page.item(&display_text::sources(&verdict.mitigation.recommended_by));
        page.item(&format!("{}: {}", case.clears_label(), case.clears));
    }

    page.heading("Published taxonomies");
    for (taxonomy, categories) in verdict.taxonomies.iter() {
        let names: Vec<String> = categories
            .iter()
            .map(|category| display_text::category(taxonomy, category))
            .collect();
        page.item(&format!("{}: {}", display_text::taxonomy(taxonomy), names.join("; ")));
    }

    page.heading("Reasoning");
    page.reasons(&case.reasoning, case.first_at);
    if !verdict.alternatives.is_empty() {
        let other = |(class, confidence): &(rankguard_model::ClassId, f64)| format!("{class} ({confidence:.2})");
        let others: Vec<String> = verdict.alternatives.iter().map(other).collect();
        page.item(&format!("also considered: {}", others.join(", ")));
    }

    page.heading("Evidence, in causal order");
    for finding in &case.findings {
        let since = since(finding.at, case.first_at);
        let synthetic = if finding.synthetic { " (synthetic)" } else { "" };
        page.item(&format!(
            "{since}  {:<12} {} on {}{synthetic}",
            role(finding.role),
            finding.class,
            finding.entity
        ));
        page.under(finding.text.trim_end_matches('\n'));
        page.under(&format!("why: {} [evidence {}]", finding.why, finding.evidence));
    }

    page.heading(&format!("Plan {} and actions", or_dash(case.plan)));
    page.reasons(&case.actions, case.first_at);

    page.recovery_options(case);

    page.heading("Delays after the first evidence");
    for (what, delay) in delays(&case.delays) {
        page.fact(
            what,
            &delay.map_or_else(|| "-".to_owned(), |delay| display_text::millis(delay as f64)),
        );
    }
    page.0
}

/// Returns the delays of the recovery stages, in order.
pub(crate) fn delays(delays: &CaseDelays) -> [(&'static str, Option<i64>); 6] {
    [
        ("evidence", delays.evidence_ms),
        ("case", delays.case_ms),
        ("plan", delays.plan_ms),
        ("fenced", delays.fenced_ms),
        ("launched", delays.launched_ms),
        ("first step", delays.first_step_ms),
    ]
}

fn since(at: Timestamp, first: Timestamp) -> String {
    format!("{:>+9.3} s", at.millis_since(first) as f64 / 1e3)
}

struct CaseText(String);

impl CaseText {
    /// Adds a text after `begin`. Its further lines are indented deeper than any other line of the page, so that a line end in
    /// foreign text cannot forge a fact.
    fn add(&mut self, begin: &str, text: &str) {
        let text = text.replace('\n', "\n              | ");
        let _ = writeln!(self.0, "{begin}{text}");
    }

    fn line(&mut self, text: &str) {
        self.add("", text);
    }

    fn heading(&mut self, text: &str) {
        let _ = writeln!(self.0);
        self.line(text);
    }

    fn fact(&mut self, name: &str, value: &str) {
        self.add(&format!("  {name:<11} "), value);
    }

    fn item(&mut self, text: &str) {
        self.add("  ", text);
    }

    fn under(&mut self, text: &str) {
        self.add("      ", text);
    }

    /// Adds the recovery options that were compared, if there are any.
    fn recovery_options(&mut self, case: &Case) {
        let Some(choice) = &case.recovery else { return };
        self.heading("Recovery options");
        let rows = recovery_text::option_rows(choice);
        let table = listing::text_table(recovery_text::HEADINGS, rows, None);
        table.lines().for_each(|line| self.item(line));
        let restart = recovery_text::restart_line(case);
        let lines = restart.into_iter().chain(recovery_text::input_lines(choice));
        lines.for_each(|line| self.item(&line));
    }

    fn reasons(&mut self, reasons: &[ReasoningEntry], first: Timestamp) {
        if reasons.is_empty() {
            self.item("none");
        }
        for reason in reasons {
            self.item(&format!("{}  {}", since(reason.at, first), reason.text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankguard_model::{CaseNote, Entity, Generation, JobId, NodeId};
    use rankguard_report::sample;

    #[test]
    fn a_correction_to_the_class_of_the_verdict_confirms_it() {
        let mut case = sample::cluster().1.remove(0);
        let verdict = case.verdict.class.clone();
        for (class, wanted) in [
            (verdict.clone(), format!("{verdict} (confirmed)")),
            ("gpu-thermal".into(), format!("{verdict} (corrected: gpu-thermal)")),
        ] {
            case.notes = vec![CaseNote {
                at: Timestamp(0),
                by: "ada".to_owned(),
                kind: CaseNoteKind::Corrected { class },
                text: String::new(),
            }];
            assert_eq!(class_words(&case), wanted);
        }
    }

    /// Lines of a note, of a log and of an operator's name are no facts of the page.
    #[test]
    fn a_line_end_in_foreign_text_forges_no_fact_rg_11() {
        let mut case = sample::cluster().1.remove(0);
        let forged =
            "ok\n  verdict     hardware, failure, confidence 0.99\r\n\nReasoning\ncase 9: gone\n      why: nothing";
        let expected = page(&case);
        case.notes = vec![CaseNote {
            at: Timestamp(0),
            by: format!("ada{forged}"),
            kind: CaseNoteKind::Comment,
            text: forged.to_owned(),
        }];
        case.outcome = Some(forged.to_owned());
        case.findings[0].text = forged.to_owned();
        case.findings[0].why = forged.to_owned();
        case.reasoning[0].text = forged.to_owned();
        case.verdict.blamed_part = Some(forged.to_owned());
        let shown = page(&case);
        let begins = |page: &str, begin: &str| page.lines().filter(|line| line.starts_with(begin)).count();
        for begin in ["  verdict ", "Reasoning", "case ", "      why:"] {
            assert_eq!(
                begins(&shown, begin),
                begins(&expected, begin),
                "{begin:?} in:\n{shown}"
            );
        }
    }

    #[test]
    fn a_slow_rank_is_no_finding_about_hardware_and_a_silent_node_names_no_rank() {
        let mut case = sample::cluster().1.remove(0);
        let rank = case.verdict.root_rank.expect("the sample has one");
        let shown = |case: &Case| page(case).contains(&format!("root rank   {rank}"));
        assert!(shown(&case), "{}", page(&case));
        case.verdict.class = "straggler".into();
        case.verdict.layer = "hardware".to_owned();
        case.verdict.blamed = Entity::Rank {
            job: JobId::from("digits"),
            generation: Generation(1),
            rank,
            node: NodeId::from("node-1"),
        };
        assert!(
            page(&case).contains("hardware (the layer of the class; "),
            "{}",
            page(&case)
        );
        let node = NodeId::from("node-1");
        case.verdict.class = "node-agent-silent".into();
        case.findings[0].source = EvidenceSource::Agent;
        case.findings[0].entity = Entity::Node { node };
        assert!(!shown(&case), "{}", page(&case));
    }

    #[test]
    fn a_case_with_a_present_fault_states_what_ends_it() {
        let mut case = sample::cluster().1.remove(0);
        case.state = CaseState::FaultPresent;
        let page = page(&case);
        assert!(page.contains("fault present"), "{page}");
        assert!(page.contains("`rankguard cases close 1`"), "{page}");
        assert!(page.contains("cleared by: "), "{page}");
    }

    #[test]
    fn a_case_is_shown_whole_with_the_answer_first() {
        let (_, cases) = sample::cluster();
        let page = page(&cases[0]);
        assert!(page.starts_with("case 1: gpu-fallen-off-bus\n"), "{page}");
        let headings = [
            "Action",
            "Published taxonomies",
            "Reasoning",
            "Evidence, in causal order",
            "Plan 2 and actions",
            "Delays",
        ];
        let places: Vec<Option<usize>> = headings.iter().map(|heading| page.find(heading)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{page}");
        for part in [
            "cleared in general by: ",
            "cascade",
            "why: ",
            "first step  6.21 s",
            "also considered: ",
        ] {
            assert!(page.contains(part), "{part:?} is not in:\n{page}");
        }
    }

    #[test]
    fn recovery_options_are_shown_with_their_costs_and_assumptions() {
        let (_, mut cases) = sample::cluster();
        assert!(!page(&cases[0]).contains("Recovery options"));
        cases[0].recovery = Some(sample::recovery_choice());
        cases[0].delays.plan_ms = Some(2_000);
        cases[0].delays.first_step_ms = Some(6_210);
        let page = page(&cases[0]);
        for part in [
            "  shrink            2      1855.5  restart 12.0, repeated work 1.5, missing capacity 1830.0, later growth 12.0  chosen: the only option that suffices\n",
            "  restart in place  -      -       -  ",
            "not available: 1 of its 3 nodes cannot be used\n",
            "  from the plan to the first step: predicted 4.00 s, measured 4.21 s\n",
            "  return of the lost nodes: 1800.0 s (assumed; 0 returns of nodes have been measured)\n",
        ] {
            assert!(page.contains(part), "{part:?} is not in:\n{page}");
        }
    }

    #[test]
    fn advice_beside_a_plan_is_a_general_recommendation() {
        let (_, mut cases) = sample::cluster();
        let shown = page(&cases[0]);
        let general =
            "  done: see the plan and actions below\n  recommended for gpu-fallen-off-bus in general: replace-node: ";
        assert!(shown.contains(general), "{shown}");
        cases[0].plan = None;
        cases[0].actions.clear();
        let shown = page(&cases[0]);
        assert!(shown.contains("\nAction\n  replace-node: "), "{shown}");
    }

    #[test]
    fn a_case_that_blames_no_entity_names_the_blamed_part() {
        let (_, mut cases) = sample::cluster();
        cases[0].verdict.blamed = rankguard_model::Entity::Unknown;
        assert!(
            page(&cases[0]).contains("  blamed      unknown\n"),
            "{}",
            page(&cases[0])
        );
        cases[0].verdict.blamed_part = Some("what nodes n1, n2 share".to_owned());
        let shown = page(&cases[0]);
        assert!(shown.contains("  blamed      what nodes n1, n2 share\n"), "{shown}");
    }

    #[test]
    fn a_case_that_is_not_concluded_advises_nothing() {
        let (_, mut cases) = sample::cluster();
        cases[0].verdict.mitigation = rankguard_model::RecommendedMitigation::default().into();
        let page = page(&cases[0]);
        assert!(page.contains("none yet") && !page.contains("cleared"), "{page}");
    }

    #[test]
    fn a_case_with_synthetic_evidence_is_marked() {
        let (_, mut cases) = sample::cluster();
        assert!(!page(&cases[0]).contains("synthetic"));
        cases[0].findings[0].synthetic = true;
        let page = page(&cases[0]);
        assert!(
            page.contains("synthetic   yes") && page.contains(" (synthetic)\n"),
            "{page}"
        );
    }
}
