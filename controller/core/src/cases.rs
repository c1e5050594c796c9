//! Case store: opens, fills, revises and closes cases as diagnosis concludes, and records the actions taken.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_diagnosis::{CallerFact, ConcludedDraft, DraftChange, DraftId, SeparateFailure, reports_store_recovery};
use rankguard_faults::classes;
use rankguard_model::{
    Case, CaseDelays, CaseFinding, CaseId, CaseNote, CaseNoteKind, CaseState, ClassId, Classification, Entity,
    Evidence, EvidenceBody, Generation, JobId, NodeId, ReasoningEntry, Role, Severity, SharedValue, Timestamp, Verdict,
};

use serde::{Deserialize, Serialize};

use crate::decision::DecisionContext;
use crate::limits::{ACTIONS_MAX, limit_findings};
use crate::recovery::cordon_outcome;
use crate::{Job, Node, Plan, TimerKey};

/// Notes retained per case, the newest.
const NOTES_MAX: usize = 64;
/// Findings retained per case.
const FINDINGS_MAX: usize = 512;

/// Cases of one controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseTable {
    all: BTreeMap<CaseId, Case>,
    drafts: BTreeMap<DraftId, CaseId>,
    /// Cases in [`CaseState::FaultPresent`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    present: BTreeSet<CaseId>,
    next: CaseId,
    /// True if all evidence is replayed.
    replayed: bool,
}

impl CaseTable {
    pub(crate) fn new(replayed: bool) -> Self {
        Self {
            replayed,
            all: BTreeMap::new(),
            drafts: BTreeMap::new(),
            present: BTreeSet::new(),
            next: CaseId(1),
        }
    }

    pub(crate) fn all(&self) -> &BTreeMap<CaseId, Case> {
        &self.all
    }

