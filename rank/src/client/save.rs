//! Saves of a [`RankClient`]: copies of a trainer's tensors into the agent's arena, in one call or in the background.

use std::io;
use std::time::{Duration, Instant};

use rankguard_checkpoint_format::TensorBox;
use rankguard_model::Step;
use rankguard_proto::v1;
use rankguard_proto::v1::from_rank::Kind as Say;
use serde_json::Value;

use super::{ANSWER_WAIT, RankClient, demand};
use crate::demand::ArenaDemand;
use crate::slots::{ImageOwner, SealedSlot, SlotClaim, SlotWrite, borrowed};
use crate::{BackPressure, ClientError, SaveNotes, SaveOutcome, SaveReport, TensorPart};

/// Poll interval for a free slot: the agent is another process and sends no notification.
const LOOK: Duration = Duration::from_millis(1);

/// Reason of a save that was skipped because every slot was in use.
const NO_SLOT: &str = "no slot of the arena was free";
/// Reason of a save that was skipped because the agent read nothing from the window.
const NOTHING_TAKEN: &str = "nothing was taken out of its window in time";

impl RankClient {
    /// Copies the tensors and the small state into the arena and reports the sealed image to the agent. The tensors may
    /// be changed when this returns. A save that was begun and not finished is finished first. A skipped save is an
    /// outcome, not an error; errors are a lost agent, an interrupt, and tensors or states that the arena cannot hold.
    pub fn checkpoint(
        &mut self,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
    ) -> Result<SaveReport, ClientError> {
        self.checkpoint_with(step, tensors, state, &SaveNotes::default())
    }

    /// Saves as [`checkpoint`](Self::checkpoint) does, with notes on the tensors and the state. Returns the same
    /// errors.
    pub fn checkpoint_with(
        &mut self,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
        notes: &SaveNotes,
    ) -> Result<SaveReport, ClientError> {
        if self.without_store {
            return Ok(self.skipped_without_store());
        }
        let started = Instant::now();
        let Some(claim) = self.claim(demand(tensors.iter().map(|(boxed, _)| boxed), Some(state))?)? else {
            return Ok(self.skipped(step, started, NO_SLOT));
        };
        let owner = self.owner();
        let way = self.way(claim, &owner, step, tensors, (state, notes))?;
        let Some(sealed) = self.slots.fill(way, &owner, step, tensors, (state, notes), started)? else {
            return Ok(self.skipped(step, started, NOTHING_TAKEN));
        };
        self.calls.taken(step);
        self.report_sealed(sealed, started)
    }

    /// Returns how the image is written to its slot. A stream through a window is begun and announced to the agent.
    fn way(
        &mut self,
        claim: SlotClaim,
        owner: &ImageOwner,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: (&Value, &SaveNotes),
    ) -> Result<SlotWrite, ClientError> {
        let way = self.slots.way(claim, owner, step, tensors, state, self.policy())?;
        if let Some(slot) = way.announced() {
            let begun = Say::StreamBegun(v1::StreamBegun { slot, step: step.0 });
            self.guard(|wire| wire.send(begun, Instant::now() + ANSWER_WAIT))?;
        }
        Ok(way)
    }

    /// Returns the policy that the caller has set, or else that of the agent.
    fn policy(&self) -> BackPressure {
        self.policy.unwrap_or(self.agents_policy)
    }

    /// Starts a thread that copies the tensors while the training continues. The tensors must not change until
    /// [`finish`](Self::finish) has returned: call this after the optimizer's step and `finish` before the next one, so
    /// that forward and backward run meanwhile. Returns `None` if the copy has started, and the report if the save was
    /// skipped. Returns the errors of [`checkpoint`](Self::checkpoint), and one if the thread cannot be started.
    pub fn begin(
        &mut self,
        step: Step,
        parts: Vec<TensorPart>,
        state: Value,
        notes: SaveNotes,
    ) -> Result<Option<SaveReport>, ClientError> {
        if self.without_store {
            return Ok(Some(self.skipped_without_store()));
        }
        let started = Instant::now();
        let Some(claim) = self.claim(demand(parts.iter().map(|part| &part.boxed), Some(&state))?)? else {
            return Ok(Some(self.skipped(step, started, NO_SLOT)));
        };
        let owner = self.owner();
        let way = self.way(claim, &owner, step, &borrowed(&parts), (&state, &notes))?;
        let begun = self.slots.begin(way, &owner, step, parts, (state, notes), started);
        begun.map_err(ClientError::Thread)?;
        self.calls.taken(step);
        Ok(None)
    }

    /// Waits for the end of the copy that was begun and reports the sealed image to the agent. Returns `None` if none
    /// was begun. An interrupt is an error that leaves the copy running; other errors are a failed copy and a lost
    /// agent.
    pub fn finish(&mut self) -> Result<Option<SaveReport>, ClientError> {
        let started = Instant::now();
        self.slots.wait_for_copy()?;
        let Some((step, sealed)) = self.slots.finish() else {
            return Ok(None);
        };
        match sealed? {
            Some(sealed) => self.report_sealed(sealed, Instant::now()).map(Some),
            None => Ok(Some(self.skipped(step, started, NOTHING_TAKEN))),
        }
    }

    /// Records a skipped save, which the next step mark reports to the agent.
    fn skipped(&mut self, step: Step, started: Instant, why: &'static str) -> SaveReport {
        self.calls.taken(step);
        self.failed.exclude(step);
        self.missed.insert(step, why);
        SaveReport {
            stall: started.elapsed(),
            outcome: SaveOutcome::SkippedNoFreeSlot,
        }
    }

    /// Counts a save of a job without a store. The agent receives no report, because no checkpoint attempt exists that
    /// the skip makes void.
    fn skipped_without_store(&mut self) -> SaveReport {
        self.slots.counts.skipped += 1;
        SaveReport {
            stall: Duration::ZERO,
            outcome: SaveOutcome::SkippedNoStore,
        }
    }

    fn owner(&self) -> ImageOwner {
        ImageOwner {
            job: self.env.job.clone(),
            generation: self.env.generation,
            rank: self.env.rank,
            world_size: self.env.world_size,
        }
    }

    /// Finishes an earlier save and claims a slot for an image of this size; `None` if the save must be skipped.
    fn claim(&mut self, demand: ArenaDemand) -> Result<Option<SlotClaim>, ClientError> {
        self.finish()?;
        if self.lost {
            let source = io::ErrorKind::NotConnected.into();
            return Err(ClientError::Lost { source });
        }
        self.take_arena(demand)?;
        let look = |left: Duration| std::thread::sleep(left.min(LOOK));
        Ok(self.slots.claim(self.policy(), look)?)
    }

    /// Reports a sealed slot to the agent. The stall of the report is the longer of `sealed.blocked` and the time since
    /// `since`.
    fn report_sealed(&mut self, sealed: SealedSlot, since: Instant) -> Result<SaveReport, ClientError> {
        let say = Say::SlotSealed(v1::SlotSealed {
            slot: sealed.slot,
            step: sealed.step.0,
            stall_ms: sealed.blocked.as_secs_f64() * 1e3,
            bytes: sealed.bytes,
        });
        self.guard(|wire| wire.send(say, Instant::now() + ANSWER_WAIT))?;
        Ok(SaveReport {
            stall: sealed.blocked.max(since.elapsed()),
            outcome: SaveOutcome::Sealed,
        })
    }
}
