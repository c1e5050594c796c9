//! Documents of cases.

use std::collections::BTreeMap;

use rankguard_core::Plan;
use rankguard_model::{Case, CaseDelays, CaseFinding, CaseNote, CaseNoteKind, EvidenceId, Verdict};
use serde::Serialize;
use utoipa::ToSchema;

use super::{ChoiceDocument, LogEntry, PlanDocument, UtcTime, word};

/// Case in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CaseSummary {
    /// Number of the case.
    id: u64,
    /// `open`, `recovering`, `fault-present`, `recovered` or `closed`.
    state: String,
    /// True while the case is handled, its fault is present, or it awaits a decision of an operator.
    is_open: bool,
    /// Job that failed; null if the case concerns no job.
    job: Option<String>,
    /// Generation of the job that failed.
    generation: Option<u64>,
    /// Failure class of the verdict.
    class: String,
    /// Class of the newest correction by an operator.
    corrected_class: Option<String>,
    /// Layer of the class.
    layer: String,
    /// `info`, `warning` or `failure`.
    severity: String,
    /// Blamed part or entity in words.
    blamed: String,
    /// Node of the blamed entity.
    node: Option<String>,
    /// Confidence of the verdict, 0 to 1.
    confidence: f64,
    /// Time of the earliest evidence.
    first_at: UtcTime,
    opened_at: UtcTime,
    /// Time at which the case was closed or recovered.
    closed_at: Option<UtcTime>,
    /// Outcome in words; null while the case is handled.
    outcome: Option<String>,
    /// Decision that an operator has to make.
    awaits_operator: Option<String>,
    /// True if the case rests on an injection or a simulation.
    is_drill: bool,
    /// True if the case rests on replayed evidence.
    is_replayed: bool,
    /// Optimizer steps that had to be repeated.
    steps_lost: Option<u64>,
    /// Time from the newest plan to the first step, milliseconds.
    restart_ms: Option<i64>,
    /// Time from the first evidence to the first step of the newest plan, milliseconds.
    downtime_ms: Option<i64>,
}

/// Case with its evidence, reasoning and plan.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CaseDocument {
    #[serde(flatten)]
    summary: CaseSummary,
    /// Rank at which the failure began, if the verdict has one; a slow or standing rank has not failed.
    root_rank: Option<u32>,
    /// Id of the earliest evidence in causal order.
    first_cause: Option<EvidenceReference>,
    /// Condition that clears the case.
    clears: String,
    mitigation: Mitigation,
    /// Categories of the class by taxonomy, most specific first.
    taxonomies: BTreeMap<String, Vec<String>>,
    /// Other classes that were considered, best first.
    alternatives: Vec<AlternativeClass>,
    /// Evidence, in order of first cause.
    findings: Vec<Finding>,
    /// Reasoning of the diagnosis, one sentence an entry.
    reasoning: Vec<LogEntry>,
    /// Actions that were taken, one sentence an entry.
    actions: Vec<LogEntry>,
    /// Notes of operators, oldest first.
    notes: Vec<OperatorNote>,
    delays: Delays,
    /// Newest plan of the case; null if it has none, or if the plan is no longer retained.
    plan: Option<PlanDocument>,
    /// Recovery options that were compared.
    recovery: Option<ChoiceDocument>,
}

/// Id of evidence: node and sequence number.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EvidenceReference {
    node: String,
    sequence: u64,
}

/// Action that the catalogue or the vendor recommends.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Mitigation {
    /// Id of the first action.
    action: String,
    /// The same action as an instruction.
    advice: String,
    /// Ids of the sources that recommend it.
    recommended_by: Vec<String>,
}

/// Class that was considered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AlternativeClass {
    class: String,
    confidence: f64,
}

/// Evidence with its role in the case.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Finding {
    evidence: EvidenceReference,
    at: UtcTime,
    /// Collector that observed it.
    source: String,
    /// Subject of the evidence in words.
    entity: String,
    /// Node of the evidence.
    node: Option<String>,
    class: String,
    /// `root`, `cascade`, `confirmation` or `noise`.
    role: String,
    confidence: f64,
    text: String,
    /// Reason for the role.
    why: String,
    /// True if an injection or a simulation produced it.
    is_synthetic: bool,
}

/// Note of an operator.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OperatorNote {
    at: UtcTime,
    /// Name in the certificate of the author, else the name that the client sent.
    by: String,
    /// `acknowledged`, `comment`, `closed` or `corrected`.
    kind: String,
    /// Class of a correction.
    class: Option<String>,
    text: String,
}

