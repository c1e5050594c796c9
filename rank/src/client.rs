//! Client of the node's agent, for trainers.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rankguard_checkpoint::Arena;
use rankguard_checkpoint_format::TensorBox;
use rankguard_model::{CheckpointCall, Rank, Step};
use rankguard_proto::v1;
use rankguard_proto::v1::from_rank::Kind as Say;
use rankguard_proto::v1::to_rank::Kind as Hear;

use crate::ClientError;
use crate::calls::CheckpointCalls;
use crate::demand::ArenaDemand;
use crate::failed_saves::FailedSaves;
use crate::slots::ArenaSlots;
use crate::wire::{self, AgentNotice, AgentSocket};
use crate::{BackPressure, RankEnv, SaveCounts};

mod restore;
mod save;

pub use restore::{RestoreSummary, RestoredTensors};

/// Longest wait for an answer that requires no work of the agent.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Additional wait for each GiB that the agent must allocate or read first: enough for a slow disk, and more than a
/// busy machine takes to touch that much memory for the first time.
const WAIT_A_GIB: Duration = Duration::from_secs(10);

/// A rank's connection to the agent of its node.
#[derive(Debug)]
pub struct RankClient {
    env: RankEnv,
    wire: AgentSocket,
    slots: ArenaSlots,
    /// Policy that the trainer has set.
    policy: Option<BackPressure>,
    /// Policy of the agent, used unless the trainer has set one.
    agents_policy: BackPressure,
    checkpoint_every: u64,
    /// True if the job has no checkpoint store, so that no image is taken.
    without_store: bool,
    calls: CheckpointCalls,
    /// Steps of which no image will be taken, still to be reported.
    missed: BTreeMap<Step, &'static str>,
    /// Checkpoints that the agent reported as void.
    failed: FailedSaves,
    /// True after the first error of the socket; nothing is sent afterwards.
    lost: bool,
    marks_dropped: u64,
}

impl RankClient {
    /// Connects and introduces this rank. Returns `None` if the environment names no agent.
    pub fn connect(env: &RankEnv) -> Result<Option<Self>, ClientError> {
        let Some(path) = &env.socket else {
            return Ok(None);
        };
        let stream = wire::connect(path, ANSWER_WAIT)?;
        Self::over(stream, env).map(Some)
    }

    /// Introduces this rank over a stream that is already connected.
    pub fn over(stream: UnixStream, env: &RankEnv) -> Result<Self, ClientError> {
        let mut client = Self {
            env: env.clone(),
            wire: AgentSocket::new(stream),
            slots: ArenaSlots::written_elsewhere(),
            policy: None,
            agents_policy: BackPressure::Skip,
            checkpoint_every: 0,
            without_store: false,
            calls: CheckpointCalls::new(env.generation, Step(0), 0),
            missed: BTreeMap::new(),
            failed: FailedSaves::default(),
            lost: false,
            marks_dropped: 0,
        };
        let hello = Say::Hello(v1::RankHello {
            job: env.job.to_string(),
            generation: env.generation.0,
            rank: env.rank.0,
            pid: std::process::id(),
            follows: true,
            reads_failures: true,
            leaves: false,
        });
        match client.ask(hello, "the agent's welcome", ANSWER_WAIT)? {
            Hear::Welcome(welcome) => {
                client.checkpoint_every = welcome.checkpoint_every;
                client.without_store = welcome.without_store;
                client.calls = CheckpointCalls::new(env.generation, Step(0), welcome.checkpoint_every);
            }
            other => return Err(unexpected("the agent's welcome", &other)),
        }
        Ok(client)
    }

    /// Returns the steps between checkpoints by the rule of the launch; 0 without checkpoints. The controller may call
    /// other steps and change the rule: use [`due`](Self::due).
    pub fn checkpoint_every(&self) -> u64 {
        self.checkpoint_every
    }

    /// Returns true if the job has no checkpoint store: every save is
    /// [`SaveOutcome::SkippedNoStore`](crate::SaveOutcome).
    pub fn without_store(&self) -> bool {
        self.without_store
    }

    /// Returns true if a checkpoint is due at the end of this step: by the rule of the launch, or because the
    /// controller called it. Call this once all work of the step is done; a repeated call with the same step returns
    /// the same. Never waits.
    pub fn due(&mut self, step: Step) -> bool {
        self.listen(step);
        self.calls.due(step)
    }