    /// Removes cases and their draft entries.
    pub(crate) fn remove(&mut self, gone: &[CaseId]) {
        if gone.is_empty() {
            return;
        }
        for id in gone {
            self.all.remove(id);
        }
        self.drafts.retain(|_, id| self.all.contains_key(id));
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Case> {
        self.all.values_mut()
    }

    pub(crate) fn get_mut(&mut self, id: CaseId) -> Option<&mut Case> {
        self.all.get_mut(&id)
    }

    /// Returns the cases with a fault that is still present, oldest first.
    pub(crate) fn with_present_fault(&self) -> impl Iterator<Item = &Case> {
        self.present.iter().filter_map(|id| self.all.get(id))
    }

    /// Sets the state `FaultPresent` of a case, with its outcome so far.
    pub(crate) fn set_present(&mut self, id: CaseId, outcome: String) {
        if let Some(case) = self.all.get_mut(&id) {
            case.state = CaseState::FaultPresent;
            case.closed_at = None;
            case.outcome = Some(outcome);
            self.present.insert(id);
        }
    }

    /// Ends the state `FaultPresent` of a case and returns the case, if it had that state.
    pub(crate) fn end_present(&mut self, id: CaseId) -> Option<&mut Case> {
        self.present.remove(&id).then(|| self.all.get_mut(&id))?
    }

    /// Returns true if evidence about a job is still being gathered.
    pub(crate) fn is_settling(&self, job: &JobId) -> bool {
        self.settling(job).is_some()
    }

    /// Returns the oldest case about a job for which evidence is still being gathered.
    pub(crate) fn settling(&self, job: &JobId) -> Option<CaseId> {
        let mut cases = self.all.values();
        let case = cases.find(|case| case.state == CaseState::Open && case.job.as_ref() == Some(job));
        case.map(|case| case.id)
    }

    fn open(
        &mut self,
        draft: DraftId,
        job: Option<JobId>,
        generation: Option<Generation>,
        first_at: Timestamp,
        at: Timestamp,
    ) {
        let case = Case {
            job,
            generation,
            ..self.next_case(undecided(), first_at, at)
        };
        self.drafts.insert(draft, case.id);
        self.all.insert(case.id, case);
    }

    /// Returns an open case with the next number and earliest evidence of `first_at`.
    fn next_case(&mut self, verdict: Verdict, first_at: Timestamp, at: Timestamp) -> Case {
        let id = self.next;
        self.next = id.next();
        let delay = Some(at.millis_since(first_at));
        Case {
            delays: CaseDelays {
                evidence_ms: delay,
                case_ms: delay,
                ..CaseDelays::default()
            },
            replayed: self.replayed,
            ..Case::open(id, verdict, first_at, at)
        }
    }

    /// Opens the case of a failure that does not follow from the first cause of another case, and returns its number;
    /// `None` if it has one.
    ///
    /// `received_at` is the time at which the evidence of both began to arrive, since rules 9; before, it counted as received
    /// at the verdict.
    fn open_separate(
        &mut self,
        at: Timestamp,
        failure: &SeparateFailure,
        received_at: Option<Timestamp>,
    ) -> Option<CaseId> {
        let first_cause = &failure.verdict.first_cause;
        let mut known = self.all.values().map(|case| &case.verdict.first_cause);
        if first_cause.is_some() && known.any(|known| known == first_cause) {
            return None;
        }
        let mut case = Case {
            job: failure.job.clone(),
            generation: failure.generation,
            findings: failure.findings.clone(),
            reasoning: failure.reasoning.clone(),
            clears: failure.clears.clone(),
            ..self.next_case(failure.verdict.clone(), failure.first_at, at)
        };
        if let Some(received_at) = received_at {
            // The evidence of this failure may have arrived after that of the other.
            let delay = received_at.millis_since(failure.first_at);
            case.delays.evidence_ms = (delay >= 0).then_some(delay);
        }
        limit_findings(&mut case.findings);
        let id = case.id;
        self.all.insert(id, case);
        Some(id)
    }

    /// Opens a case that needs no diagnosis and returns its number.
    pub(crate) fn open_concluded(
        &mut self,
        at: Timestamp,
        verdict: Verdict,
        finding: CaseFinding,
        reason: ReasoningEntry,
        clears: String,
    ) -> CaseId {
        let first_at = finding.at;
        let case = Case {
            findings: vec![finding],
            reasoning: vec![reason],
            clears,
            ..self.next_case(verdict, first_at, at)
        };
        let id = case.id;
        self.all.insert(id, case);
        id
    }

    /// Adds a finding to a case with fewer than `most` findings. Returns true if the case exists.
    pub(crate) fn add_finding(&mut self, id: CaseId, finding: CaseFinding, most: usize) -> bool {
        let Some(case) = self.all.get_mut(&id) else {
            return false;
        };
        if case.findings.len() < most {
            case.findings.push(finding);
        }
        true
    }

    /// Adds a finding of another case to a case that lacks it, up to [`FINDINGS_MAX`]. A case takes in no evidence of ranks
    /// of another generation, and what was noise there explains nothing here.
    pub(crate) fn add_new_finding(&mut self, id: CaseId, finding: CaseFinding) {
        let case = self.all.get_mut(&id).filter(|case| case.findings.len() < FINDINGS_MAX);
        let Some(case) = case.filter(|_| finding.role != Role::Noise) else {
            return;
        };
        let is_known = |known: &CaseFinding| known.evidence == finding.evidence && known.class == finding.class;
        if let Entity::Rank { generation, .. } = &finding.entity
            && case.generation != Some(*generation)
        {
            return;
        }
        if !case.findings.iter().any(is_known) {
            let role = if finding.role == Role::Root {
                Role::Confirmation
            } else {
                finding.role
            };
            case.findings.push(CaseFinding { role, ..finding });
            limit_findings(&mut case.findings);
        }
    }

    /// Adds a late finding to the case of a draft, up to [`FINDINGS_MAX`]: a cascade may be long.
    fn join(&mut self, draft: DraftId, finding: CaseFinding) {
        let case = self.drafts.get(&draft).and_then(|id| self.all.get_mut(id));
        if let Some(case) = case.filter(|case| case.findings.len() < FINDINGS_MAX) {
            case.findings.push(finding);
            limit_findings(&mut case.findings);
        }
    }

    /// Fills in the case of a draft and returns its number.
    fn conclude(&mut self, concluded: &ConcludedDraft) -> Option<CaseId> {
        let id = *self.drafts.get(&concluded.draft)?;
        let case = self.all.get_mut(&id)?;
        case.generation = concluded.generation;
        if concluded.has_cause_limits {
            move_start(case, concluded.first_at);
        } else {
            // Under older rules the earliest evidence counted, independent of its role.
            case.first_at = case.first_at.min(concluded.first_at);
        }
        let first_at = case.first_at;
        // Evidence of another failure may have opened the case before.
        let delay = |moment: Timestamp| Some(moment.millis_since(first_at).max(0));
        case.delays.evidence_ms = delay(case.opened_at);
        case.delays.case_ms = delay(case.opened_at);
        case.verdict = concluded.verdict.clone();
        case.findings = concluded.findings.clone();
        limit_findings(&mut case.findings);
        case.reasoning = concluded.reasoning.clone();
        case.clears = concluded.clears.clone();
        Some(id)
    }
}

/// Sets the start of a failure. The delays after the conclusion count from it, so that they change as well.
fn move_start(case: &mut Case, first_at: Timestamp) {
    let shift = case.first_at.millis_since(first_at);
    case.first_at = first_at;
    let delays = &mut case.delays;
    let later = [
        &mut delays.plan_ms,
        &mut delays.fenced_ms,
        &mut delays.launched_ms,
        &mut delays.first_step_ms,
    ];
    for delay in later.into_iter().flatten() {
        *delay += shift;
    }
}

fn undecided() -> Verdict {
    Verdict {
        class: ClassId::from(classes::UNKNOWN),
        layer: "unknown".to_owned(),
        severity: Severity::Info,
        blamed: Entity::Unknown,
        blamed_part: None,
        root_rank: None,
        first_cause: None,
        confidence: 0.0,
        taxonomies: SharedValue::default(),
        mitigation: SharedValue::default(),
        alternatives: Vec::new(),
    }
}

impl DecisionContext<'_> {
    /// Passes evidence to diagnosis.
    pub(crate) fn pass_to_diagnosis(&mut self, evidence: &Evidence) {
        self.note_server_response(evidence);
        let state = &mut *self.state;
        let changes = state
            .diagnosis
            .observe(self.at, evidence, &state.context, state.catalogue.get());
        self.suspect_node(evidence, &changes);
        self.take_changes(changes);
    }