/// Delays in milliseconds from the first evidence.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Delays {
    evidence_ms: Option<i64>,
    case_ms: Option<i64>,
    plan_ms: Option<i64>,
    fenced_ms: Option<i64>,
    launched_ms: Option<i64>,
    first_step_ms: Option<i64>,
}

impl CaseSummary {
    pub(crate) fn of(case: &Case) -> Self {
        let verdict = &case.verdict;
        Self {
            id: case.id.0,
            state: word(&case.state),
            is_open: case.is_open(),
            job: case.job.as_ref().map(ToString::to_string),
            generation: case.generation.map(|generation| generation.0),
            class: verdict.class.to_string(),
            corrected_class: case.corrected_class().map(ToString::to_string),
            layer: verdict.layer.clone(),
            severity: word(&verdict.severity),
            blamed: case.blamed_text(),
            node: verdict.blamed.node().map(ToString::to_string),
            confidence: verdict.confidence,
            first_at: UtcTime(case.first_at),
            opened_at: UtcTime(case.opened_at),
            closed_at: case.closed_at.map(UtcTime),
            outcome: case.outcome.clone(),
            awaits_operator: case.awaits_operator.clone(),
            is_drill: case.is_synthetic(),
            is_replayed: case.replayed,
            steps_lost: case.steps_lost,
            restart_ms: case.restart_ms(),
            downtime_ms: case.delays.first_step_ms,
        }
    }
}

impl CaseDocument {
    pub(crate) fn of(case: &Case, plan: Option<&Plan>) -> Self {
        let verdict = &case.verdict;
        Self {
            summary: CaseSummary::of(case),
            root_rank: verdict.root_rank.map(|rank| rank.0),
            first_cause: verdict.first_cause.as_ref().map(EvidenceReference::of),
            clears: case.clears.clone(),
            mitigation: Mitigation::of(verdict),
            taxonomies: (*verdict.taxonomies).clone(),
            alternatives: alternatives(verdict),
            findings: case.findings.iter().map(Finding::of).collect(),
            reasoning: LogEntry::all(&case.reasoning),
            actions: LogEntry::all(&case.actions),
            notes: case.notes.iter().map(OperatorNote::of).collect(),
            delays: Delays::of(case.delays),
            plan: plan.map(PlanDocument::of),
            recovery: case.recovery.as_ref().map(ChoiceDocument::of),
        }
    }
}

fn alternatives(verdict: &Verdict) -> Vec<AlternativeClass> {
    let alternatives = verdict.alternatives.iter();
    alternatives
        .map(|(class, confidence)| AlternativeClass {
            class: class.to_string(),
            confidence: *confidence,
        })
        .collect()
}

impl EvidenceReference {
    fn of(id: &EvidenceId) -> Self {
        Self {
            node: id.node.to_string(),
            sequence: id.seq.0,
        }
    }
}

impl Mitigation {
    fn of(verdict: &Verdict) -> Self {
        let mitigation = &verdict.mitigation;
        Self {
            action: mitigation.action.clone(),
            advice: mitigation.advice.clone(),
            recommended_by: mitigation.recommended_by.clone(),
        }
    }
}

impl Finding {
    fn of(finding: &CaseFinding) -> Self {
        Self {
            evidence: EvidenceReference::of(&finding.evidence),
            at: UtcTime(finding.at),
            source: word(&finding.source),
            entity: finding.entity.to_string(),
            node: finding.node().map(ToString::to_string),
            class: finding.class.to_string(),
            role: word(&finding.role),
            confidence: finding.confidence,
            text: finding.text.clone(),
            why: finding.why.clone(),
            is_synthetic: finding.synthetic,
        }
    }
}

impl OperatorNote {
    fn of(note: &CaseNote) -> Self {
        let (kind, class) = match &note.kind {
            CaseNoteKind::Acknowledged => ("acknowledged", None),
            CaseNoteKind::Comment => ("comment", None),
            CaseNoteKind::Closed => ("closed", None),
            CaseNoteKind::Corrected { class } => ("corrected", Some(class.to_string())),
        };
        Self {
            at: UtcTime(note.at),
            by: note.by.clone(),
            kind: kind.to_owned(),
            class,
            text: note.text.clone(),
        }
    }
}

