//! Reports of ranks that are shown and restart nothing: see [`crate::rank_notes`].

use rankguard_faults::classes;
use rankguard_model::{
    CaseId, Classification, Entity, Evidence, EvidenceBody, EvidenceSource, JobId, ReasoningEntry, Role, Severity, Step,
};

use super::DecisionContext;
use crate::job::JobLookup;
use crate::{DecisionState, Job};

/// Signature of the agents' reports of a loss that is not finite.
const LOSS: &str = "ranks.loss";
/// Signature of the agents' reports of a refused process.
const REFUSED_PROCESS: &str = "agent.refused-process";

impl DecisionState {
    /// Returns true if a mark is an error of a program in its output.
    fn is_printed_error(&self, evidence: &Evidence, mark: &Classification) -> bool {
        let class = self.catalogue().class(&mark.class);
        evidence.source == EvidenceSource::JobLog
            && mark.role == Role::Root
            && class.is_some_and(|class| class.severity == Severity::Failure && class.layer != "model-numerics")
    }
}

impl DecisionContext<'_> {
    /// Records what a line of a rank states about its loss, its processes or its errors.
    pub(super) fn note_rank(&mut self, evidence: &Evidence) {
        let (
            Entity::Rank {
                job: name,
                generation,
                rank,
                ..
            },
            EvidenceBody::Line { text, .. },
        ) = (&evidence.entity, &evidence.body)
        else {
            return;
        };
        let keeps_errors = self.state.notes_unreported_failures();
        let error = evidence
            .marks
            .iter()
            .find(|mark| self.state.is_printed_error(evidence, mark));
        let error = error.filter(|_| keeps_errors).map(|mark| mark.class.clone());
        let Some(job) = self.state.jobs.in_generation(name, *generation) else {
            return;
        };
        if let Some(class) = error {
            job.rank_notes.error_printed(*rank, &class, evidence.at);
        }
        if evidence.source != EvidenceSource::Ranks {
            return;
        }
        let signed = |signature: &str| evidence.marks.iter().find(|mark| mark.signature == signature);
        if let Some(mark) = signed(LOSS) {
            let since = mark.fields.get("step").and_then(|step| step.parse().ok());
            let loss = mark.fields.get("loss").unwrap_or("nan");
            if let Some(since) = since {
                job.rank_notes.loss_failed(*rank, Step(since), loss);
            }
        }
        if signed(REFUSED_PROCESS).is_some() {
            job.rank_notes.process_refused(*rank, text);
            self.announce(format!("job {name}: {text}"));
        }
    }

    /// Adds to the reasoning of a case what is known about its ranks: programs that were started again, and the checkpoints
    /// from before a loss that is not finite.
    pub(crate) fn add_rank_notes(&mut self, id: CaseId, name: &JobId) {
        let Some(case) = self.state.cases.all().get(&id) else {
            return;
        };
        let of_generation = |job: &&Job| case.generation == Some(job.generation());
        let Some(job) = self.state.jobs.get(name).filter(of_generation) else {
            return;
        };
        let is_loss = case.verdict.class.as_str() == classes::LOSS_NAN;
        let loss = is_loss.then(|| checkpoints_before_loss(job)).flatten();
        let texts = job.rank_notes.refused_texts().map(|text| sentence(text));
        let texts: Vec<String> = texts.chain(loss).collect();
        let at = self.at;
        if let Some(case) = self.state.cases.get_mut(id) {
            let entries = texts.into_iter().map(|text| ReasoningEntry { at, text });
            case.reasoning.extend(entries);
        }
    }
}

/// Lists the committed checkpoints from before a loss that is not finite.
fn checkpoints_before_loss(job: &Job) -> Option<String> {
    let loss = sentence(&job.rank_notes.loss_text()?);
    let Some(good) = job.newest_before_failed_loss() else {
        return Some(format!(
            "{loss} No committed checkpoint is from before it: the loss of a step comes from the weights of the step before."
        ));
    };
    let committed = job.checkpoints.committed.iter();
    let before = committed.filter(|view| view.step <= good.step);
    let before: Vec<String> = before.map(|view| view.step.to_string()).collect();
    Some(format!(
        "{loss} The newest checkpoint with weights that gave a finite loss is that of step {}, which retention keeps while the \
         loss is not finite. Committed up to there: {}.",
        good.step,
        before.join(", ")
    ))
}

/// Makes a sentence of a text.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(letters).chain(['.']).collect()
}
