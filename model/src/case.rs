//! Cases: findings that belong together, what was concluded from them and what was done.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{CaseId, ClassId, Entity, EvidenceId, Finding, Generation, JobId, PlanId, Rank, Shared, Timestamp};

/// One failure, from the first evidence to its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Its number.
    pub id: CaseId,
    /// Where it stands.
    pub state: CaseState,
    /// The job that suffered, where there was one.
    pub job: Option<JobId>,
    /// The generation that suffered.
    pub generation: Option<Generation>,
    /// When the first evidence happened.
    pub first_at: Timestamp,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it was closed.
    pub closed_at: Option<Timestamp>,
    /// What is concluded so far.
    pub verdict: Verdict,
    /// What it rests on, in order of first cause.
    pub findings: Vec<Finding>,
    /// The reasoning, one sentence a line, for the person on call.
    pub reasoning: Vec<Reason>,
    /// The plan that answers it.
    pub plan: Option<PlanId>,
    /// What was ordered because of it, one sentence each.
    pub actions: Vec<Reason>,
    /// How it ended.
    pub outcome: Option<String>,
    /// What evidence clears it (RG-10).
    pub clears: String,
    /// Measured delays.
    pub delays: Delays,
    /// Optimizer steps that had to be repeated.
    pub steps_lost: Option<u64>,
    /// What people have noted about it, oldest first. The verdict stays as it was concluded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<CaseNote>,
    /// It rests on recorded evidence that was replayed: nothing of it happened now, and nothing was done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
}

impl Case {
    /// The class that a person gave it last, where one did: a label for those who study verdicts.
    pub fn corrected_class(&self) -> Option<&ClassId> {
        self.notes.iter().rev().find_map(|note| match &note.kind {
            CaseNoteKind::Corrected { class } => Some(class),
            CaseNoteKind::Acknowledged | CaseNoteKind::Comment => None,
        })
    }

    /// Whether it rests on anything that an injection or a simulation made up.
    pub fn is_synthetic(&self) -> bool {
        self.findings.iter().any(|finding| finding.synthetic)
    }
}

/// Where a case stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaseState {
    /// Evidence is still being gathered.
    Open,
    /// The verdict stands and a plan is being carried out.
    Recovering,
    /// The job makes progress again.
    Recovered,
    /// The job was stopped for good, or there was nothing to recover.
    Closed,
}

/// How bad the evidence alone makes it look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Something degrades.
    Warning,
    /// Work was lost or will be.
    Failure,
}

/// What is concluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The canonical class; `unknown` when nothing explains the evidence.
    pub class: ClassId,
    /// Where the class sits (hardware, network, storage, platform, scheduler, framework, user-code, user-data,
    /// model-numerics, none).
    pub layer: String,
    /// How bad.
    pub severity: Severity,
    /// Who is blamed; never the subject of a cascade (RG-7).
    pub blamed: Entity,
    /// The rank that failed first, where one did.
    pub root_rank: Option<Rank>,
    /// The evidence that came first.
    pub first_cause: Option<EvidenceId>,
    /// 0 to 1.
    pub confidence: f64,
    /// Taxonomy id to the categories the class maps to, most specific first.
    pub taxonomies: Shared<BTreeMap<String, Vec<String>>>,
    /// What the literature and the vendor recommend.
    pub mitigation: Shared<Mitigation>,
    /// Other classes that were considered, best first, with their confidence.
    pub alternatives: Vec<(ClassId, f64)>,
}

/// What to do about a class.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Mitigation {
    /// Id of the first action (`isolate-node`, `restart-ranks`, `fix-code` ...).
    pub action: String,
    /// The same as an instruction to a person.
    pub advice: String,
    /// Ids of the sources that recommend it; empty when it is our own inference.
    pub recommended_by: Vec<String>,
}

/// A sentence with its moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// When it was concluded or done.
    pub at: Timestamp,
    /// The sentence.
    pub text: String,
}

/// How long each stage of the answer took, in milliseconds from the first evidence's own time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delays {
    /// Until the first evidence reached the controller.
    pub evidence_ms: Option<i64>,
    /// Until the case was opened.
    pub case_ms: Option<i64>,
    /// Until the plan was made.
    pub plan_ms: Option<i64>,
    /// Until every old rank was fenced.
    pub fenced_ms: Option<i64>,
    /// Until the new ranks had started.
    pub launched_ms: Option<i64>,
    /// Until the first new optimizer step.
    pub first_step_ms: Option<i64>,
}

/// What a person has noted about a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseNote {
    /// When the controller took it.
    pub at: Timestamp,
    /// Who: the name in the certificate, else as the client says.
    pub by: String,
    /// What was done.
    #[serde(flatten)]
    pub kind: CaseNoteKind,
    /// In words; may be empty.
    pub text: String,
}

/// What a note does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum CaseNoteKind {
    /// Somebody takes care of it.
    Acknowledged,
    /// Words alone.
    Comment,
    /// The verdict is wrong.
    Corrected {
        /// The right class.
        class: ClassId,
    },
}
