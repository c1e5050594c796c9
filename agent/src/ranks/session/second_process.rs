//! Refusal of a second process of a rank in one generation.
//!
//! A command may start its program again after an error. That program would begin with another state than the ranks beside
//! it, and its shards would be those of another history. So it is refused: the command ends with an error, and all ranks
//! start from the newest checkpoint.

use rankguard_faults::classes;
use rankguard_model::{EvidenceBody, EvidenceSource, RankRef, Role};
use rankguard_proto::v1;

use super::{Heard, IdentifiedRank, RankSession, Said, SessionFailure};
use crate::pending_evidence::{PendingEvidence, mark};
use crate::roster::EndedTrainer;

/// Signature of the report of a refusal.
const REFUSED_PROCESS: &str = "agent.refused-process";

impl RankSession {
    /// Refuses messages of training from a process other than the one that trained for the rank, once that one has ended.
    pub(super) fn check_trainer(&mut self, known: &IdentifiedRank, heard: &Heard) -> Result<(), SessionFailure> {
        let trains = matches!(heard, Heard::StepDone(_) | Heard::StreamBegun(_) | Heard::SlotSealed(_));
        let is_restore = matches!(heard, Heard::ArenaWanted(_) | Heard::RestoreWanted(_));
        if !trains && !is_restore {
            return Ok(());
        }
        if let Some(earlier) = self.roster.ended_trainer(&known.rank, known.pid) {
            // Steps of a program that follows the training change no checkpoint.
            let is_harmless = earlier.is_finished && matches!(heard, Heard::StepDone(_));
            return if is_harmless {
                Ok(())
            } else {
                self.refuse_process(&known.rank, known.pid, &earlier)
            };
        }
        if trains {
            self.roster.note_trainer(&known.rank, known.pid);
        }
        Ok(())
    }

    /// Refuses a process of a rank for which another one trained, and ends its session.
    pub(super) fn refuse_process(
        &mut self,
        rank: &RankRef,
        pid: u32,
        earlier: &EndedTrainer,
    ) -> Result<(), SessionFailure> {
        let number = rank.rank;
        let work = earlier.work();
        let reason = if earlier.is_finished {
            format!(
                "process {pid} can neither restore nor save for rank {number}: {work} and reported that all work is done; \
                 run what follows as a job of its own, with --resume-from"
            )
        } else {
            format!(
                "process {pid} cannot continue the work of rank {number}: {work} and has ended. The ranks of a generation \
                 start together, from one checkpoint; let the command of the rank end with an error instead of a second \
                 start of the program, and all ranks are started from the newest checkpoint. A program that follows the \
                 training can connect if the training calls rankguard.done() at its end"
            )
        };
        if !earlier.is_finished && self.roster.note_refused_process(rank) {
            self.report_refused_process(rank, pid, &work);
        }
        self.send_message(Said::Refused(v1::Refused { reason: reason.clone() }))?;
        Err(SessionFailure::Protocol(reason))
    }

    fn report_refused_process(&self, rank: &RankRef, pid: u32, work: &str) {
        let body = EvidenceBody::Line {
            text: format!(
                "the command of rank {} started its program again, and process {pid} was refused: {work} and has ended",
                rank.rank
            ),
            context: Vec::new(),
            repeats: 1,
        };
        let found = mark(classes::NONE, Role::Noise, 0.9, REFUSED_PROCESS);
        let entity = self.roster.entity(rank);
        let report = PendingEvidence::now(EvidenceSource::Ranks, entity, body).marked(vec![found]);
        self.intake.push(report);
    }
}