    /// Returns the number of step marks that were not sent because the agent did not read or is gone.
    pub fn marks_dropped(&self) -> u64 {
        self.marks_dropped
    }

    /// Reports a completed step. Never waits and never fails: a mark that cannot be sent is counted.
    pub fn step(&mut self, step: Step, loss: Option<f64>, step_ms: f64) {
        self.step_of(step, loss, step_ms, None);
    }

    /// Reports a completed step as [`RankClient::step`] does, with the part of the step, in milliseconds, in which
    /// this rank worked rather than waited for others: where all ranks wait for each other, only this value identifies
    /// a slow rank.
    pub fn step_of(&mut self, step: Step, loss: Option<f64>, step_ms: f64, own_ms: Option<f64>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = Say::StepDone(v1::StepDone {
            step: step.0,
            loss,
            step_ms,
            at_ns: i64::try_from(now.as_nanos()).unwrap_or(i64::MAX),
            own_ms,
        });
        let taken = !self.lost && self.guard(|wire| wire.offer(mark)).unwrap_or(false);
        self.marks_dropped += u64::from(!taken);
        self.listen(step);
    }

    /// Handles the calls that have arrived, and reports those that were missed before this step. Never waits: reports
    /// that the agent does not accept now are sent later.
    fn listen(&mut self, step: Step) {
        self.read_notices();
        for step in self.calls.missed(step) {
            self.failed.exclude(step);
            self.missed.insert(step, "no image of it was taken");
        }
        while !self.lost
            && let Some((step, why)) = self.missed.pop_first()
        {
            let say = Say::Missed(v1::CheckpointMissed {
                step: step.0,
                reason: why.to_owned(),
            });
            if !self.guard(|wire| wire.offer(say)).unwrap_or(false) {
                self.missed.insert(step, why);
                return;
            }
        }
    }

    /// Handles the notices that have arrived. Never waits.
    fn read_notices(&mut self) {
        while !self.lost
            && let Ok(Some(notice)) = self.guard(AgentSocket::notice)
        {
            match notice {
                AgentNotice::Failed(failed) => self.failed.record(Step(failed.step), failed.reason),
                // A call that this version cannot decode is ignored.
                AgentNotice::Called(called) => {
                    if let Ok((number, call)) = <(u64, CheckpointCall)>::try_from(called)
                        && let Some(step) = self.calls.receive_call(number, call)
                    {
                        self.failed.exclude(step);
                        self.missed.insert(step, "the call came too late");
                    }
                }
            }
        }
    }

    /// Returns the number of checkpoints of this generation that the agent reported as void, each step once. Never waits.
    pub fn failed(&mut self) -> u64 {
        self.read_notices();
        self.failed.count()
    }

    /// Returns the newest void checkpoint with its reason, of those that [`failed`](Self::failed) counts.
    pub fn last_failure(&self) -> Option<&(Step, String)> {
        self.failed.last()
    }

    /// Returns the void checkpoints since the last call, oldest first, each with the reason; at most 16. Never waits.
    pub fn take_failures(&mut self) -> Vec<(Step, String)> {
        self.read_notices();
        self.failed.take()
    }

    /// Sets the behaviour of a save when no slot is free; the default is the agent's.
    pub fn set_policy(&mut self, policy: BackPressure) {
        self.policy = Some(policy);
    }

    /// Returns the rank and the number of ranks of its generation.
    pub fn place(&self) -> (Rank, u32) {
        (self.env.rank, self.env.world_size)
    }

    /// Returns the counts of saves by outcome.
    pub fn counts(&self) -> SaveCounts {
        self.slots.counts
    }

    /// Reports that all work of this rank is done.
    pub fn done(&mut self) -> Result<(), ClientError> {
        let done = Say::Done(v1::RankDone {});
        self.guard(|wire| wire.send(done, Instant::now() + ANSWER_WAIT))
    }

    /// Closes this process's copy of the socket. For a fork of the process that connected: nothing is sent, joined or
    /// released, and the parent continues with its own copy.
    pub fn leave_to_parent(mut self) {
        self.slots.forget_copy();
    }

