//! Commits that wait to be copied to an object store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::object::PushShare;
use rankguard_model::{JobId, LaunchOrder, RetainedSet};

/// Maximum number of waiting commits of a job; beyond it the oldest is dropped and reported.
const QUEUE_MAX: usize = 64;

/// Mirrored jobs of this node, with their queues.
#[derive(Debug, Default)]
pub(in crate::checkpoint) struct MirrorQueues {
    by_job: Mutex<BTreeMap<JobId, JobMirror>>,
}

/// Mirror state of one job.
#[derive(Debug, Clone)]
pub(super) struct JobMirror {
    pub(super) url: String,
    pub(super) store: String,
    /// This node's share of each checkpoint.
    pub(super) share: PushShare,
    /// Committed, and not being copied yet.
    queue: BTreeSet<CheckpointId>,
    /// True if the newest commit was taken last, so that the oldest is next.
    newest_taken: bool,
    /// Retention decision that came with the last commit.
    pub(super) stays: Option<RetainedSet>,
    /// True while a thread copies commits of the job.
    busy: bool,
    /// True once the job is over; its queued commits are still copied.
    over: bool,
}

impl MirrorQueues {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, JobMirror>> {
        self.by_job.lock().expect("no holder of the mirrors panics")
    }

    /// Adopts the mirror settings of a generation.
    pub(in crate::checkpoint) fn start(&self, launch: &LaunchOrder) {
        let mut all = self.lock();
        match &launch.tiers.mirror {
            Some(url) => {
                let before = all.remove(&launch.job);
                let mirror = JobMirror {
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

    /// Returns true if this node reports the results of a job's mirror.
    pub(super) fn is_first(&self, job: &JobId) -> bool {
        self.lock().get(job).is_some_and(|mirror| mirror.share.is_first())
    }

    /// Ends the mirror of a job that is over.
    pub(in crate::checkpoint) fn forget(&self, job: &JobId) {
        Self::end(&mut self.lock(), job);
    }

    fn end(all: &mut BTreeMap<JobId, JobMirror>, job: &JobId) {
        match all.get_mut(job) {
            Some(mirror) if mirror.busy => mirror.over = true,
            _ => drop(all.remove(job)),
        }
    }

    /// Queues a commit; returns the commits that it displaces, and true if a copy thread must be started. On the first
    /// node, a newer commit displaces all but those that the rules retain; a commit that arrives late waits beside
    /// them. Other nodes retain them all, because the first node announces which one it takes.
    pub(super) fn put(
        &self,
        job: &JobId,
        id: CheckpointId,
        stays: Option<RetainedSet>,
    ) -> Option<(Vec<CheckpointId>, bool)> {
        let mut all = self.lock();
        let mirror = all.get_mut(job)?;
        mirror.queue.insert(id);
        let newest = mirror.queue.last().copied();
        let stay = |of: &CheckpointId| {
            let named = |stays: &RetainedSet| stays.named.contains(&(of.generation, of.step));
            *of == id || Some(*of) == newest || stays.as_ref().is_some_and(named)
        };
        let mut overtaken: Vec<CheckpointId> = Vec::new();
        mirror.queue.retain(|of| {
            let stays = !mirror.share.is_first() || stay(of);
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

    /// Returns the waiting commits of a job, the newest first, with its mirror; clears `busy` if there are none.
    pub(super) fn waiting(&self, job: &JobId) -> Option<(Vec<CheckpointId>, JobMirror)> {
        let mut all = self.lock();
        let mirror = all.get_mut(job)?;
        mirror.busy = !mirror.queue.is_empty();
        if mirror.busy {
            return Some((mirror.queue.iter().rev().copied().collect(), mirror.clone()));
        }
        if mirror.over {
            all.remove(job);
        }
        None
    }

    /// Takes the next commit of a job, alternately the newest and the oldest: where commits come faster than they are
    /// copied, one that a rule retains would wait forever behind the newest.
    pub(super) fn take(&self, job: &JobId) -> Option<(CheckpointId, JobMirror)> {
        let (waiting, mirror) = self.waiting(job)?;
        let next = if mirror.newest_taken {
            waiting.last()
        } else {
            waiting.first()
        };
        self.take_this(job, *next?)
    }

    /// Takes this commit from the queue. The first node takes commits in its order, so the ones that it passed over
    /// are dropped.
    pub(super) fn take_this(&self, job: &JobId, id: CheckpointId) -> Option<(CheckpointId, JobMirror)> {
        let mut all = self.lock();
        let mirror = all.get_mut(job)?;
        mirror.newest_taken = !mirror.newest_taken;
        mirror.queue.remove(&id);
        if !mirror.share.is_first() {
            let named = |of: &CheckpointId| {
                let stays = mirror.stays.as_ref();
                stays.is_some_and(|stays| stays.named.contains(&(of.generation, of.step)))
            };
            mirror.queue.retain(|of| *of > id || named(of));
        }
        Some((id, mirror.clone()))
    }

    /// Requeues a commit that could not be copied now, unless a newer one waits; returns true if it was requeued.
    pub(super) fn again(&self, job: &JobId, id: CheckpointId) -> bool {
        let mut all = self.lock();
        let Some(mirror) = all.get_mut(job) else { return false };
        let named = |stays: &RetainedSet| stays.named.contains(&(id.generation, id.step));
        let waits = mirror.queue.last().is_none_or(|newest| *newest < id) || mirror.stays.as_ref().is_some_and(named);
        if waits {
            mirror.queue.insert(id);
        }
        waits
    }

    /// Clears all queues; returns the commits that this node must report as not copied.
    pub(super) fn drain(&self) -> Vec<(JobId, CheckpointId)> {
        let mut all = self.lock();
        let mut left = Vec::new();
        for (job, mirror) in all.iter_mut() {
            let queue = std::mem::take(&mut mirror.queue);
            left.extend(
                queue
                    .into_iter()
                    .filter(|_| mirror.share.is_first())
                    .map(|id| (job.clone(), id)),
            );
        }
        left
    }

    /// Returns true if any copy thread runs.
    pub(super) fn are_busy(&self) -> bool {
        self.lock().values().any(|mirror| mirror.busy)
    }
}

/// Returns this node's share of each checkpoint.
fn share_of(launch: &LaunchOrder) -> PushShare {
    let nodes = u32::try_from(launch.nodes.len()).unwrap_or(u32::MAX).max(1);
    PushShare {
        node: launch.group_rank,
        nodes,
        ranks_per_node: (launch.world_size / nodes).max(1),
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{CheckpointTiers, Generation, Step};

    use super::*;
    use crate::collectors::testing::{launch, rank};

    fn commit(step: u64) -> CheckpointId {
        CheckpointId {
            step: Step(step),
            generation: Generation(1),
        }
    }

    fn started() -> (MirrorQueues, LaunchOrder) {
        let mut launch = launch(&rank(0));
        launch.tiers = CheckpointTiers {
            mirror: Some("file:///mirror".to_owned()),
            ..CheckpointTiers::default()
        };
        let mirrors = MirrorQueues::default();
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
            Some(RetainedSet { newest: 1, named })
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
        assert!(mirrors.take(&launch.job).is_some() && mirrors.take(&launch.job).is_none());
        mirrors.start(&launch);
        assert!(mirrors.put(&launch.job, commit(2), None).is_none());
    }

    #[test]
    fn another_node_keeps_what_the_first_may_take_and_lets_go_of_what_it_has_passed_by() {
        let (mirrors, mut launch) = started();
        launch.group_rank = 1;
        mirrors.start(&launch);
        let stays = RetainedSet {
            newest: 1,
            named: vec![(Generation(1), Step(10))],
        };
        for step in [10, 20, 30, 40] {
            let (out, _) = mirrors
                .put(&launch.job, commit(step), Some(stays.clone()))
                .expect("a mirror");
            assert_eq!(out, [], "nobody knows yet that the first node does not take {step}");
        }
        let waiting = || mirrors.waiting(&launch.job).map(|(waiting, _)| waiting);
        assert_eq!(waiting(), Some(vec![commit(40), commit(30), commit(20), commit(10)]));
        mirrors.take_this(&launch.job, commit(30));
        assert_eq!(
            waiting(),
            Some(vec![commit(40), commit(10)]),
            "20 was passed by, 10 is named"
        );
    }

    #[test]
    fn a_commit_that_cannot_be_brought_now_waits_unless_a_newer_one_does() {
        let (mirrors, launch) = started();
        mirrors.put(&launch.job, commit(1), None);
        mirrors.take(&launch.job);
        assert!(mirrors.again(&launch.job, commit(1)));
        assert_eq!(mirrors.take(&launch.job).map(|(id, _)| id), Some(commit(1)));
        mirrors.put(&launch.job, commit(2), None);
        assert!(!mirrors.again(&launch.job, commit(1)));
        assert_eq!(mirrors.drain(), [(launch.job.clone(), commit(2))]);
        assert!(mirrors.take(&launch.job).is_none() && !mirrors.are_busy());
    }
}
