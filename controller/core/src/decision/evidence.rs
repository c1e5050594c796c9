//! Effects of evidence on the progress of plans and checkpoints.

use rankguard_checkpoint_format::CheckpointId;
use rankguard_model::{Entity, Evidence, EvidenceBody, Generation, JobId, ProgressPoint};

use super::DecisionContext;
use crate::job::JobLookup;
use crate::job::rules;
use crate::missed_reports::{MissingReports, ReportContext};
use crate::{Action, JobPhase};

impl DecisionContext<'_> {
    pub(super) fn evidence_arrived(&mut self, evidence: &Evidence) {
        let seen = self.state.seen.entry(evidence.id.node.clone()).or_default();
        *seen = (*seen).max(evidence.id.seq);
        if self.evidence_refused(evidence) {
            return;
        }
        self.clear_refusals(&evidence.id.node);
        self.note_report_time(&evidence.id.node);
        if self.foreign_rank_stepped(evidence) || self.foreign_rank_ended(evidence) {
            return;
        }
        self.take_report(evidence);
        // A stale order is no evidence about the node's health.
        if matches!(evidence.body, EvidenceBody::OrderFailed { newest: Some(_), .. }) {
            return;
        }
        self.take_farewell(evidence);
        self.lease_ended(evidence);
        self.watch_links(evidence);
        self.watch_conditions(evidence);
        self.note_rank(evidence);
        self.pass_to_diagnosis(evidence);
        self.take_failed_rank(evidence);
        self.follow_exit(evidence);
        self.compare_starts(evidence);
        self.rank_silent(evidence);
        self.rank_active(evidence);
        self.restore_retried(evidence);
        self.ras_answered(evidence);
        self.restore_failed(evidence);
        self.watch_removal_notice(evidence);
        self.watch_risk(evidence);
    }

    /// Applies evidence to plans and checkpoints. Reports of older generations are ignored.
    pub(super) fn take_report(&mut self, evidence: &Evidence) {
        if let EvidenceBody::Fenced {
            job,
            generation,
            master_port,
            ended,
            left,
        } = &evidence.body
        {
            self.ranks_ended(&evidence.id.node, job, *generation, *ended, left);
            if left.is_empty() {
                self.node_fenced(job, *generation, &evidence.id.node, *master_port);
            }
            return;
        }
        if let EvidenceBody::OrderFailed {
            job,
            generation,
            reason,
            ..
        } = &evidence.body
        {
            self.fence_failed(&evidence.id.node, job, *generation, reason);
        }
        if let EvidenceBody::Stopped {
            job,
            generation,
            ended,
            left,
        } = &evidence.body
        {
            self.ranks_ended(&evidence.id.node, job, generation.next(), *ended, left);
            if left.is_empty() {
                self.ranks_ended_early(&evidence.id.node, job, *generation);
                self.former_node_released(job, *generation, &evidence.id.node);
            }
            return;
        }
        if let EvidenceBody::Preflighted {
            job,
            generation,
            failed,
            environment,
        } = &evidence.body
        {
            return self.node_preflighted(job, *generation, &evidence.id.node, failed, environment);
        }
        if let EvidenceBody::Prepared {
            job,
            generation,
            waiting,
            problem,
        } = &evidence.body
        {
            return self.node_prepared(job, *generation, &evidence.id.node, *waiting, problem.as_deref());
        }
        if let EvidenceBody::OrderFailed {
            job,
            generation,
            newest: Some(newest),
            ..
        } = &evidence.body
        {
            return self.order_refused(job, &evidence.id.node, *generation, *newest);
        }
        if let EvidenceBody::Copied { .. } = &evidence.body {
            return self.record_copy_result(evidence);
        }
        if let EvidenceBody::ShardsFinished { .. } = &evidence.body {
            return self.shards_finished(evidence);
        }
        let Entity::Rank {
            job: name,
            generation,
            rank,
            node,
        } = &evidence.entity
        else {
            return;
        };
        let at = self.at;
        let counts_passed = self.state.counts_passed_attempts();
        let settles_attempts = self.state.settles_attempts();
        let dates_exits = self.state.dates_exits();
        let absence = self.state.lives.absence_before(evidence.at);
        let has_exact_cases = self.state.has_exact_cases();
        let marks_slow_drills = self.state.examines_slow_ranks();
        self.late_shard_report(name, *generation, &evidence.body);
        self.note_start_without_listing(name, *generation, &evidence.body);
        self.record_step(name, *generation, evidence);
        let Some(job) = self.state.jobs.in_generation(name, *generation) else {
            return;
        };
        if job.plan().is_none_or(|plan| rank.0 >= plan.world_size()) {
            return;
        }
        match &evidence.body {
            EvidenceBody::RankStarted { pid, .. } => {
                job.rank_started(at, node, *rank, *pid);
                self.advance(name);
            }
            EvidenceBody::RankExited { exit, .. } => {
                job.rank_exited(at, *rank, exit.is_success());
                if dates_exits {
                    job.date_exit(*rank, evidence.at);
                }
                if settles_attempts && exit.is_success() {
                    job.count_left_out();
                }
                let verb = if exit.is_success() { "completed" } else { "ended" };
                self.close_past_faults(name, &format!("rank {rank} {verb}"));
                if !exit.is_success() {
                    self.rank_gave_up(name, *rank);
                }
                self.advance(name);
            }
            EvidenceBody::Progress {
                step,
                loss,
                step_ms,
                own_ms,
            } => {
                job.tempo
                    .note(evidence.at, *rank, *step, *step_ms, *own_ms, has_exact_cases);
                if marks_slow_drills {
                    job.tempo.note_drill(*rank, evidence.synthetic);
                }
                let point = ProgressPoint {
                    at: evidence.at,
                    generation: *generation,
                    step: *step,
                    loss: *loss,
                    step_ms: *step_ms,
                };
                let has_finite_loss = loss.is_some_and(f64::is_finite);
                let recovers = job.rank_notes.stepped(*rank, *step, has_finite_loss, evidence.at);
                let is_first = job.step_reported(self.at, *rank, point);
                if recovers {
                    self.close_past_faults(name, &format!("rank {rank} reported a finite loss at step {step}"));
                }
                self.rank_moved(name, *rank, *step);
                self.note_step(name, *step);
                let Some(job) = self.state.jobs.get(name) else { return };
                if matches!(job.phase(), JobPhase::Starting) || is_first && job.is_running() {
                    self.first_step(name, evidence.at);
                } else if job.is_running() {
                    self.watch_stall(name);
                    self.watch_tempo(name);
                }
            }
            EvidenceBody::RankFinished => job.rank_notes.finished(*rank),
            EvidenceBody::Restored { from, .. } => self.rank_restored(name, *rank, *from),
            EvidenceBody::ShardSealed { step, stall_ms, .. } => {
                job.checkpoints.sealed(*generation, *step, *rank, *stall_ms);
                if has_exact_cases {
                    job.checkpoints.note_seal(*generation, *step, evidence.at);
                }
                if settles_attempts {
                    job.count_left_out();
                }
            }
            EvidenceBody::ShardDurable { seal } => {
                let rules = job.spec.checkpoint.as_ref().map(rules).unwrap_or_default();
                let manifest = if job.committable() == Some(*generation) {
                    if has_exact_cases {
                        job.checkpoints.note_save(*generation, seal.step, evidence.at);
                        job.checkpoints.retain_complete_attempts();
                    }
                    let before = job.checkpoints.open_attempts(*generation);
                    let manifest = job.checkpoints.durable(name, *generation, seal.clone(), &rules);
                    if counts_passed {
                        let context = ReportContext::new(at, &self.state.fleet, &self.state.lives, job.plan());
                        let missing = if has_exact_cases {
                            context.missing_reports(job.checkpoints.overtaken(*generation, &before))
                        } else {
                            MissingReports::Absence(absence)
                        };
                        job.checkpoints.count_passed_attempts(*generation, &before, &missing);
                    }
                    manifest
                } else {
                    None
                };
                self.commit(name, manifest);
            }
            EvidenceBody::ShardFailed { step, reason } => {
                job.checkpoints.failed(*generation, *step, reason);
                job.calls.void(*step);
                self.announce(format!(
                    "rank {rank} of job {name} could not keep its shard of step {step}: {reason}; older checkpoints \
                     are untouched"
                ));
                self.release_former_nodes(name);
            }
            _ => {}
        }
    }

    /// Journals of controllers that launched without a store listing contain no listing event, but their ranks started.
    fn note_start_without_listing(&mut self, name: &JobId, generation: Generation, body: &EvidenceBody) {
        let Some(job) = self.state.jobs.get(name) else { return };
        if let (JobPhase::Adopting { port, .. }, EvidenceBody::RankStarted { .. }) = (job.phase(), body)
            && job.generation() == generation
        {
            let port = *port;
            self.launch(name, port);
        }
    }

    /// Records the result of a copy, also from a generation that is over: the copy remains usable.
    fn record_copy_result(&mut self, evidence: &Evidence) {
        let EvidenceBody::Copied {
            generation,
            step,
            tier,
            to,
            failed,
            ..
        } = &evidence.body
        else {
            return;
        };
        let at = self.at;
        let Some(name) = evidence.entity.job() else { return };
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        match failed {
            None => job.checkpoints.copied(at, *generation, *step, *tier),
            Some(reason) => {
                job.checkpoints.not_copied(*step, to, reason);
                self.announce(format!(
                    "step {step} of job {name} could not be copied to {to}: {reason}"
                ));
            }
        }
    }

    pub(super) fn commit(&mut self, name: &JobId, manifest: Option<rankguard_checkpoint_format::Manifest>) {
        let Some(job) = self.state.jobs.get(name) else { return };
        if let (Some(manifest), Some(policy)) = (manifest, job.spec.checkpoint.clone()) {
            let mut pinned = job.uncollected_checkpoints(&policy, self.at, self.state.settles_attempts());
            // It is committed when the collection begins: no attempt any more that waits for its commit.
            let written = CheckpointId {
                step: manifest.step,
                generation: manifest.generation,
            };
            if !job.retained_checkpoints(&policy, self.at).contains(&written) {
                pinned.retain(|id| *id != written);
            }
            self.actions.push(Action::CommitManifest {
                store: policy.store,
                manifest,
                keep: policy.keep,
                pinned,
            });
        }
    }

    /// Commits a checkpoint that became complete while another manifest was written.
    pub(super) fn commit_next(&mut self, name: &JobId) {
        let Some(job) = self.state.jobs.get_mut(name) else {
            return;
        };
        let committable = job.committable();
        let manifest = committable.and_then(|generation| job.checkpoints.complete(name, generation));
        self.commit(name, manifest);
    }
}
