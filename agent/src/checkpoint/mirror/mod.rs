//! Committed checkpoints to an object store, by all nodes of the job, and out of it again by the rules of the job.
//!
//! Each node brings the shards of its ranks, by a plan that all compute alike. The first node waits for the others for as long
//! as more arrives, or twice the time that its own share took; then it brings what is left, whoever was to, and the manifest.
//! So a node that is gone costs a wait and no checkpoint, and only the first node tells what became of one.
//!
//! One at a time, the newest first: a commit that is overtaken while another is under way is left out, and said to be, unless the
//! rules of the job name it; one that was committed after a newer one waits with those. The first node announces in the object
//! store which one it takes, and the others bring their shares of that one: each by its own clock would bring shares of different
//! commits, and wait for each other. What goes is decided by the controller, which knows all commits and what was measured, and
//! comes with the word of the commit; it is removed once that commit is there. As the object store may have missed some, it keeps
//! as many of its own newest ones as the rules ask for: it never has fewer.
//!
//! An object store that is away for a while costs no checkpoint: the newest commit waits for it. An agent that ends tells which
//! commits it leaves behind.
//!
//! Absent: a share for the work of a first node that is gone: its checkpoint is left out, and the next one comes.

mod pulls;
mod queue;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_checkpoint::failure::SourceFailure;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::source::{ChunkError, ChunkId, ChunkSource, Tier};
use rankguard_checkpoint::{Checkpoint, ReadFailure, Store};
use rankguard_checkpoint_tiers::object::{ObjectError, ObjectSource, ObjectTier};
use rankguard_model::{Body, CopyTier, Entity, Generation, JobId, Launch, Source, Stays, Step, with_causes};

use self::pulls::PullKey;
pub(super) use self::pulls::{PullResult, PullTable};
use self::queue::Mirror;
pub(super) use self::queue::Mirrors;
use super::Checkpoints;
use crate::sighting::Sighting;

/// How often it is looked what other nodes have put into an object store, which rings no bell: at first, and after a while.
const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// How long a commit waits for an object store that is away.
const PATIENCE: Duration = Duration::from_secs(600);

/// Pauses between tries meanwhile: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What an agent that ends gives its mirrors to say what they leave behind.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why a commit did not come to the object store.
#[derive(Debug)]
struct Failed {
    why: String,
    /// The same may succeed later.
    may_pass: bool,
}

impl From<ObjectError> for Failed {
    fn from(problem: ObjectError) -> Self {
        Self {
            why: with_causes(&problem),
            may_pass: problem.is_retryable(),
        }
    }
}

impl Checkpoints {
    /// A checkpoint was committed: to the object store with it, where this node does that.
    pub(super) fn mirror(self: &Arc<Self>, job: &JobId, id: CheckpointId, stays: Option<Stays>) {
        let Some((overtaken, begin)) = self.mirrors.put(job, id, stays) else {
            return;
        };
        for id in overtaken.into_iter().filter(|_| self.mirrors.is_first(job)) {
            let why = Err("a newer checkpoint was committed before its turn came".to_owned());
            self.tell_mirrored(job, id, "the object store", Instant::now(), why);
        }
        if !begin {
            return;
        }
        let (all, job) = (self.clone(), job.clone());
        self.runtime.spawn_blocking(move || all.bring(&job));
    }

    /// Brings what waits, one after the other. For threads that may wait.
    fn bring(&self, job: &JobId) {
        let (mut away, mut pause) = (None, PAUSE.0);
        while let Some((id, mirror)) = self.next_turn(job) {
            let started = Instant::now();
            let pushed = self.push(job, id, &mirror);
            if !mirror.share.is_first() {
                // The first node brings what this one could not.
                if let Err(Failed { why, .. }) = pushed {
                    tracing::warn!(%job, checkpoint = %id, problem = why, "this node's share did not come to the object store");
                }
                continue;
            }
            if let Err(Failed { why, may_pass: true }) = &pushed {
                let since: Instant = *away.get_or_insert(started);
                if since.elapsed() < PATIENCE && self.mirrors.again(job, id) {
                    tracing::warn!(%job, checkpoint = %id, problem = why, ?pause, "the object store is away; this checkpoint waits");
                    self.unless_ending(tokio::time::sleep(pause));
                    pause = PAUSE.1.min(2 * pause);
                    continue;
                }
            }
            (away, pause) = (None, PAUSE.0);
            let is_there = pushed.is_ok();
            self.tell_mirrored(job, id, &mirror.url, started, pushed.map_err(|failed| failed.why));
            if let Some(stays) = mirror.stays.as_ref().filter(|_| is_there) {
                self.retain(job, stays, &mirror);
            }
        }
    }

