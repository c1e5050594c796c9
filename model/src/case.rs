//! Cases: findings of one failure, the verdict drawn from them and the actions taken.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    CaseFinding, CaseId, ClassId, Entity, EvidenceId, EvidenceSource, Generation, JobId, PlanId, Rank, RecoveryChoice,
    Role, SharedValue, Timestamp,
};

/// Record of one failure, from the first evidence to the outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Case number, counted from 1.
    pub id: CaseId,
    /// State in the life cycle.
    pub state: CaseState,
    /// Job that failed; absent when the case concerns no job.
    pub job: Option<JobId>,
    /// Generation of the job that failed.
    pub generation: Option<Generation>,
    /// Time of the earliest evidence.
    pub first_at: Timestamp,
    /// Time at which the controller opened the case.
    pub opened_at: Timestamp,
    /// Time at which the case was closed or recovered.
    pub closed_at: Option<Timestamp>,
    /// Verdict so far; class `unknown` while evidence is gathered.
    pub verdict: Verdict,
    /// Findings behind the verdict, in order of first cause.
    pub findings: Vec<CaseFinding>,
    /// Reasoning log for the engineer on call, one sentence an entry.
    pub reasoning: Vec<ReasoningEntry>,
    /// Newest plan made for this case.
    pub plan: Option<PlanId>,
    /// Recovery options that were compared for this case, and the newest choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryChoice>,
    /// Actions taken for this case, one sentence an entry.
    pub actions: Vec<ReasoningEntry>,
    /// Outcome in words; absent while the case is gathering evidence or recovering.
    pub outcome: Option<String>,
    /// Evidence that clears the case, in words (RG-10).
    pub clears: String,
    /// Delays of detection and recovery.
    pub delays: CaseDelays,
    /// Optimizer steps that had to be repeated.
    pub steps_lost: Option<u64>,
    /// Notes by operators, oldest first. A note never changes the verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<CaseNote>,
    /// True if the case rests on replayed recorded evidence; no action was taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// Decision that an operator has to make; the case counts as open until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits_operator: Option<String>,
}

impl Case {
    /// Returns an open case with a verdict and earliest evidence of `first_at`, and nothing else.
    pub fn open(id: CaseId, verdict: Verdict, first_at: Timestamp, opened_at: Timestamp) -> Self {
        Self {
            id,
            state: CaseState::Open,
            job: None,
            generation: None,
            first_at,
            opened_at,
            closed_at: None,
            verdict,
            findings: Vec::new(),
            reasoning: Vec::new(),
            plan: None,
            recovery: None,
            actions: Vec::new(),
            outcome: None,
            clears: String::new(),
            delays: CaseDelays::default(),
            steps_lost: None,
            notes: Vec::new(),
            replayed: false,
            awaits_operator: None,
        }
    }

    /// Returns true if the case is being handled, its fault is still present, or it awaits a decision of an operator.
    pub fn is_open(&self) -> bool {
        let is_ended = matches!(self.state, CaseState::Recovered | CaseState::Closed);
        !is_ended || self.awaits_operator.is_some()
    }

    /// Returns the measured time from the newest plan to the first step, milliseconds.
    pub fn restart_ms(&self) -> Option<i64> {
        Some(self.delays.first_step_ms? - self.delays.plan_ms?)
    }

