//! Mirror of committed checkpoints: all nodes of a job copy them to an object store, and retention removes them by the
//! job's rules.
//!
//! Each node copies the shards of its ranks, by a plan that all nodes compute alike. The first node waits for the
//! others while shards arrive, or twice the time of its own share; then it copies all that is missing, and the
//! manifest. So a lost node costs a wait but no checkpoint. Only the first node reports results.
//!
//! Commits are copied one at a time, the newest first. A commit that is superseded while another is being copied is
//! left out and reported, unless the job's rules retain it; a commit that arrives after a newer one waits with those.
//! The first node announces the chosen commit in the object store, and the others copy their shares of that one;
//! otherwise nodes would choose different commits and wait for each other.
//!
//! The controller, which knows all commits and measurements, decides what is removed; its decision comes with the
//! commit, and is applied once that commit is in the object store. As the object store may lack some, as many of its
//! own newest checkpoints as the rules require are retained: it never has fewer.
//!
//! An unreachable object store costs no checkpoint: the newest commit waits for it. An agent that ends reports the
//! commits that it leaves behind.
//!
//! Absent: takeover of a lost first node's work; its checkpoint is left out, and the next one is copied.

mod pulls;
mod queue;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_checkpoint::failure::SourceFailure;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::source::{ChunkError, ChunkId, ChunkSource, SourceTier};
use rankguard_checkpoint::{Checkpoint, ReadFailure, Store};
use rankguard_checkpoint_tiers::object::{ObjectError, ObjectSource, ObjectTier};
use rankguard_model::{
    CopyTier, Entity, EvidenceBody, EvidenceSource, Generation, JobId, LaunchOrder, RetainedSet, Step, with_causes,
};

use self::pulls::PullKey;
pub(super) use self::pulls::{PullResult, PullTable};
use self::queue::JobMirror;
pub(super) use self::queue::MirrorQueues;
use super::CheckpointService;
use crate::pending_evidence::PendingEvidence;

/// First and longest poll interval for shards of other nodes: an object store sends no notifications.
const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Longest wait of a commit for an unreachable object store.
const PATIENCE: Duration = Duration::from_secs(600);

/// First and longest pause between attempts meanwhile.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Time that an ending agent gives its mirrors to report the commits that they leave behind.
const FAREWELL: Duration = Duration::from_secs(2);

/// Failure to copy a commit to the object store.
#[derive(Debug)]
struct CopyFailure {
    why: String,
    /// True if a later attempt may succeed.
    may_pass: bool,
}

impl From<ObjectError> for CopyFailure {
    fn from(problem: ObjectError) -> Self {
        Self {
            why: with_causes(&problem),
            may_pass: problem.is_retryable(),
        }
    }
}

impl CheckpointService {
    /// Queues a committed checkpoint for the object store, if this node mirrors the job.
    pub(super) fn mirror(self: &Arc<Self>, job: &JobId, id: CheckpointId, stays: Option<RetainedSet>) {
        let Some((overtaken, begin)) = self.mirrors.put(job, id, stays) else {
            return;
        };
        for id in overtaken.into_iter().filter(|_| self.mirrors.is_first(job)) {
            let why = Err("a newer checkpoint was committed before its turn came".to_owned());
            self.report_mirrored(job, id, "the object store", Instant::now(), why);
        }
        if !begin {
            return;
        }
        let all = self.clone();
        let job = job.clone();
        self.runtime.spawn_blocking(move || all.bring(&job));
    }

    /// Copies the queued commits, one after the other. Blocks.
    fn bring(&self, job: &JobId) {
        let mut away = None;
        let mut pause = PAUSE.0;
        while let Some((id, mirror)) = self.next_turn(job) {
            let started = Instant::now();
            let pushed = self.push(job, id, &mirror);
            if !mirror.share.is_first() {
                // The first node copies what this one could not.
                if let Err(CopyFailure { why, .. }) = pushed {
                    tracing::warn!(%job, checkpoint = %id, problem = why, "this node's share did not come to the object store");
                }
                continue;
            }
            if let Err(CopyFailure { why, may_pass: true }) = &pushed {
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
            self.report_mirrored(job, id, &mirror.url, started, pushed.map_err(|failed| failed.why));
            if let Some(stays) = mirror.stays.as_ref().filter(|_| is_there) {
                self.retain(job, stays, &mirror);
            }
        }
    }

    /// Returns the commit that is copied next: the first node chooses, the others wait for its announcement. After
    /// `share_wait` without one they choose themselves; the share may still be of use.
    fn next_turn(&self, job: &JobId) -> Option<(CheckpointId, JobMirror)> {
        let started = Instant::now();
        let mut pause = LOOK.0;
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
            // The agent ends: the queued commits are not copied.
            if let Some(id) = announced? {
                return self.mirrors.take_this(job, id);
            }
            pause = LOOK.1.min(2 * pause);
        }
    }

