//! Committed checkpoints to an object store, by the first node of the job.
//!
//! One at a time and newest first: a commit that is overtaken while another is under way is left out, and said to be.
//!
//! Absent: several nodes that share the work, and retention in the object store (`rankguard checkpoint` has commands for
//! what is there).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::object::{ObjectError, ObjectSource, ObjectTier};
use rankguard_model::{Body, CopyTier, Entity, JobId, Launch, Source};

use super::Checkpoints;
use super::persist::chain;
use crate::sighting::Sighting;

/// Jobs whose checkpoints this node mirrors.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    by_job: Mutex<BTreeMap<JobId, Mirror>>,
}

#[derive(Debug, Clone)]
struct Mirror {
    url: String,
    store: String,
    /// Committed and not under way yet.
    next: Option<CheckpointId>,
    /// Somebody is at it.
    busy: bool,
    /// Nothing more will come: what is queued is still brought there.
    over: bool,
}

impl Mirrors {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Mirror>> {
        self.by_job.lock().expect("no holder of the mirrors panics")
    }

    /// What a generation asks of this node.
    pub(super) fn start(&self, launch: &Launch) {
        let mut all = self.lock();
        match &launch.copies.mirror {
            Some(url) if launch.group_rank == 0 => {
                let before = all.remove(&launch.job);
                let mirror = Mirror {
                    url: url.clone(),
                    store: launch.checkpoint_store.clone(),
                    next: before.as_ref().and_then(|before| before.next),
                    busy: before.is_some_and(|before| before.busy),
                    over: false,
                };
                all.insert(launch.job.clone(), mirror);
            }
            _ => Self::end(&mut all, &launch.job),
        }
    }

    /// The job is over.
    pub(super) fn forget(&self, job: &JobId) {
        Self::end(&mut self.lock(), job);
    }

    fn end(all: &mut BTreeMap<JobId, Mirror>, job: &JobId) {
        match all.get_mut(job) {
            Some(mirror) if mirror.busy => mirror.over = true,
            _ => drop(all.remove(job)),
        }
    }

    /// Puts a commit in the queue: what it pushed out, and whether somebody must begin.
    fn put(&self, job: &JobId, id: CheckpointId) -> Option<(Option<CheckpointId>, bool)> {
        let mut all = self.lock();
        let mirror = all.get_mut(job)?;
        let overtaken = mirror.next.replace(id);
        let begin = !mirror.busy;
        mirror.busy = true;
        Some((overtaken, begin))
    }

    /// The next commit of a job and where it goes; nobody is at it any more when there is none.
    fn take(&self, job: &JobId) -> Option<(CheckpointId, Mirror)> {
        let mut all = self.lock();
        let mirror = all.get_mut(job)?;
        let next = mirror.next.take();
        mirror.busy = next.is_some();
        if next.is_none() && mirror.over {
            all.remove(job);
            return None;
        }
        Some((next?, mirror.clone()))
    }
}

impl Checkpoints {
    /// A checkpoint was committed: to the object store with it, where this node does that.
    pub(super) fn mirror(self: &Arc<Self>, job: &JobId, id: CheckpointId) {
        let Some((overtaken, begin)) = self.mirrors.put(job, id) else {
            return;
        };
        if let Some(overtaken) = overtaken {
            let why = Err("a newer checkpoint was committed before its turn came".to_owned());
            self.tell_mirrored(job, overtaken, "the object store", Instant::now(), why);
        }
        if !begin {
            return;
        }
        let (all, job) = (self.clone(), job.clone());
        self.runtime.spawn_blocking(move || {
            while let Some((id, mirror)) = all.mirrors.take(&job) {
                let started = Instant::now();
                let pushed = all.push(&job, id, &mirror);
                all.tell_mirrored(&job, id, &mirror.url, started, pushed);
            }
        });
    }

    /// For threads that may wait.
    fn push(&self, job: &JobId, id: CheckpointId, mirror: &Mirror) -> Result<u64, String> {
        let tier = self.object_tier(&mirror.url).map_err(|problem| chain(&problem))?;
        let store = Store::at(&mirror.store);
        // Retention takes nothing of it away meanwhile.
        let _lease = store.lease(job, id).map_err(|problem| chain(&problem))?;
        let pushed = self.runtime.block_on(tier.push(&store, job, id));
        pushed
            .map(|pushed| pushed.sent_bytes)
            .map_err(|problem| chain(&problem))
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

    /// The object store of a job as the last tier of a restore.
    pub(super) fn mirror_source(&self, launch: &Launch) -> Option<ObjectSource> {
        let tier = self.object_tier(launch.copies.mirror.as_deref()?).ok()?;
        Some(ObjectSource::new(tier, self.runtime.clone()))
    }

    /// Brings a checkpoint that the store does not have back from the object store. For threads that may wait.
    pub(super) fn pull(&self, launch: &Launch, store: &Store, id: CheckpointId) -> Option<Result<(), ObjectError>> {
        let url = launch.copies.mirror.as_deref()?;
        let pull = async { self.object_tier(url)?.pull(&launch.job, id, store).await.map(drop) };
        Some(self.runtime.block_on(pull))
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{CheckpointCopies, Generation, Step};

    use super::*;
    use crate::collectors::testing::{launch, rank};

    fn id(step: u64) -> CheckpointId {
        CheckpointId {
            step: Step(step),
            generation: Generation(1),
        }
    }

    fn started() -> (Mirrors, Launch) {
        let mut launch = launch(&rank(0));
        launch.copies = CheckpointCopies {
            nodes: 0,
            mirror: Some("file:///mirror".to_owned()),
        };
        let mirrors = Mirrors::default();
        mirrors.start(&launch);
        (mirrors, launch)
    }

    #[test]
    fn a_commit_that_is_overtaken_before_its_turn_is_told_and_the_newest_goes() {
        let (mirrors, launch) = started();
        assert_eq!(mirrors.put(&launch.job, id(1)), Some((None, true)), "somebody begins");
        assert_eq!(mirrors.take(&launch.job).map(|(id, _)| id), Some(id(1)));
        assert_eq!(mirrors.put(&launch.job, id(2)), Some((None, false)), "one is under way");
        assert_eq!(mirrors.put(&launch.job, id(3)), Some((Some(id(2)), false)));
        assert_eq!(mirrors.take(&launch.job).map(|(id, _)| id), Some(id(3)));
        assert!(mirrors.take(&launch.job).is_none());
        assert_eq!(mirrors.put(&launch.job, id(4)), Some((None, true)), "nobody was at it");
    }

    #[test]
    fn the_last_commit_of_a_job_is_brought_there_although_the_job_is_over() {
        let (mirrors, launch) = started();
        mirrors.put(&launch.job, id(1));
        mirrors.take(&launch.job);
        mirrors.put(&launch.job, id(2));
        mirrors.forget(&launch.job);
        assert_eq!(mirrors.take(&launch.job).map(|(id, _)| id), Some(id(2)));
        assert!(mirrors.take(&launch.job).is_none());
        assert!(mirrors.put(&launch.job, id(3)).is_none(), "nothing is kept of it");
    }

    #[test]
    fn only_the_first_node_of_a_job_mirrors() {
        let (mirrors, mut launch) = started();
        launch.group_rank = 1;
        mirrors.start(&launch);
        assert!(mirrors.put(&launch.job, id(1)).is_none());
    }
}