    /// Returns the words before its clearing condition. A case ends with its outcome, which may come before the fault itself
    /// is cleared.
    pub fn clears_label(&self) -> &'static str {
        if self.is_open() {
            "cleared by"
        } else {
            "cleared in general by"
        }
    }

    /// Returns the blamed part or entity in words.
    pub fn blamed_text(&self) -> String {
        let verdict = &self.verdict;
        verdict
            .blamed_part
            .clone()
            .unwrap_or_else(|| verdict.blamed.to_string())
    }

    /// Returns the rank that failed first if evidence shows it. Reports from the ranks of a silent agent are missing, and
    /// several ranks that report the same fault of storage share it.
    pub fn first_failed_rank(&self) -> Option<Rank> {
        let rank = self.verdict.root_rank?;
        let root = self.findings.iter().find(|finding| finding.role == Role::Root)?;
        let is_of_rank = |finding: &&CaseFinding| finding.entity.rank() == Some(rank);
        let is_watch = root.source == EvidenceSource::Agent && !is_of_rank(&root);
        let is_same_elsewhere = |finding: &CaseFinding| {
            let is_confirmed = finding.role == Role::Confirmation && finding.class == root.class;
            is_confirmed && finding.entity.rank().is_some_and(|other| other != rank)
        };
        let is_shared = self.verdict.layer == "storage" && self.findings.iter().any(is_same_elsewhere);
        (!is_watch && !is_shared).then_some(rank)
    }

    /// Returns the class of the newest correction by an operator: a label for studies of verdicts.
    pub fn corrected_class(&self) -> Option<&ClassId> {
        self.notes.iter().rev().find_map(|note| match &note.kind {
            CaseNoteKind::Corrected { class } => Some(class),
            CaseNoteKind::Acknowledged | CaseNoteKind::Comment | CaseNoteKind::Closed => None,
        })
    }

    /// Returns true if the case rests on an injection or a simulation.
    pub fn is_synthetic(&self) -> bool {
        rests_on_drill(&self.findings)
    }
}

/// Returns true if the first cause or a confirmation is synthetic; without a first cause, if any finding is.
pub fn rests_on_drill(findings: &[CaseFinding]) -> bool {
    let has_root = findings.iter().any(|finding| finding.role == Role::Root);
    let is_ground = |finding: &CaseFinding| !has_root || matches!(finding.role, Role::Root | Role::Confirmation);
    findings.iter().any(|finding| finding.synthetic && is_ground(finding))
}

/// Life-cycle state of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaseState {
    /// Evidence is being gathered.
    Open,
    /// The verdict is concluded and a plan is being carried out.
    Recovering,
    /// Nothing is restarted, and the fault is still present: its end, or an operator, closes the case.
    FaultPresent,
    /// The job makes progress again.
    Recovered,
    /// The job was stopped for good, or nothing had to be recovered.
    Closed,
}

/// Severity of a failure class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Informational; no work is affected.
    Info,
    /// Operation is degraded.
    Warning,
    /// Work was lost or will be.
    Failure,
}

/// Conclusion of a diagnosis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Canonical class; `unknown` when no class explains the evidence.
    pub class: ClassId,
    /// Layer of the class: hardware, network, storage, platform, scheduler, framework, user-code, user-data,
    /// model-numerics or none.
    pub layer: String,
    /// Severity of the class.
    pub severity: Severity,
    /// Blamed entity; never the subject of a cascade (RG-7).
    pub blamed: Entity,
    /// Blamed part in words, if it is no entity of the cluster: a server that several nodes use, a port of a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blamed_part: Option<String>,
    /// Rank that failed first, if known.
    pub root_rank: Option<Rank>,
    /// Id of the earliest evidence in causal order.
    pub first_cause: Option<EvidenceId>,
    /// Confidence of the verdict, 0 to 1.
    pub confidence: f64,
    /// Categories of the class by taxonomy id, most specific first.
    pub taxonomies: SharedValue<BTreeMap<String, Vec<String>>>,
    /// Mitigation that the literature and the vendor recommend.
    pub mitigation: SharedValue<RecommendedMitigation>,
    /// Other classes considered, each with its confidence, best first.
    pub alternatives: Vec<(ClassId, f64)>,
}

/// Recommended mitigation of a failure class.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecommendedMitigation {
    /// Id of the first action (`isolate-node`, `restart-ranks`, `fix-code` ...).
    pub action: String,
    /// The same action as an instruction to an operator.
    pub advice: String,
    /// The instruction once a restart has brought the failure back; empty if it is the same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub advice_on_return: String,
    /// Ids of the sources that recommend it; empty for a recommendation of Rankguard itself.
    pub recommended_by: Vec<String>,
}