    /// Marks a node as suspected while a draft with a fatal fault of its hardware is open.
    fn suspect_node(&mut self, evidence: &Evidence, changes: &[DraftChange]) {
        let (Entity::Node { node } | Entity::Device { node, .. }) = &evidence.entity else {
            return;
        };
        let catalogue = self.state.catalogue();
        let is_fatal = |mark: &Classification| {
            let class = catalogue.class(&mark.class).filter(|_| mark.role == Role::Root);
            class.is_some_and(|class| class.layer == "hardware" && class.severity == Severity::Failure)
        };
        if !self.state.avoids_suspected_nodes() || !evidence.marks.iter().any(is_fatal) {
            return;
        }
        let draft = changes.iter().find_map(|change| match change {
            DraftChange::Opened { draft, .. } | DraftChange::Joined { draft } => Some(*draft),
            _ => None,
        });
        if let Some(draft) = draft {
            self.state.fleet.suspect(node, draft);
        }
    }

    /// Notes in open hang cases that a server responds again; the next step clears them.
    fn note_server_response(&mut self, evidence: &Evidence) {
        let (Some(mark), EvidenceBody::Line { text, .. }) = (
            evidence.marks.iter().find(|mark| reports_store_recovery(mark)),
            &evidence.body,
        ) else {
            return;
        };
        let server = mark.fields.get("server").or_else(|| mark.fields.get("mount"));
        let names = |finding: &CaseFinding| {
            finding.class.as_str() == classes::FILESYSTEM_HANG
                && finding.entity.node() == evidence.entity.node()
                && server.is_none_or(|server| finding.text.contains(server))
        };
        let waits = |case: &&Case| {
            let open = !matches!(case.state, CaseState::Closed | CaseState::Recovered);
            open && case.verdict.class.as_str() == classes::FILESYSTEM_HANG && case.findings.iter().any(names)
        };
        let told: Vec<CaseId> = self
            .state
            .cases
            .all
            .values()
            .filter(waits)
            .map(|case| case.id)
            .collect();
        for id in told {
            self.note(Some(id), format!("what was waited for answers again: {text}"));
        }
    }

