//! From a trainer's memory into the agent's.

use std::io;
use std::time::{Duration, Instant};

use rankguard_checkpoint_format::TensorBox;
use rankguard_model::Step;
use rankguard_proto::v1;
use rankguard_proto::v1::from_rank::Kind as Say;
use serde_json::Value;

use super::{ANSWER_WAIT, RankClient, demand};
use crate::demand::ArenaDemand;
use crate::slots::{Claim, Owner, Sealed, Way, borrowed};
use crate::{BackPressure, ClientError, Notes, Part, SaveOutcome, Saved};

/// How often a full arena is looked at: its owner is another process and rings no bell.
const LOOK: Duration = Duration::from_millis(1);

/// Why a save was left out.
const NO_SLOT: &str = "no slot of the arena was free";
const NOTHING_TAKEN: &str = "nothing was taken out of its window in time";

impl RankClient {
    /// Copies the tensors into the arena and tells the agent. When this returns they may be changed. A save that was
    /// begun and not finished is finished first.
    pub fn checkpoint(
        &mut self,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
    ) -> Result<Saved, ClientError> {
        self.checkpoint_with(step, tensors, state, &Notes::default())
    }

    /// The same with more to say of it.
    pub fn checkpoint_with(
        &mut self,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: &Value,
        notes: &Notes,
    ) -> Result<Saved, ClientError> {
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
        self.tell(sealed, started)
    }

    /// How the image gets into its slot; the agent hears of one that passes through.
    fn way(
        &mut self,
        claim: Claim,
        owner: &Owner,
        step: Step,
        tensors: &[(TensorBox, &[u8])],
        state: (&Value, &Notes),
    ) -> Result<Way, ClientError> {
        let way = self.slots.way(claim, owner, step, tensors, state, self.policy())?;
        if let Some(slot) = way.announced() {
            let begun = Say::StreamBegun(v1::StreamBegun { slot, step: step.0 });
            self.guard(|wire| wire.send(begun, Instant::now() + ANSWER_WAIT))?;
        }
        Ok(way)
    }

    fn policy(&self) -> BackPressure {
        self.policy.unwrap_or(self.agents_policy)
    }

    /// Starts to copy beside the training. The tensors must not change until [`finish`](Self::finish) has returned: call
    /// this after the optimizer's step and `finish` before the next one, so that forward and backward run meanwhile.
    /// Gives what became of the save already when it was skipped.
    pub fn begin(
        &mut self,
        step: Step,
        parts: Vec<Part>,
        state: Value,
        notes: Notes,
    ) -> Result<Option<Saved>, ClientError> {
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

    /// Waits for what is left of the copy that was begun and tells the agent. `None` when none was.
    pub fn finish(&mut self) -> Result<Option<Saved>, ClientError> {
        let started = Instant::now();
        self.slots.wait_for_copy()?;
        let Some((step, sealed)) = self.slots.finish() else {
            return Ok(None);
        };
        match sealed? {
            Some(sealed) => self.tell(sealed, Instant::now()).map(Some),
            None => Ok(Some(self.skipped(step, started, NOTHING_TAKEN))),
        }
    }

    /// Never silent: the agent hears of it with the next mark.
    fn skipped(&mut self, step: Step, started: Instant, why: &'static str) -> Saved {
        self.calls.taken(step);
        self.failed.exclude(step);
        self.missed.insert(step, why);
        Saved {
            stall: started.elapsed(),
            outcome: SaveOutcome::SkippedNoFreeSlot,
        }
    }

    /// No attempt exists that this could make void, so the agent gets no report.
    fn skipped_without_store(&mut self) -> Saved {
        self.slots.counts.skipped += 1;
        Saved {
            stall: Duration::ZERO,
            outcome: SaveOutcome::SkippedNoStore,
        }
    }

    fn owner(&self) -> Owner {
        Owner {
            job: self.env.job.clone(),
            generation: self.env.generation,
            rank: self.env.rank,
            world_size: self.env.world_size,
        }
    }

    /// A slot for an image of this size; `None` when the policy says to do without.
    fn claim(&mut self, demand: ArenaDemand) -> Result<Option<Claim>, ClientError> {
        self.finish()?;
        if self.lost {
            let source = io::ErrorKind::NotConnected.into();
            return Err(ClientError::Lost { source });
        }
        self.take_arena(demand)?;
        let look = |left: Duration| std::thread::sleep(left.min(LOOK));
        Ok(self.slots.claim(self.policy(), look)?)
    }

    /// Tells the agent of a sealed slot; `since` is when the trainer began to wait for this.
    fn tell(&mut self, sealed: Sealed, since: Instant) -> Result<Saved, ClientError> {
        let say = Say::SlotSealed(v1::SlotSealed {
            slot: sealed.slot,
            step: sealed.step.0,
            stall_ms: sealed.blocked.as_secs_f64() * 1e3,
            bytes: sealed.bytes,
        });
        self.guard(|wire| wire.send(say, Instant::now() + ANSWER_WAIT))?;
        Ok(Saved {
            stall: sealed.blocked.max(since.elapsed()),
            outcome: SaveOutcome::Sealed,
        })
    }
}