/// Log entry: one sentence with its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReasoningEntry {
    /// Time of the conclusion or action.
    pub at: Timestamp,
    /// Sentence to display.
    pub text: String,
}

/// Delays of detection and recovery, in milliseconds from the time of the first evidence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseDelays {
    /// Delay until the first evidence reached the controller.
    pub evidence_ms: Option<i64>,
    /// Delay until the case was opened.
    pub case_ms: Option<i64>,
    /// Delay until the plan was made.
    pub plan_ms: Option<i64>,
    /// Delay until every old rank was fenced.
    pub fenced_ms: Option<i64>,
    /// Delay until the new ranks had started.
    pub launched_ms: Option<i64>,
    /// Delay until the first new optimizer step.
    pub first_step_ms: Option<i64>,
}

/// Note by an operator about a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseNote {
    /// Time at which the controller recorded it.
    pub at: Timestamp,
    /// Author: the name in the client certificate, else the name that the client sent.
    pub by: String,
    /// Purpose of the note.
    #[serde(flatten)]
    pub kind: CaseNoteKind,
    /// Free text; may be empty.
    pub text: String,
}

/// Purpose of a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum CaseNoteKind {
    /// Acknowledgement: an operator is working on the case.
    Acknowledged,
    /// Comment without effect on labels.
    Comment,
    /// End of a case with a fault that is still present: the operator repaired or accepted it.
    Closed,
    /// Correction: the class of the verdict is wrong.
    Corrected {
        /// Class that the operator considers correct.
        class: ClassId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generation, NodeId, Sequence};

    fn rank_entity(rank: u32) -> Entity {
        Entity::Rank {
            job: JobId::from("train"),
            generation: Generation(1),
            rank: Rank(rank),
            node: NodeId::from("n1"),
        }
    }

    fn finding(source: EvidenceSource, entity: Entity, role: Role, class: &str) -> CaseFinding {
        CaseFinding {
            evidence: EvidenceId {
                node: NodeId::from("n1"),
                seq: Sequence(1),
            },
            at: Timestamp(0),
            source,
            entity,
            class: ClassId::from(class),
            role,
            confidence: 0.9,
            text: String::new(),
            why: String::new(),
            synthetic: false,
        }
    }

    /// Checks which rank a case of this class and layer names, with rank 3 as the root of its verdict.
    fn check(layer: &str, findings: Vec<CaseFinding>, expect: Option<u32>) {
        let verdict = Verdict {
            class: findings[0].class.clone(),
            layer: layer.to_owned(),
            severity: Severity::Failure,
            blamed: Entity::Unknown,
            blamed_part: None,
            root_rank: Some(Rank(3)),
            first_cause: None,
            confidence: 0.9,
            taxonomies: SharedValue::default(),
            mitigation: SharedValue::default(),
            alternatives: Vec::new(),
        };
        let mut case = Case::open(CaseId(1), verdict, Timestamp(0), Timestamp(0));
        case.findings = findings;
        assert_eq!(case.first_failed_rank(), expect.map(Rank), "{:?}", case.findings);
    }

    #[test]
    fn a_rank_failed_first_only_if_evidence_shows_it() {
        use EvidenceSource::{Agent, Ranks};
        let node = Entity::Node {
            node: NodeId::from("n1"),
        };
        let silent = finding(Agent, node, Role::Root, "node-agent-silent");
        check("platform", vec![silent], None);
        let root = finding(Ranks, rank_entity(3), Role::Root, "storage-io-error");
        let other = finding(Ranks, rank_entity(1), Role::Confirmation, "storage-io-error");
        check("storage", vec![root.clone()], Some(3));
        check("storage", vec![root, other], None);
        let error = finding(Ranks, rank_entity(3), Role::Root, "python-value-error");
        let other = finding(Ranks, rank_entity(1), Role::Confirmation, "python-value-error");
        check("user-code", vec![error, other], Some(3));
    }
}