    /// Passes a fact that the controller established itself to diagnosis.
    pub(crate) fn witness_fact(&mut self, fact: &CallerFact) {
        let state = &mut *self.state;
        let changes = state
            .diagnosis
            .observe_fact(self.at, fact, &state.context, state.catalogue.get());
        self.take_changes(changes);
    }

    /// Opens a case for each failure in a draft that does not follow from the first cause of the draft's case.
    pub(crate) fn open_separate_cases(&mut self, main: CaseId, concluded: &ConcludedDraft) {
        for failure in &concluded.separate {
            self.open_separate_case(main, failure);
        }
    }

    /// Opens and closes the case of a failure that does not follow from another case.
    pub(crate) fn open_separate_case(&mut self, main: CaseId, failure: &SeparateFailure) {
        if !self.state.separates_failures() {
            return;
        }
        let main_case = self.state.cases.all().get(&main);
        let received_at = main_case.map(|case| case.opened_at);
        let received_at = received_at.filter(|_| self.state.has_exact_cases());
        let Some(id) = self.state.cases.open_separate(self.at, failure, received_at) else {
            return;
        };
        let verdict = &failure.verdict;
        self.announce(self.verdict_line(id, verdict));
        let text = format!(
            "{} on {} is a failure of its own, see case {id}",
            verdict.class, verdict.blamed
        );
        self.note(Some(main), text);
        self.close_separate(main, id, verdict);
    }

    pub(crate) fn take_changes(&mut self, changes: Vec<DraftChange>) {
        for change in changes {
            match change {
                DraftChange::Opened { draft, job, first_at } => {
                    let generation = job
                        .as_ref()
                        .and_then(|name| self.state.jobs.get(name))
                        .map(|job| job.generation());
                    self.state.cases.open(draft, job, generation, first_at, self.at);
                }
                DraftChange::Late {
                    draft,
                    finding,
                    separate,
                } => {
                    let case = self.state.cases.drafts.get(&draft).copied();
                    self.state.cases.join(draft, (*finding).clone());
                    if let Some(id) = case {
                        self.reopen_present_fault(id, &finding);
                        self.isolate_late(id, &finding, separate.as_deref());
                    }
                }
                DraftChange::Revised(concluded) => {
                    if let Some(id) = self.state.cases.conclude(&concluded) {
                        self.revise(id, &concluded);
                        self.close_revised(id, &concluded.verdict.class);
                    }
                }
                DraftChange::Joined { .. } | DraftChange::Dropped { .. } => {}
            }
        }
    }

    /// Sets the settle timer to the next due time of diagnosis.
    pub(crate) fn watch_settling(&mut self) {
        match self.state.diagnosis.due().map(|due| due.max(self.fates_known_at())) {
            Some(due) if self.state.timers.get(&TimerKey::Settle) != Some(&due) => {
                self.state.set_timer(TimerKey::Settle, due, &mut self.actions);
            }
            Some(_) => {}
            None => {
                self.state.timers.remove(&TimerKey::Settle);
            }
        }
    }

    /// Concludes settled drafts and recovers from each verdict.
    pub(crate) fn conclude(&mut self) {
        if self.fates_known_at() > self.at {
            // [`DecisionContext::watch_settling`] sets the timer again for that time.
            return;
        }
        let state = &mut *self.state;
        let concluded = state.diagnosis.conclude(self.at, state.catalogue.get());
        // An agent that only restarted has rejoined already: its silence explained this failure and explains no later
        // one.
        for (node, _) in state.fleet.iter().filter(|(_, node)| node.lost_since.is_none()) {
            state.diagnosis.node_returned(node);
        }
        let mut is_cleared = false;
        for conclusion in concluded {
            is_cleared |= self.state.fleet.end_suspicion(conclusion.draft);
            if let Some(id) = self.state.cases.conclude(&conclusion) {
                self.note_completed_ranks(id);
                self.recover(id, &conclusion);
            }
            if let Some(name) = &conclusion.job {
                self.follow_ended_ranks(name);
                self.ask_growth_after_case(name);
            }
        }
        if is_cleared {
            self.offer_node();
        }
    }