    /// The commit that is brought next: the first node chooses, the others hear of it. Where they hear nothing for a while they
    /// begin with what they think best: it may be of use.
    fn next_turn(&self, job: &JobId) -> Option<(CheckpointId, Mirror)> {
        let (started, mut pause) = (Instant::now(), LOOK.0);
        loop {
            let (waiting, mirror) = self.mirrors.waiting(job)?;
            if mirror.share.is_first() || started.elapsed() >= self.share_wait {
                return self.mirrors.take(job);
            }
            let announced = self.unless_ending(async {
                let tier = self.object_tier(&mirror.url).ok()?;
                for id in waiting {
                    if tier.is_announced(job, id).await.unwrap_or_default() {
                        return Some(id);
                    }
                }
                tokio::time::sleep(pause).await;
                None
            });
            // The agent ends: nobody is at it any more, whatever waits.
            if let Some(id) = announced? {
                return self.mirrors.take_this(job, id);
            }
            pause = LOOK.1.min(2 * pause);
        }
    }

    /// For threads that may wait.
    fn push(&self, job: &JobId, id: CheckpointId, mirror: &Mirror) -> Result<u64, Failed> {
        let tier = self.object_tier(&mirror.url)?;
        let store = Store::at(&mirror.store);
        // Retention takes nothing of it away meanwhile.
        let _lease = store.lease(job, id).map_err(ObjectError::from)?;
        let (share, started) = (mirror.share, Instant::now());
        let push = async {
            if !share.is_first() {
                return tier.push_share(&store, job, id, share).await;
            }
            if share.nodes == 1 {
                return tier.push(&store, job, id).await.map(|pushed| pushed.sent_bytes);
            }
            tier.announce(job, id).await?;
            let own = tier.push_share(&store, job, id, share).await?;
            let patience = self.share_wait.max(2 * started.elapsed());
            others(&tier, &store, job, id, patience).await?;
            let rest = tier.push(&store, job, id).await?;
            if let Err(problem) = tier.withdraw(job, id).await {
                tracing::warn!(%job, checkpoint = %id, problem = with_causes(&problem), "an announcement stays in the object store");
            }
            Ok(own + rest.sent_bytes)
        };
        let ended = || Failed {
            why: "the agent was asked to end before all of it was there".to_owned(),
            may_pass: false,
        };
        Ok(self.unless_ending(push).ok_or_else(ended)??)
    }

