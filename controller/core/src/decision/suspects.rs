//! Checkpoints that a restore could not use (RG-2).
//!
//! A damage report alone strikes nothing off: the controller reads the reported place, and strikes the checkpoint off
//! if it finds damage as well. If it cannot read the store, two nodes must report the same. A report that storage is
//! unreadable makes the job wait: its ranks are restarted until the storage answers, without counting against the
//! restart budget, for at most `store_wait_ms`. Then the job continues from the checkpoint before, and the unreadable
//! one is retained.

use std::time::Duration;

use rankguard_checkpoint_format::CheckpointId;
use rankguard_faults::classes;
use rankguard_model::{
    Classification, Entity, Evidence, EvidenceSource, Generation, JobId, NodeId, Rank, ResumePlace, Step,
};

use super::DecisionContext;
use crate::job::JobLookup;
use crate::{Action, CheckFinding, ChunkName};

impl DecisionContext<'_> {
    /// Handles the report of a failed restore.
    pub(super) fn restore_failed(&mut self, evidence: &Evidence) {
        let Entity::Rank {
            job: name,
            generation,
            node,
            ..
        } = &evidence.entity
        else {
            return;
        };
        if evidence.source != EvidenceSource::Checkpoint {
            return;
        }
        let Some(job) = self.state.jobs.live_mut(name) else {
            return;
        };
        for mark in &evidence.marks {
            let Some(id) = checkpoint_of(mark).filter(|id| job.checkpoints.has(id.generation, id.step)) else {
                continue;
            };
            if mark.class.as_str() == classes::CHECKPOINT_CORRUPT {
                let report = (node.clone(), *generation);
                if job.checkpoints.suspicions.report(id, report, chunk_of(mark)) {
                    self.check_checkpoint(name, id, chunk_of(mark));
                }
                return;
            }
            let newest = job.checkpoints.newest().map(|view| (view.generation, view.step));
            if mark.fields.get("restore") == Some("unavailable")
                && *generation == job.generation()
                && newest == Some((id.generation, id.step))
            {
                return self.checkpoint_unreadable(name, id);
            }
        }
    }

    fn check_checkpoint(&mut self, name: &JobId, id: CheckpointId, chunk: Option<ChunkName>) {
        let Some(job) = self.state.jobs.get(name) else { return };
        let Some(policy) = &job.spec.checkpoint else { return };
        self.actions.push(Action::CheckCheckpoint {
            store: policy.store.clone(),
            job: name.clone(),
            id,
            chunk,
        });
    }

    /// Repeats unfinished checks after a restart of the controller.
    pub(super) fn resume_checks(&mut self) {
        let jobs = self.state.jobs.iter();
        let open: Vec<_> = jobs
            .flat_map(|(name, job)| {
                let checks = job.checkpoints.suspicions.checks();
                checks.into_iter().map(|(id, chunk)| (name.clone(), id, chunk))
            })
            .collect();
        for (name, id, chunk) in open {
            self.check_checkpoint(&name, id, chunk);
        }
    }

    /// Handles the result of a check.
    pub(super) fn checkpoint_checked(&mut self, name: &JobId, id: CheckpointId, finding: &CheckFinding) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let nodes = job.nodes().len();
        let Some((reporters, confirmed)) = job.checkpoints.suspicions.checked(id, nodes) else {
            return;
        };
        let step = id.step;
        let reporters = listed(&reporters);
        match finding {
            CheckFinding::Damaged { what } => self.strike_off(name, id, what),
            CheckFinding::Intact => {
                job.checkpoints.suspicions.refute(id);
                self.note_restore(
                    name,
                    format!(
                        "checkpoint of step {step} of job {name} is kept: {reporters} reported it damaged, and the controller \
                         reads the same place intact; look for a fault of that node"
                    ),
                );
            }
            CheckFinding::Unavailable { reason } if confirmed => {
                let what = format!("{reporters} found it damaged; the controller cannot read the store: {reason}");
                self.strike_off(name, id, &what);
            }
            CheckFinding::Unavailable { reason } => self.note_restore(
                name,
                format!(
                    "checkpoint of step {step} of job {name} is kept: {reporters} reported it damaged, and the controller \
                     cannot read it to confirm that: {reason}"
                ),
            ),
        }
        self.advance(name);
    }

    /// Strikes a damaged checkpoint off, so that the next generation starts from the one before. Stops the job if none
    /// is left, because a start from scratch would discard its work without a decision by its user.
    fn strike_off(&mut self, name: &JobId, CheckpointId { step, generation }: CheckpointId, what: &str) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        if !job.checkpoints.distrust(generation, step) {
            return;
        }
        let next = job.checkpoints.newest().map(|newest| newest.step);
        self.lost_start(
            name,
            CheckpointId { step, generation },
            &format!("damaged, struck off ({what})"),
        );
        match next {
            Some(next) => self.note_restore(
                name,
                format!(
                    "checkpoint of step {step} of job {name} is damaged and struck off ({what}); step {next} is next"
                ),
            ),
            None => {
                let source = self.checkpoints_of_source(name, step).unwrap_or_default();
                self.stop_job(
                    name,
                    format!(
                        "none of its committed checkpoints can be used; the last was of step {step} ({what}): {source}repair \
                         the store, or submit the job anew to start from nothing"
                    ),
                );
            }
        }
    }

    /// Names the checkpoints of the job from which a job resumed, other than that of the `lost` step, and how to start from
    /// the newest of them.
    fn checkpoints_of_source(&self, name: &JobId, lost: Step) -> Option<String> {
        let job = self.state.jobs.get(name).filter(|_| self.state.notes_stops())?;
        let ResumePlace::Job(source) = &job.spec.resume_from.as_ref()?.place else {
            return None;
        };
        let own = self.state.jobs.get(source).filter(|_| source != name)?;
        let steps: Vec<Step> = own.checkpoints.steps().filter(|step| *step != lost).collect();
        let newest = steps.first()?;
        let list: Vec<String> = steps.iter().map(ToString::to_string).collect();
        let noun = if steps.len() == 1 {
            "a checkpoint of step"
        } else {
            "checkpoints of steps"
        };
        Some(format!(
            "job {source}, from which it resumed, has {noun} {}; resume with `--resume-from {source}:{newest}`, ",
            list.join(", ")
        ))
    }

    /// Handles a start checkpoint that ranks could not read and that is not proven damaged.
    fn checkpoint_unreadable(&mut self, name: &JobId, id: CheckpointId) {
        let at = self.at;
        let limit = self.store_wait();
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let store = job.spec.checkpoint.as_ref().map_or("", |policy| policy.store.as_str());
        let store = store.to_owned();
        let (since, is_new) = job.checkpoints.suspicions.unreadable(at);
        let step = id.step;
        if is_new {
            return self.note_restore(
                name,
                format!(
                    "checkpoint of step {step} of job {name} cannot be read: the job waits for {store}, or its object store, to \
                     answer, for at most {} s",
                    limit.as_secs()
                ),
            );
        }
        if at < since.after(limit) {
            return;
        }
        match job.checkpoints.pass_over_newest() {
            Some((step, next)) => {
                let unread = format!("could not be read for {} s", limit.as_secs());
                self.lost_start(name, id, &unread);
                self.note_restore(
                    name,
                    format!(
                        "checkpoint of step {step} of job {name} {unread}: the job goes on from step {next}; step {step} is kept"
                    ),
                );
            }
            // Its restarts count from now on.
            None => self.note_restore(
                name,
                format!(
                    "checkpoint of step {step} of job {name}, the only one that is left, could not be read for {} s; check {store}",
                    limit.as_secs()
                ),
            ),
        }
    }

    fn store_wait(&self) -> Duration {
        Duration::from_millis(self.state.policy.store_wait_ms)
    }

    /// Returns true if a job waits for storage, so that its restarts do not count.
    pub(crate) fn waits_for_store(&self, name: &JobId) -> bool {
        let job = self.state.jobs.get(name);
        job.is_some_and(|job| job.checkpoints.suspicions.waits(self.at, self.store_wait()))
    }

    /// Announces the text, and notes it in the job's case if there is one.
    fn note_restore(&mut self, name: &JobId, text: String) {
        let case = self.state.jobs.get(name).and_then(|job| job.case());
        self.note(case, text.clone());
        self.announce(text);
    }
}

/// Returns the checkpoint that a classification names.
fn checkpoint_of(mark: &Classification) -> Option<CheckpointId> {
    let number = |field: &str| mark.fields.get(field)?.parse::<u64>().ok();
    Some(CheckpointId {
        step: Step(number("step")?),
        generation: Generation(number("generation")?),
    })
}

/// Returns the chunk that a classification names.
fn chunk_of(mark: &Classification) -> Option<ChunkName> {
    let number = |field: &str| mark.fields.get(field)?.parse::<u32>().ok();
    Some(ChunkName {
        rank: Rank(number("rank")?),
        chunk: number("chunk")?,
    })
}

fn listed(nodes: &[NodeId]) -> String {
    let names: Vec<&str> = nodes.iter().map(NodeId::as_str).collect();
    names.join(", ")
}