impl Delays {
    fn of(delays: CaseDelays) -> Self {
        Self {
            evidence_ms: delays.evidence_ms,
            case_ms: delays.case_ms,
            plan_ms: delays.plan_ms,
            fenced_ms: delays.fenced_ms,
            launched_ms: delays.launched_ms,
            first_step_ms: delays.first_step_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rankguard_console::display_text;
    use rankguard_model::{
        CaseDelays, CaseId, CaseState, ClassId, Entity, Generation, JobId, NodeId, Rank, Severity, Timestamp,
    };
    use serde_json::Value;

    use super::*;

    /// Fields of the HTTP document with the same fact in the JSON of `rankguard cases`.
    const SAME: [(&str, &str); 17] = [
        ("/id", "/id"),
        ("/job", "/job"),
        ("/generation", "/generation"),
        ("/class", "/verdict/class"),
        ("/layer", "/verdict/layer"),
        ("/severity", "/verdict/severity"),
        ("/confidence", "/verdict/confidence"),
        ("/root_rank", "/verdict/root_rank"),
        ("/outcome", "/outcome"),
        ("/awaits_operator", "/awaits_operator"),
        ("/steps_lost", "/steps_lost"),
        ("/is_replayed", "/replayed"),
        ("/clears", "/clears"),
        ("/delays/plan_ms", "/delays/plan_ms"),
        ("/delays/first_step_ms", "/delays/first_step_ms"),
        ("/downtime_ms", "/delays/first_step_ms"),
        ("/mitigation/action", "/verdict/mitigation/action"),
    ];

    fn states() -> impl Strategy<Value = CaseState> {
        proptest::sample::select(vec![
            CaseState::Open,
            CaseState::Recovering,
            CaseState::FaultPresent,
            CaseState::Recovered,
            CaseState::Closed,
        ])
    }

    fn cases() -> impl Strategy<Value = Case> {
        let verdict = (
            proptest::sample::select(vec!["segfault", "straggler", "hang-stalled-ranks"]),
            proptest::option::of(0_u32..9),
            0.0..1.0_f64,
        );
        let text = || proptest::option::of("[a-z ]{1,9}");
        let rest = (
            text(),
            text(),
            proptest::option::of(0_u64..99),
            proptest::option::of(0_i64..9_999),
        );
        (0_u64..99, states(), verdict, rest).prop_map(|(id, state, (class, rank, confidence), rest)| {
            let (outcome, awaits_operator, steps_lost, first_step_ms) = rest;
            let verdict = Verdict {
                class: ClassId::from(class),
                layer: "user-code".to_owned(),
                severity: Severity::Failure,
                blamed: Entity::Node {
                    node: NodeId::from("n1"),
                },
                blamed_part: None,
                root_rank: rank.map(Rank),
                first_cause: None,
                confidence,
                taxonomies: rankguard_faults::Catalogue::builtin().taxonomies_of(&ClassId::from(class)),
                mitigation: rankguard_faults::Catalogue::builtin().mitigation(&ClassId::from(class)),
                alternatives: Vec::new(),
            };
            let mut case = Case::open(CaseId(id), verdict, Timestamp(0), Timestamp(1));
            (case.state, case.outcome, case.awaits_operator) = (state, outcome, awaits_operator);
            (case.steps_lost, case.replayed) = (steps_lost, id % 2 == 0);
            case.job = steps_lost.map(|number| JobId::from(format!("job-{number}")));
            case.generation = steps_lost.map(Generation);
            case.delays = CaseDelays {
                first_step_ms,
                plan_ms: first_step_ms.map(|first| first / 2),
                ..CaseDelays::default()
            };
            case
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// The HTTP API and `rankguard cases show --format json` have the same facts of a case. The command writes the wait for
        /// an operator as a state, the API as a field of its own.
        #[test]
        fn the_command_and_the_http_api_agree_on_a_case(case in cases()) {
            let http = serde_json::to_value(CaseDocument::of(&case, None)).expect("JSON");
            let command = serde_json::to_value(display_text::CaseDocument(&case)).expect("JSON");
            // The command leaves out what is absent, and a mark that is not set.
            let fact = |document: &Value, path: &str| {
                let value = document.pointer(path).filter(|value| **value != Value::Bool(false));
                value.cloned().unwrap_or(Value::Null)
            };
            for (of_http, of_command) in SAME {
                prop_assert_eq!(fact(&http, of_http), fact(&command, of_command), "{}", of_http);
            }
            let state = if case.awaits_operator.is_some() { "awaits-decision".into() } else { fact(&http, "/state") };
            prop_assert_eq!(state, fact(&command, "/state"));
        }
    }
}