    /// `None` when the agent ends before the work does. For threads that may wait.
    fn unless_ending<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut ending = self.ending.subscribe();
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = ending.wait_for(|ending| *ending) => None,
                done = work => Some(done),
            }
        })
    }

    /// The agent ends: what has not come to an object store by now is told, as long as somebody listens.
    pub(crate) async fn end_mirrors(&self) {
        for (job, id) in self.mirrors.drain() {
            let why = Err("the agent was asked to end before its turn came".to_owned());
            self.tell_mirrored(&job, id, "the object store", Instant::now(), why);
        }
        let _ = self.ending.send(true);
        let until = Instant::now() + FAREWELL;
        while self.mirrors.are_busy() && Instant::now() < until {
            tokio::time::sleep(LOOK.0).await;
        }
    }

    /// Takes out of the object store what the rules do not leave. What cannot be removed is tried again after the next commit.
    /// For threads that may wait.
    fn retain(&self, job: &JobId, stays: &Stays, mirror: &Mirror) {
        let id = |&(generation, step): &(Generation, Step)| CheckpointId { step, generation };
        let named: Vec<CheckpointId> = stays.named.iter().map(id).collect();
        let retained = self.object_tier(&mirror.url).and_then(|tier| {
            let retained = tier.retain(job, stays.newest, &named);
            self.runtime.block_on(retained)
        });
        match retained {
            Ok(removed) if removed.objects == 0 => {}
            Ok(removed) => {
                let (checkpoints, torn) = (removed.checkpoints.len(), removed.torn.len());
                tracing::info!(%job, url = mirror.url, checkpoints, torn, "retention in the object store");
            }
            Err(problem) => {
                tracing::warn!(%job, url = mirror.url, problem = with_causes(&problem), "retention in the object store");
            }
        }
    }

    fn tell_mirrored(&self, job: &JobId, id: CheckpointId, to: &str, started: Instant, sent: Result<u64, String>) {
        let body = Body::Copied {
            generation: id.generation,
            step: id.step,
            tier: CopyTier::Mirror,
            to: to.to_owned(),
            bytes: sent.as_ref().copied().unwrap_or_default(),
            took_ms: started.elapsed().as_secs_f64() * 1e3,
            failed: sent.err(),
        };
        let entity = Entity::Job { job: job.clone() };
        self.intake.push(Sighting::now(Source::Checkpoint, entity, body));
    }

    fn object_tier(&self, url: &str) -> Result<ObjectTier, ObjectError> {
        Ok(ObjectTier::open(url)?.with_cap(self.cap.clone()))
    }

    /// The object store of a job as the last tier of a restore. One that cannot be opened fails every read: it may hold good
    /// copies.
    pub(super) fn mirror_source(&self, launch: &Launch) -> Option<Box<dyn ChunkSource>> {
        let url = launch.tiers.mirror.as_deref()?;
        Some(match self.object_tier(url) {
            Ok(tier) => Box::new(ObjectSource::new(tier, self.runtime.clone())),
            Err(problem) => Box::new(UnopenedMirror {
                url: url.to_owned(),
                problem: with_causes(&problem),
            }),
        })
    }

    /// Brings a checkpoint that the store does not have back from the object store, once for all ranks of this node. For threads
    /// that may wait.
    pub(super) fn pull(&self, url: &str, job: &JobId, store: &Store, id: CheckpointId) -> PullResult {
        let key = PullKey {
            url: url.to_owned(),
            store: store.root().display().to_string(),
            job: job.clone(),
            id,
        };
        let pull = async { self.object_tier(url)?.pull(job, id, store).await.map(drop) };
        self.pulls.share(&key, || self.runtime.block_on(pull))
    }

    /// Manifest and indexes of a checkpoint out of the object store. For threads that may wait.
    pub(super) fn describe_mirrored(
        &self,
        url: &str,
        job: &JobId,
        id: CheckpointId,
    ) -> Result<Checkpoint, Arc<ObjectError>> {
        let read = async { self.object_tier(url)?.checkpoint(job, id).await };
        self.runtime.block_on(read).map_err(Arc::new)
    }
}

/// An object store that cannot be opened with the settings of this agent.
struct UnopenedMirror {
    url: String,
    problem: String,
}

impl ChunkSource for UnopenedMirror {
    fn tier(&self) -> Tier {
        Tier::Disk
    }

    fn name(&self) -> String {
        format!("object store {}", self.url)
    }

    fn chunk(&self, _id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        Err(Box::new(SourceFailure {
            failure: ReadFailure::Unavailable,
            text: self.problem.clone(),
        }))
    }
}

/// Waits until the shares of all nodes are there, or nothing more of them has come for so long.
async fn others(
    tier: &ObjectTier,
    store: &Store,
    job: &JobId,
    id: CheckpointId,
    patience: Duration,
) -> Result<(), ObjectError> {
    let (mut fewest, mut since, mut pause) = (usize::MAX, Instant::now(), LOOK.0);
    loop {
        let missing = tier.missing(store, job, id).await?;
        if missing.is_empty() {
            return Ok(());
        }
        if missing.len() < fewest {
            (fewest, since) = (missing.len(), Instant::now());
        }
        if since.elapsed() >= patience {
            tracing::warn!(%job, checkpoint = %id, ?missing, "the shares of other nodes did not come; this one brings them");
            return Ok(());
        }
        tokio::time::sleep(pause.min(patience)).await;
        pause = LOOK.1.min(2 * pause);
    }
}
