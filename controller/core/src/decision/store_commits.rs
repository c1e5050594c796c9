//! Commits that stand in the store of a job and that this journal lacks.
//!
//! The store decides which checkpoints exist (RG-1). A journal that was restored from a copy lacks later commits, and a
//! commit that outlasted its deadline was reported as void. Before the ranks of a generation start, the store is listed
//! ([`super::adopt`]); its newer commits are recorded, and the ranks start from the newest. Newer commits that cannot be
//! used are listed with the reason.
//!
//! Checkpoints that were struck off are not recorded again (RG-2).

use rankguard_checkpoint_format::CheckpointId;
use rankguard_model::{CheckpointView, Generation, JobId, Step};

use super::DecisionContext;
use crate::job::JobLookup;
use crate::{AdoptionStage, UnusableCheckpoint};

/// Passed-over checkpoints of a job; no further ones are listed.
const PASSED_OVER_MAX: usize = 16;
/// Steps that a text names.
const NAMED_MAX: usize = 4;

impl DecisionContext<'_> {
    /// Returns true if another journal may have begun generations of a job of which no ranks were started under this one.
    pub(super) fn may_have_store_commits(&self, name: &JobId) -> bool {
        let Some(job) = self.state.jobs.get(name).filter(|_| self.state.learns_commits()) else {
            return false;
        };
        job.spec.checkpoint.is_some() && self.state.floors.of(name) >= job.checkpoints.first_generation()
    }

    /// Records the commits of a store that are newer than those of the journal.
    pub(super) fn take_store_commits(
        &mut self,
        name: &JobId,
        generation: Generation,
        committed: &[CheckpointView],
        unusable: &[UnusableCheckpoint],
    ) {
        let at = self.at;
        let keeps_inherited = self.state.keeps_inherited_checkpoints();
        if !self.state.learns_commits() {
            return;
        }
        let Some(job) = self.state.jobs.in_generation(name, generation) else {
            return;
        };
        if !matches!(job.adoption(), Some(AdoptionStage::Looking { .. })) {
            return;
        }
        let policy = job.spec.checkpoint.as_ref();
        let stay = policy
            .map(|policy| job.retained_checkpoints(policy, at))
            .unwrap_or_default();
        let added = job.checkpoints.add_from_store(at, committed, keeps_inherited, &stay);
        let newest = job.checkpoints.newest().map(|newest| newest.step);
        if let Some(step) = added.last() {
            job.learn_step(*step);
        }
        let mut passed_over = Vec::new();
        for checkpoint in unusable {
            let UnusableCheckpoint {
                step,
                generation,
                reason,
            } = checkpoint;
            let id = CheckpointId {
                step: *step,
                generation: *generation,
            };
            let text = format!("step {step} of generation {generation}: {reason}");
            let is_known = job.checkpoints.is_known(id) || job.passed_over.contains(&text);
            if !is_known && newest.is_none_or(|newest| *step > newest) && job.passed_over.len() < PASSED_OVER_MAX {
                job.passed_over.push(text.clone());
                passed_over.push(text);
            }
        }
        if let Some(newest) = added.last() {
            self.announce(format!(
                "job {name}: its store has {}, which this journal lacks; the newest is of step {newest}",
                commits_text(&added)
            ));
        }
        for text in passed_over {
            self.announce(format!("job {name} passes over {text}"));
        }
    }
}

/// Names commits by their steps, the newest ones if there are many.
fn commits_text(steps: &[Step]) -> String {
    let named: Vec<String> = steps
        .iter()
        .rev()
        .take(NAMED_MAX)
        .rev()
        .map(ToString::to_string)
        .collect();
    match steps.len() {
        1 => format!("a commit of step {}", named.join(", ")),
        all if all > NAMED_MAX => format!("{all} commits, the newest of steps {}", named.join(", ")),
        _ => format!("commits of steps {}", named.join(", ")),
    }
}
