//! Committed checkpoints to an object store, by all nodes of the job, and out of it again by the rules of the job.
//!
//! Each node brings the shards of its ranks, by a plan that all compute alike. The first node waits for the others for as long
//! as more arrives, or twice the time that its own share took; then it brings what is left, whoever was to, and the manifest.
//! So a node that is gone costs a wait and no checkpoint, and only the first node tells what became of one.
//!
//! One at a time, the newest first: a commit that is overtaken while another is under way is left out, and said to be, unless the
//! rules of the job name it; one that was committed after a newer one waits with those. What goes is decided by the controller, which knows all commits and what was measured, and comes with the word of the commit; it
//! is removed once that commit is there. As the object store may have missed some, it keeps as many of its own newest ones as the
//! rules ask for: it never has fewer.
//!
//! Absent: a share for the work of a first node that is gone: its checkpoint is left out, and the next one comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::object::{ObjectError, ObjectSource, ObjectTier, Share};
use rankguard_model::{Body, CopyTier, Entity, Generation, JobId, Launch, Source, Stays, Step, with_causes};

use super::Checkpoints;
use crate::sighting::Sighting;

/// How often it is looked whether the shares of other nodes are there: an object store rings no bell.
const LOOK: Duration = Duration::from_millis(500);

/// Commits of a job that may wait; beyond it the oldest is left out, and said to be.
const QUEUE_MAX: usize = 64;

/// Jobs whose checkpoints this node mirrors.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    by_job: Mutex<BTreeMap<JobId, Mirror>>,
}

