//! Commits that wait for their turn to an object store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint_tiers::object::Share;
use rankguard_model::{JobId, Launch, Stays};

/// Commits of a job that may wait; beyond it the oldest is left out, and said to be.
const QUEUE_MAX: usize = 64;

/// Jobs whose checkpoints this node mirrors.
#[derive(Debug, Default)]
pub(in crate::checkpoint) struct Mirrors {
    by_job: Mutex<BTreeMap<JobId, Mirror>>,
}

/// Where the commits of a job go.
#[derive(Debug, Clone)]
pub(super) struct Mirror {
    pub(super) url: String,
    pub(super) store: String,
    /// What of it this node brings.
    pub(super) share: Share,
    /// Committed and not under way yet.
    queue: BTreeSet<CheckpointId>,
    /// The newest of them was taken last, so that it is the turn of the oldest.
    newest_taken: bool,
    /// What the rules left when the last commit was told.
    pub(super) stays: Option<Stays>,
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
    pub(in crate::checkpoint) fn start(&self, launch: &Launch) {
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
    pub(super) fn is_first(&self, job: &JobId) -> bool {
        self.lock().get(job).is_some_and(|mirror| mirror.share.is_first())
    }

    /// The job is over.
    pub(in crate::checkpoint) fn forget(&self, job: &JobId) {
        Self::end(&mut self.lock(), job);
    }

    fn end(all: &mut BTreeMap<JobId, Mirror>, job: &JobId) {
        match all.get_mut(job) {
            Some(mirror) if mirror.busy => mirror.over = true,
            _ => drop(all.remove(job)),
        }
    }

    /// Puts a commit in the queue: what goes out of it, and whether somebody must begin. Of those that wait with the first node,
    /// a newer one leaves what the rules name; one that is committed late waits beside them. The other nodes keep them all: which
    /// of them the first takes, they hear when it does.
    pub(super) fn put(&self, job: &JobId, id: CheckpointId, stays: Option<Stays>) -> Option<(Vec<CheckpointId>, bool)> {
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

    /// Commits of a job that wait, the newest first, and where they go; nobody is at it any more when there are none.
    pub(super) fn waiting(&self, job: &JobId) -> Option<(Vec<CheckpointId>, Mirror)> {
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

    /// The next commit of a job and where it goes, the newest and the oldest in turn: where commits come faster than they can
    /// be brought, what a rule names would wait for ever behind the newest.
    pub(super) fn take(&self, job: &JobId) -> Option<(CheckpointId, Mirror)> {
        let (waiting, mirror) = self.waiting(job)?;
        let next = match mirror.newest_taken {
            false => waiting.first(),
            true => waiting.last(),
        };
        self.take_this(job, *next?)
    }

    /// Takes this one of those that wait. The first node takes them in its order, so what it has passed by does not come.
    pub(super) fn take_this(&self, job: &JobId, id: CheckpointId) -> Option<(CheckpointId, Mirror)> {
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

    /// One that could not be brought now waits again, unless a newer one does; says whether it does.
    pub(super) fn again(&self, job: &JobId, id: CheckpointId) -> bool {
        let mut all = self.lock();
        let Some(mirror) = all.get_mut(job) else { return false };
        let named = |stays: &Stays| stays.named.contains(&(id.generation, id.step));
        let waits = mirror.queue.last().is_none_or(|newest| *newest < id) || mirror.stays.as_ref().is_some_and(named);
        if waits {
            mirror.queue.insert(id);
        }
        waits
    }

    /// All that wait go: of each job what nobody will bring any more, and whether this node is to tell of it.
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

    /// Whether somebody is at it.
    pub(super) fn are_busy(&self) -> bool {
        self.lock().values().any(|mirror| mirror.busy)
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
        assert!(mirrors.take(&launch.job).is_some() && mirrors.take(&launch.job).is_none());
        mirrors.start(&launch);
        assert!(mirrors.put(&launch.job, commit(2), None).is_none());
    }

    #[test]
    fn another_node_keeps_what_the_first_may_take_and_lets_go_of_what_it_has_passed_by() {
        let (mirrors, mut launch) = started();
        launch.group_rank = 1;
        mirrors.start(&launch);
        let stays = Stays {
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