    /// Copies this node's share of a commit; the first node completes it. Blocks.
    fn push(&self, job: &JobId, id: CheckpointId, mirror: &JobMirror) -> Result<u64, CopyFailure> {
        let tier = self.object_tier(&mirror.url)?;
        let store = Store::at(&mirror.store);
        // The lease stops retention from removing the checkpoint meanwhile.
        let _lease = store.lease(job, id).map_err(ObjectError::from)?;
        let share = mirror.share;
        let started = Instant::now();
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
        let ended = || CopyFailure {
            why: "the agent was asked to end before all of it was there".to_owned(),
            may_pass: false,
        };
        Ok(self.unless_ending(push).ok_or_else(ended)??)
    }

    /// Runs `work`; returns `None` if the agent ends first. Blocks.
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

    /// Ends the mirrors with the agent: reports the commits that are not in an object store yet, within [`FAREWELL`].
    pub(crate) async fn end_mirrors(&self) {
        for (job, id) in self.mirrors.drain() {
            let why = Err("the agent was asked to end before its turn came".to_owned());
            self.report_mirrored(&job, id, "the object store", Instant::now(), why);
        }
        let _ = self.ending.send(true);
        let until = Instant::now() + FAREWELL;
        while self.mirrors.are_busy() && Instant::now() < until {
            tokio::time::sleep(LOOK.0).await;
        }
    }

    /// Removes the checkpoints that the retention rules do not retain from the object store. A failed removal is
    /// retried after the next commit. Blocks.
    fn retain(&self, job: &JobId, stays: &RetainedSet, mirror: &JobMirror) {
        let id = |&(generation, step): &(Generation, Step)| CheckpointId { step, generation };
        let named: Vec<CheckpointId> = stays.named.iter().map(id).collect();
        let retained = self.object_tier(&mirror.url).and_then(|tier| {
            let retained = tier.retain(job, stays.newest, &named);
            self.runtime.block_on(retained)
        });
        match retained {
            Ok(removed) if removed.objects == 0 => {}
            Ok(removed) => {
                let checkpoints = removed.checkpoints.len();
                let torn = removed.torn.len();
                tracing::info!(%job, url = mirror.url, checkpoints, torn, "retention in the object store");
            }
            Err(problem) => {
                tracing::warn!(%job, url = mirror.url, problem = with_causes(&problem), "retention in the object store");
            }
        }
    }

    fn report_mirrored(&self, job: &JobId, id: CheckpointId, to: &str, started: Instant, sent: Result<u64, String>) {
        let body = EvidenceBody::Copied {
            generation: id.generation,
            step: id.step,
            tier: CopyTier::Mirror,
            to: to.to_owned(),
            bytes: sent.as_ref().copied().unwrap_or_default(),
            took_ms: started.elapsed().as_secs_f64() * 1e3,
            failed: sent.err(),
        };
        let entity = Entity::Job { job: job.clone() };
        self.intake
            .push(PendingEvidence::now(EvidenceSource::Checkpoint, entity, body));
    }

    fn object_tier(&self, url: &str) -> Result<ObjectTier, ObjectError> {
        Ok(ObjectTier::open(url)?.with_cap(self.cap.clone()))
    }

    /// Returns the object store of a job as the last tier of a restore. One that cannot be opened fails every read,
    /// because it may hold good copies.
    pub(super) fn mirror_source(&self, launch: &LaunchOrder) -> Option<Box<dyn ChunkSource>> {
        let url = launch.tiers.mirror.as_deref()?;
        Some(match self.object_tier(url) {
            Ok(tier) => Box::new(ObjectSource::new(tier, self.runtime.clone())),
            Err(problem) => Box::new(UnopenedMirror {
                url: url.to_owned(),
                problem: with_causes(&problem),
            }),
        })
    }

    /// Copies a checkpoint that the store lacks back from the object store, once for all ranks of this node. Blocks.
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

    /// Reads manifest and indexes of a checkpoint from the object store. Blocks.
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

/// Object store that cannot be opened with the settings of this agent.
struct UnopenedMirror {
    url: String,
    problem: String,
}

impl ChunkSource for UnopenedMirror {
    fn tier(&self) -> SourceTier {
        SourceTier::Disk
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

/// Waits until the shares of all nodes are present, or no further shard has arrived for `patience`.
async fn others(
    tier: &ObjectTier,
    store: &Store,
    job: &JobId,
    id: CheckpointId,
    patience: Duration,
) -> Result<(), ObjectError> {
    let mut fewest = usize::MAX;
    let mut since = Instant::now();
    let mut pause = LOOK.0;
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