    /// Adds to the reasoning of a case that ranks of the generation had ended with exit code 0 before: their peers lose
    /// connections to them as to ranks that failed.
    fn note_completed_ranks(&mut self, id: CaseId) {
        if !self.state.has_fault_ends() {
            return;
        }
        let at = self.at;
        let is_exact = self.state.has_exact_cases();
        let Some(case) = self.state.cases.get_mut(id) else {
            return;
        };
        let Some(job) = case.job.as_ref().and_then(|name| self.state.jobs.get(name)) else {
            return;
        };
        if case.generation != Some(job.generation()) || job.is_completed() {
            return;
        }
        let places = job.places();
        let completed = places.keys().filter(|rank| job.has_completed(**rank));
        let completed: Vec<String> = completed.map(ToString::to_string).collect();
        let (noun, list) = match completed.as_slice() {
            [] => return,
            [one] => ("Rank", one.clone()),
            [first @ .., last] => ("Ranks", format!("{} and {last}", first.join(", "))),
        };
        let root = case.verdict.root_rank.filter(|_| is_exact);
        let consequence = if root.is_some_and(|root| job.has_completed(root)) {
            "; that they lost a peer follows from it"
        } else {
            ""
        };
        let text = format!(
            "{noun} {list} had ended with exit code 0 before, while other ranks of the generation ran{consequence}."
        );
        case.reasoning.push(ReasoningEntry { at, text });
    }

    /// Records an operator's note on a case.
    pub(crate) fn take_note(&mut self, id: CaseId, note: &CaseNote) {
        let at = self.at;
        if note.kind == CaseNoteKind::Closed {
            self.close_by_operator(id, note);
        }
        if let Some(case) = self.state.cases.get_mut(id) {
            if case.notes.len() >= NOTES_MAX {
                case.notes.remove(0);
            }
            case.notes.push(CaseNote { at, ..note.clone() });
        }
    }

    /// Records an action on a case.
    pub(crate) fn note(&mut self, id: Option<CaseId>, text: String) {
        let at = self.at;
        let case = id.and_then(|id| self.state.cases.get_mut(id));
        if let Some(case) = case.filter(|case| case.actions.len() < ACTIONS_MAX) {
            case.actions.push(ReasoningEntry { at, text });
        }
    }

    /// Returns the case for which a job waits for nodes.
    fn case_of_waiting_job(&self, name: &JobId) -> Option<CaseId> {
        let job = self.state.jobs.get(name)?;
        let case = self.state.cases.all().get(&job.case()?)?;
        let awaits_nodes = job.is_pending() && self.state.has_exact_cases();
        (awaits_nodes && case.state == CaseState::Recovering).then_some(case.id)
    }

    pub(crate) fn note_plan(&mut self, plan: &Plan) {
        let at = self.at;
        let Some(id) = plan.case.or_else(|| self.case_of_waiting_job(&plan.job)) else {
            return;
        };
        let reopens = self.state.has_case_ends();
        self.state.cases.end_present(id);
        if let Some(case) = self.state.cases.get_mut(id) {
            case.state = CaseState::Recovering;
            // A case that was closed as nothing to recover is reopened.
            if reopens {
                case.outcome = None;
                case.closed_at = None;
            }
            case.plan = Some(plan.id);
            case.delays.plan_ms = Some(at.millis_since(case.first_at));
            case.actions.push(ReasoningEntry {
                at,
                text: format!("plan {}: {}", plan.id, plan.describe()),
            });
        }
        if let Some(job) = self.state.jobs.get_mut(&plan.job) {
            job.recover_from(id);
        }
    }

    pub(crate) fn note_fenced(&mut self, name: &JobId, steps_lost: Option<u64>) {
        let at = self.at;
        let ended = self.end_of_old_ranks(name);
        let restore = self
            .state
            .jobs
            .get(name)
            .and_then(|job| job.checkpoints.newest())
            .map(|newest| newest.step);
        let job = self.state.jobs.get(name);
        let store_wait = job.and_then(|job| job.store_wait_since(at));
        let ended = match (store_wait, job.and_then(Job::store)) {
            (Some(since), Some(store)) => format!(
                "{ended} at {since}; the job waited {:.1} s for its store {store}",
                at.since(since).as_secs_f64()
            ),
            _ => ended,
        };
        if let Some(case) = self.case_of(name) {
            case.delays.fenced_ms = Some(store_wait.unwrap_or(at).millis_since(case.first_at));
            case.steps_lost = case.steps_lost.max(steps_lost);
            let from = restore.map_or("the beginning".to_owned(), |step| {
                format!("the checkpoint of step {step}")
            });
            case.actions.push(ReasoningEntry {
                at,
                text: format!("{ended}; start from {from}"),
            });
        }
    }