#[derive(Debug, Clone)]
struct Mirror {
    url: String,
    store: String,
    /// What of it this node brings.
    share: Share,
    /// Committed and not under way yet.
    queue: BTreeSet<CheckpointId>,
    /// The newest of them was taken last, so that it is the turn of the oldest.
    newest_taken: bool,
    /// What the rules left when the last commit was told.
    stays: Option<Stays>,
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
        match &launch.tiers.mirror {
            Some(url) => {
                let before = all.remove(&launch.job);
                let mirror = Mirror {
                    url: url.clone(),
                    store: launch.checkpoint_store.clone(),
                    share: share_of(launch),
                    queue: before.as_ref().map(|before| before.queue.clone()).unwrap_or_default(),
                    newest_taken: before.as_ref().is_some_and(|before| before.newest_taken),
                    stays: before.as_ref().and_then(|before| before.stays.clone()),
                    busy: before.is_some_and(|before| before.busy),
                    over: false,
                };
                all.insert(launch.job.clone(), mirror);
            }
            None => Self::end(&mut all, &launch.job),
        }
    }

    /// Whether this node tells what becomes of the mirror of a job.
    fn is_first(&self, job: &JobId) -> bool {
        self.lock().get(job).is_some_and(|mirror| mirror.share.is_first())
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

    /// Puts a commit in the queue: what goes out of it, and whether somebody must begin. Of those that wait, a newer one leaves
    /// what the rules name; one that is committed late waits beside them.
    fn put(&self, job: &JobId, id: CheckpointId, stays: Option<Stays>) -> Option<(Vec<CheckpointId>, bool)> {
        let mut all = self.lock();
        let mirror = all.get_mut(job)?;
        mirror.queue.insert(id);
        let newest = mirror.queue.last().copied();
        let stay = |of: &CheckpointId| {
            let named = |stays: &Stays| stays.named.contains(&(of.generation, of.step));
            *of == id || Some(*of) == newest || stays.as_ref().is_some_and(named)
        };
        let mut overtaken: Vec<CheckpointId> = Vec::new();
        mirror.queue.retain(|of| {
            let stays = stay(of);
            overtaken.extend((!stays).then_some(*of));
            stays
        });
        if mirror.queue.len() > QUEUE_MAX {
            overtaken.extend(mirror.queue.pop_first());
        }
        mirror.stays = stays;
        let begin = !mirror.busy;
        mirror.busy = true;
        Some((overtaken, begin))
    }

    /// The next commit of a job and where it goes, the newest and the oldest in turn: where commits come faster than they can
    /// be brought, what a rule names would wait for ever behind the newest; nobody is at it any more when there is none.
    fn take(&self, job: &JobId) -> Option<(CheckpointId, Mirror)> {
        let mut all = self.lock();
        let mirror = all.get_mut(job)?;
        mirror.newest_taken = !mirror.newest_taken;
        let next = match mirror.newest_taken {
            true => mirror.queue.pop_last(),
            false => mirror.queue.pop_first(),
        };
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
        self.runtime.spawn_blocking(move || {
            while let Some((id, mirror)) = all.mirrors.take(&job) {
                let started = Instant::now();
                let pushed = all.push(&job, id, &mirror);
                if !mirror.share.is_first() {
                    // The first node brings what this one could not.
                    if let Err(problem) = pushed {
                        tracing::warn!(%job, checkpoint = %id, problem, "this node's share did not come to the object store");
                    }
                    continue;
                }
                let is_there = pushed.is_ok();
                all.tell_mirrored(&job, id, &mirror.url, started, pushed);
                if let Some(stays) = mirror.stays.as_ref().filter(|_| is_there) {
                    all.retain(&job, stays, &mirror);
                }
            }
        });
    }

    /// For threads that may wait.
    fn push(&self, job: &JobId, id: CheckpointId, mirror: &Mirror) -> Result<u64, String> {
        let tier = self.object_tier(&mirror.url).map_err(|problem| with_causes(&problem))?;
        let store = Store::at(&mirror.store);
        // Retention takes nothing of it away meanwhile.
        let _lease = store.lease(job, id).map_err(|problem| with_causes(&problem))?;
        let (share, started) = (mirror.share, Instant::now());
        let pushed = async {
            let own = tier.push_share(&store, job, id, share).await?;
            if !share.is_first() {
                return Ok(own);
            }
            if share.nodes > 1 {
                let patience = self.share_wait.max(2 * started.elapsed());
                others(&tier, &store, job, id, patience).await?;
            }
            tier.push(&store, job, id).await.map(|rest| own + rest.sent_bytes)
        };
        let pushed: Result<u64, ObjectError> = self.runtime.block_on(pushed);
        pushed.map_err(|problem| with_causes(&problem))
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

    /// The object store of a job as the last tier of a restore.
    pub(super) fn mirror_source(&self, launch: &Launch) -> Option<ObjectSource> {
        let tier = self.object_tier(launch.tiers.mirror.as_deref()?).ok()?;
        Some(ObjectSource::new(tier, self.runtime.clone()))
    }

    /// Brings a checkpoint that the store does not have back from the object store. For threads that may wait.
    pub(super) fn pull(&self, launch: &Launch, store: &Store, id: CheckpointId) -> Option<Result<(), ObjectError>> {
        let url = launch.tiers.mirror.as_deref()?;
        let pull = async { self.object_tier(url)?.pull(&launch.job, id, store).await.map(drop) };
        Some(self.runtime.block_on(pull))
    }
}

/// What of each checkpoint this node brings.
fn share_of(launch: &Launch) -> Share {
    let nodes = u32::try_from(launch.nodes.len()).unwrap_or(u32::MAX).max(1);
    Share {
        node: launch.group_rank,
        nodes,
        ranks_per_node: (launch.world_size / nodes).max(1),
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
    let (mut fewest, mut since) = (usize::MAX, Instant::now());
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
        tokio::time::sleep(LOOK.min(patience)).await;
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::CheckpointTiers;

    use super::*;
    use crate::collectors::testing::{launch, rank};

    fn commit(step: u64) -> CheckpointId {
        CheckpointId {
            step: Step(step),
            generation: Generation(1),
        }
    }

    fn started() -> (Mirrors, Launch) {
        let mut launch = launch(&rank(0));
        launch.tiers = CheckpointTiers {
            mirror: Some("file:///mirror".to_owned()),
            ..CheckpointTiers::default()
        };
        let mirrors = Mirrors::default();
        mirrors.start(&launch);
        (mirrors, launch)
    }

    #[test]
    fn a_commit_that_is_overtaken_before_its_turn_is_told_and_the_newest_goes() {
        let (mirrors, launch) = started();
        assert_eq!(
            mirrors.put(&launch.job, commit(1), None),
            Some((Vec::new(), true)),
            "somebody begins"
        );
        assert_eq!(mirrors.take(&launch.job).map(|(commit, _)| commit), Some(commit(1)));
        assert_eq!(
            mirrors.put(&launch.job, commit(2), None),
            Some((Vec::new(), false)),
            "one is under way"
        );
        assert_eq!(
            mirrors.put(&launch.job, commit(3), None),
            Some((vec![commit(2)], false))
        );
        assert_eq!(mirrors.take(&launch.job).map(|(commit, _)| commit), Some(commit(3)));
        assert!(mirrors.take(&launch.job).is_none());
        assert_eq!(
            mirrors.put(&launch.job, commit(4), None),
            Some((Vec::new(), true)),
            "nobody was at it"
        );
    }

    #[test]
    fn what_is_committed_late_comes_after_the_newest_and_what_the_rules_name_is_not_pushed_out() {
        let (mirrors, launch) = started();
        let named = |steps: &[u64]| {
            let named = steps.iter().map(|step| (Generation(1), Step(*step))).collect();
            Some(Stays { newest: 1, named })
        };
        let put = |step, stays| mirrors.put(&launch.job, commit(step), stays).map(|(out, _)| out);
        assert_eq!(put(90, named(&[60, 90])), Some(Vec::new()));
        assert_eq!(put(60, named(&[60, 90])), Some(Vec::new()), "late");
        assert_eq!(put(120, named(&[60, 120])), Some(vec![commit(90)]));
        let order: Vec<_> = std::iter::from_fn(|| mirrors.take(&launch.job)).collect();
        let steps: Vec<u64> = order.iter().map(|(id, _)| id.step.0).collect();
        assert_eq!(steps, [120, 60]);
        assert!(
            order.iter().all(|(_, mirror)| mirror.stays == named(&[60, 120])),
            "by the last word"
        );
        for step in [160, 200, 240] {
            put(step, named(&[160, 200, 240]));
        }
        let order: Vec<_> = std::iter::from_fn(|| mirrors.take(&launch.job)).collect();
        let steps: Vec<u64> = order.iter().map(|(id, _)| id.step.0).collect();
        assert!(steps == [240, 160, 200] || steps == [160, 240, 200], "{steps:?}");
    }

    #[test]
    fn the_last_commit_of_a_job_is_brought_there_although_the_job_is_over() {
        let (mirrors, launch) = started();
        mirrors.put(&launch.job, commit(1), None);
        mirrors.take(&launch.job);
        mirrors.put(&launch.job, commit(2), None);
        mirrors.forget(&launch.job);
        assert_eq!(mirrors.take(&launch.job).map(|(commit, _)| commit), Some(commit(2)));
        assert!(mirrors.take(&launch.job).is_none());
        assert!(
            mirrors.put(&launch.job, commit(3), None).is_none(),
            "nothing is kept of it"
        );
    }

    #[test]
    fn every_node_of_a_job_brings_its_share_and_the_first_tells() {
        let (mirrors, mut launch) = started();
        assert!(mirrors.is_first(&launch.job));
        launch.group_rank = 1;
        mirrors.start(&launch);
        assert_eq!(mirrors.put(&launch.job, commit(1), None), Some((Vec::new(), true)));
        assert!(!mirrors.is_first(&launch.job));
        launch.tiers.mirror = None;
        mirrors.take(&launch.job);
        mirrors.take(&launch.job);
        mirrors.start(&launch);
        assert!(mirrors.put(&launch.job, commit(2), None).is_none());
    }
}
