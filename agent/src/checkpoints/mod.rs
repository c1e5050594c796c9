//! The checkpoint service of a node: owner of its arenas, writer of its shards, source of its chunks.
//!
//! The way of a slot: the rank seals it; a blocking thread checks and digests it and writes it to the store; the
//! controller commits the manifest and orders [`Checkpoints::keep`]; the slot then waits to be restored from until a
//! newer checkpoint is kept. Seals of a fenced generation are refused here and by the arena itself (RG-3). A shard that
//! cannot be written is said to be so, and its slot is free again: the attempt is void, older checkpoints stay.
//!
//! Absent: replication to peers ahead of need, admission control against the host's memory beyond the kernel's own
//! refusal, retries of a failed write (the next checkpoint is the retry).

mod arenas;
mod peer;
mod persist;
mod restore;
mod serve;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rankguard_checkpoint::Arena;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_model::{Body, Entity, Generation, JobId, Launch, NodeId, Rank, RankRef, Source, Step};
use tokio::sync::Semaphore;

use crate::fences::Fences;
use crate::intake::Intake;
use crate::sighting::Sighting;
use arenas::Arenas;
pub(crate) use restore::RestoreAnswer;
pub(crate) use serve::PeerService;

/// Shards that are written at the same time. More would only make all of them later.
const WRITERS: usize = 2;

/// The service. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Checkpoints {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    node: NodeId,
    intake: Intake,
    fences: Fences,
    peer_fetch: Duration,
    arenas: Arenas,
    /// Shards that are on disk: their slots may go when room is needed.
    durable: Mutex<BTreeSet<(JobId, CheckpointId, Rank)>>,
    writers: Semaphore,
}

impl Checkpoints {
    pub(crate) fn new(intake: &Intake, fences: &Fences, peer_fetch: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                node: intake.node().clone(),
                intake: intake.clone(),
                fences: fences.clone(),
                peer_fetch,
                arenas: Arenas::default(),
                durable: Mutex::default(),
                writers: Semaphore::new(WRITERS),
            }),
        }
    }

    /// The arena of a rank's place on the node, made when there is none that is large enough. Touches every page: call
    /// it where waiting is allowed.
    pub(crate) fn arena(&self, rank: &RankRef, local_rank: u32, image_bytes: u64) -> Result<Arc<Arena>, String> {
        let arena = self.shared.arenas.take(&rank.job, local_rank, image_bytes)?;
        arena.raise_fence(self.shared.fences.of(&rank.job));
        Ok(arena)
    }

    /// A generation may act, older ones may not. Their ranks have ended: what they were filling or copying out is free.
    pub(crate) fn fence(&self, job: &JobId, generation: Generation) {
        self.shared.arenas.fence(job, generation);
    }

    /// A generation starts from `launch.restore`: every other image of the job is of no use to anyone. Images of other
    /// jobs go too, when those have nothing running here.
    pub(crate) fn launch(&self, launch: &Launch, idle: &[JobId]) {
        let start = launch.restore.as_ref().map(CheckpointId::from);
        for job in idle.iter().filter(|job| **job != launch.job) {
            self.free(job);
        }
        self.shared.arenas.release(&launch.job, |id| Some(id) != start);
    }

    /// A checkpoint was committed: its images stay, older ones go.
    pub(crate) fn keep(&self, job: &JobId, generation: Generation, step: Step) {
        let kept = CheckpointId { step, generation };
        self.shared.arenas.keep(job, kept);
        self.shared.arenas.release(job, |id| id < kept);
        let mut durable = self
            .shared
            .durable
            .lock()
            .expect("no holder of the durable shards panics");
        durable.retain(|(of, id, _)| of != job || *id >= kept);
    }

    /// The job is over: its memory goes.
    pub(crate) fn free(&self, job: &JobId) {
        self.shared.arenas.free(job);
        let mut durable = self
            .shared
            .durable
            .lock()
            .expect("no holder of the durable shards panics");
        durable.retain(|(of, ..)| of != job);
    }
}

impl Shared {
    fn sighting(&self, rank: &RankRef, body: Body) -> Sighting {
        let entity = Entity::Rank {
            job: rank.job.clone(),
            generation: rank.generation,
            rank: rank.rank,
            node: self.node.clone(),
        };
        Sighting::now(Source::Checkpoint, entity, body)
    }

    fn is_durable(&self, job: &JobId, id: CheckpointId, rank: Rank) -> bool {
        let durable = self.durable.lock().expect("no holder of the durable shards panics");
        durable.contains(&(job.clone(), id, rank))
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