    /// Ensures that there is an arena for images of this size. A larger one replaces a smaller one; the agent retains
    /// the images in the smaller one while they are needed.
    fn take_arena(&mut self, demand: ArenaDemand) -> Result<(), ClientError> {
        let fits = |arena: &Arc<Arena>| demand.fits(arena.geometry());
        if self.slots.arena.as_ref().is_some_and(fits) {
            return Ok(());
        }
        let what = "the arena";
        let wanted = v1::ArenaWanted {
            image_bytes: demand.image_bytes,
            headroom_bytes: demand.headroom_bytes(),
            meta_bytes: demand.meta_bytes,
        };
        let wait = wait_for(ANSWER_WAIT, demand.image_bytes);
        match self.ask(Say::ArenaWanted(wanted), what, wait)? {
            Hear::ArenaReady(ready) => {
                self.agents_policy = match ready.when_full() {
                    v1::WhenFull::Wait => BackPressure::Wait(Duration::from_millis(ready.wait_ms)),
                    v1::WhenFull::ReplaceOldest => BackPressure::ReplaceOldest,
                    v1::WhenFull::Skip | v1::WhenFull::Unspecified => BackPressure::Skip,
                };
            }
            other => return Err(unexpected(what, &other)),
        }
        // The arena's own header defines its shape; the numbers in the message are informative.
        let fd = self.wire.take_fd().ok_or(ClientError::NoDescriptor)?;
        self.slots.arena = Some(Arc::new(Arena::map(fd)?));
        Ok(())
    }

    fn ask(&mut self, question: Say, what: &'static str, wait: Duration) -> Result<Hear, ClientError> {
        let until = Instant::now() + wait;
        self.guard(|wire| {
            // The agent may refuse and close before the request is sent; its refusal is more informative than a broken
            // pipe.
            let sent = wire.send(question, until);
            match answer(wire, what, until) {
                Err(refused @ ClientError::Refused { .. }) => Err(refused),
                Ok(answer) => sent.map(|()| answer),
                Err(error) => Err(sent.err().unwrap_or(error)),
            }
        })
    }

    /// Receives a further response without another request.
    fn hear(&mut self, what: &'static str, wait: Duration) -> Result<Hear, ClientError> {
        self.guard(|wire| answer(wire, what, Instant::now() + wait))
    }

    fn guard<T>(&mut self, talk: impl FnOnce(&mut AgentSocket) -> Result<T, ClientError>) -> Result<T, ClientError> {
        let result = talk(&mut self.wire);
        self.lost |= result.is_err();
        result
    }
}

pub(crate) fn answer(wire: &mut AgentSocket, what: &'static str, until: Instant) -> Result<Hear, ClientError> {
    match wire.receive(until, what)? {
        Hear::Refused(refused) => Err(ClientError::Refused { reason: refused.reason }),
        answer => Ok(answer),
    }
}

/// Returns the longest wait for an answer that requires the agent to touch or read `bytes`.
fn wait_for(answer: Duration, bytes: u64) -> Duration {
    let gibs = u32::try_from(bytes >> 30).unwrap_or(u32::MAX);
    answer.saturating_add(WAIT_A_GIB.saturating_mul(gibs))
}

/// Returns the arena demand of an image of these boxes and this state.
fn demand<'a>(
    boxes: impl Iterator<Item = &'a TensorBox>,
    state: Option<&serde_json::Value>,
) -> Result<ArenaDemand, ClientError> {
    ArenaDemand::new(boxes, state).ok_or_else(|| ClientError::Box {
        name: "all together".to_owned(),
    })
}

pub(crate) fn unexpected(wanted: &'static str, got: &Hear) -> ClientError {
    let got = match got {
        Hear::Welcome(_) => "a welcome",
        Hear::ArenaReady(_) => "an arena",
        Hear::RestoreReady(_) => "restored tensors",
        Hear::NothingToRestore(_) => "nothing to restore",
        Hear::Refused(_) => "a refusal",
        Hear::Called(_) => "a call",
        Hear::Failed(_) => "a report of a void checkpoint",
        Hear::Leave(_) => "the end of the generation",
        Hear::Kept(_) => "the socket of the next rank",
    };
    ClientError::Answer { wanted, got }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_needs_memory_may_take_longer_by_how_much_it_is() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert_eq!(wait_for(ANSWER_WAIT, 500 << 20), ANSWER_WAIT);
        assert_eq!(wait_for(minutes(2), 60 << 30), minutes(12));
        assert!(wait_for(ANSWER_WAIT, u64::MAX) > minutes(60));
    }
}