    /// Describes the end of the ranks of an earlier generation: those of nodes that do not answer have ended, or end, with
    /// the lease of their agent.
    fn end_of_old_ranks(&self, name: &JobId) -> String {
        let nodes = self.state.fleet.iter().filter(|_| self.state.separates_failures());
        let open = nodes.filter(|(_, node)| node.fences.contains_key(name) && node.lost_since.is_some());
        let open: Vec<&str> = open.map(|(name, _)| name.as_str()).collect();
        if open.is_empty() {
            return "old ranks have ended".to_owned();
        }
        format!(
            "old ranks have ended on the nodes that answer; those on {} end within the lease of their agent, which is not \
             confirmed",
            open.join(", ")
        )
    }

    pub(crate) fn note_launched(&mut self, name: &JobId) {
        let at = self.at;
        if let Some(case) = self.case_of(name) {
            case.delays.launched_ms = Some(at.millis_since(case.first_at));
        }
    }

    pub(crate) fn note_recovered(&mut self, name: &JobId, at: Timestamp, how: &str) {
        let restored = self.restore_text(name);
        let renews_reports = self.state.renews_restore_reports();
        let has_stepped = self
            .state
            .jobs
            .get(name)
            .is_some_and(|job| job.generation_step().is_some());
        let is_step_known = has_stepped || !self.state.refills_budgets();
        let times_restarts_only = self.state.times_restarts_only();
        if let Some(case) = self.case_of(name) {
            let is_step_known = is_step_known && (!times_restarts_only || case.delays.launched_ms.is_some());
            case.state = CaseState::Recovered;
            case.closed_at = Some(at);
            case.delays.first_step_ms = is_step_known.then(|| at.millis_since(case.first_at));
            case.outcome = Some(how.to_owned());
            if let Some(text) = restored {
                case.actions.push(ReasoningEntry { at, text });
            }
        }
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.restore_report.case = job.case().or(job.restore_report.case).filter(|_| renews_reports);
            job.end_recovery();
        }
    }

    pub(crate) fn note_stopped(&mut self, name: &JobId, reason: &str) {
        let at = self.at;
        let id = self.state.jobs.get(name).and_then(|job| job.case());
        let isolated = id.and_then(|id| self.node_isolated_by(id));
        let stopped = format!("the job was stopped: {reason}");
        let outcome = match isolated {
            Some(node) => format!("{stopped}; {}", cordon_outcome(&node)),
            None => stopped,
        };
        if let Some(case) = self.case_of(name) {
            case.state = CaseState::Closed;
            case.closed_at = Some(at);
            case.outcome = Some(outcome.clone());
        }
        let case = id.and_then(|id| self.state.cases.all().get(&id));
        if let Some(id) = id.filter(|_| case.is_some_and(|case| self.state.has_lasting_condition(case))) {
            self.state.cases.set_present(id, outcome);
        }
        if let Some(job) = self.state.jobs.get_mut(name) {
            job.end_recovery();
        }
    }

    /// Returns the node that is out of use for a case.
    fn node_isolated_by(&self, id: CaseId) -> Option<NodeId> {
        let is_of_case = |node: &Node| node.cordon.as_ref().is_some_and(|cordon| cordon.case == Some(id));
        let mut nodes = self.state.fleet.iter().filter(|_| self.state.separates_failures());
        nodes.find(|(_, node)| is_of_case(node)).map(|(name, _)| name.clone())
    }

    /// Closes a case with an outcome.
    pub(crate) fn close(&mut self, id: CaseId, outcome: String) {
        let at = self.at;
        if let Some(case) = self.state.cases.get_mut(id) {
            case.state = CaseState::Closed;
            case.closed_at = Some(at);
            case.outcome = Some(outcome);
        }
    }

    fn case_of(&mut self, name: &JobId) -> Option<&mut Case> {
        let id = self.state.jobs.get(name)?.case()?;
        self.state.cases.get_mut(id)
    }
}
