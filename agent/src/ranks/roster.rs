//! Who runs here: the one table that orders, the launcher, the rank socket and collectors look into.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rankguard_model::{Generation, JobId, Launch, Rank, RankRef, RunningRank, Step};
use tokio::sync::watch;

/// The table. Cheap to clone. Its lock is held for look-ups only, never while waiting.
#[derive(Debug, Clone)]
pub(crate) struct Roster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    /// Changes whenever a rank ends.
    ended: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Table {
    jobs: BTreeMap<JobId, Job>,
}

#[derive(Debug, Default)]
struct Job {
    launch: Option<Arc<Launch>>,
    ranks: BTreeMap<(Generation, Rank), Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    local_rank: u32,
    pid: Option<u32>,
    alive: bool,
    /// The agent itself has asked it to end.
    ending: bool,
    step: Option<Step>,
}

/// A rank that is alive, as the rank socket needs it.
#[derive(Debug, Clone)]
pub(crate) struct Started {
    pub(crate) rank: RankRef,
    pub(crate) local_rank: u32,
    pub(crate) pid: Option<u32>,
    pub(crate) launch: Arc<Launch>,
}

impl Roster {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                table: Mutex::default(),
                ended: watch::Sender::new(0),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.shared.table.lock().expect("no holder of the roster panics")
    }

    /// Writes the ranks of a launch down before they are started, so that their first word finds them known. Gives
    /// false, and changes nothing, when this generation was launched before.
    pub(crate) fn launch(&self, launch: &Arc<Launch>) -> bool {
        let mut table = self.lock();
        let job = table.jobs.entry(launch.job.clone()).or_default();
        if job
            .launch
            .as_ref()
            .is_some_and(|known| known.generation >= launch.generation)
        {
            return false;
        }
        job.launch = Some(Arc::clone(launch));
        // Older generations have ended by now; the newest of them stays, for lines that still speak of its processes.
        let newest = job.ranks.keys().map(|(generation, _)| *generation).max();
        job.ranks
            .retain(|(generation, _), entry| entry.alive || Some(*generation) == newest);
        for slot in &launch.ranks {
            let entry = Entry {
                local_rank: slot.local_rank,
                pid: None,
                alive: true,
                ending: false,
                step: None,
            };
            job.ranks.insert((launch.generation, slot.rank), entry);
        }
        true
    }

    fn change(&self, rank: &RankRef, change: impl FnOnce(&mut Entry)) {
        let mut table = self.lock();
        let job = table.jobs.get_mut(&rank.job);
        if let Some(entry) = job.and_then(|job| job.ranks.get_mut(&(rank.generation, rank.rank))) {
            change(entry);
        }
    }

    pub(crate) fn started(&self, rank: &RankRef, pid: u32) {
        self.change(rank, |entry| entry.pid = Some(pid));
    }

    pub(crate) fn ending(&self, rank: &RankRef) {
        self.change(rank, |entry| entry.ending = true);
    }

    pub(crate) fn is_ending(&self, rank: &RankRef) -> bool {
        let table = self.lock();
        let job = table.jobs.get(&rank.job);
        let entry = job.and_then(|job| job.ranks.get(&(rank.generation, rank.rank)));
        entry.is_some_and(|entry| entry.ending)
    }

    pub(crate) fn ended(&self, rank: &RankRef) {
        self.change(rank, |entry| entry.alive = false);
        self.shared.ended.send_modify(|count| *count += 1);
    }

    pub(crate) fn stepped(&self, rank: &RankRef, step: Step) {
        self.change(rank, |entry| entry.step = entry.step.max(Some(step)));
    }

    /// Ranks that are alive and of which `wanted` is true.
    pub(crate) fn alive(&self, wanted: impl Fn(&RankRef) -> bool) -> Vec<Started> {
        let table = self.lock();
        let mut found = Vec::new();
        for (job_id, job) in &table.jobs {
            for ((generation, rank), entry) in &job.ranks {
                let rank = RankRef {
                    job: job_id.clone(),
                    generation: *generation,
                    rank: *rank,
                };
                if let (true, Some(launch)) = (entry.alive && wanted(&rank), &job.launch) {
                    found.push(Started {
                        rank,
                        local_rank: entry.local_rank,
                        pid: entry.pid,
                        launch: Arc::clone(launch),
                    });
                }
            }
        }
        found
    }

    /// A rank by name, if it is alive.
    pub(crate) fn find(&self, rank: &RankRef) -> Option<Started> {
        self.alive(|known| known == rank).pop()
    }

    /// What a join tells the controller.
    pub(crate) fn running(&self) -> Vec<RunningRank> {
        let table = self.lock();
        let mut running = Vec::new();
        for (job_id, job) in &table.jobs {
            for ((generation, rank), entry) in &job.ranks {
                if let (true, Some(pid)) = (entry.alive, entry.pid) {
                    running.push(RunningRank {
                        rank: RankRef {
                            job: job_id.clone(),
                            generation: *generation,
                            rank: *rank,
                        },
                        pid,
                        step: entry.step,
                    });
                }
            }
        }
        running
    }

    /// The rank whose process this is or was; the newest, should a number have come back.
    pub(crate) fn rank_of_pid(&self, pid: u32) -> Option<RankRef> {
        self.newest(|_, entry| entry.pid == Some(pid))
    }

    /// The newest rank of this number, in any job of this node.
    pub(crate) fn newest_rank(&self, rank: Rank) -> Option<RankRef> {
        self.newest(|number, _| number == rank)
    }

    fn newest(&self, wanted: impl Fn(Rank, &Entry) -> bool) -> Option<RankRef> {
        let table = self.lock();
        let mut found: Option<(bool, RankRef)> = None;
        for (job_id, job) in &table.jobs {
            for ((generation, rank), entry) in &job.ranks {
                let better = found
                    .as_ref()
                    .is_none_or(|(alive, known)| (entry.alive, *generation) >= (*alive, known.generation));
                if better && wanted(*rank, entry) {
                    let rank = RankRef {
                        job: job_id.clone(),
                        generation: *generation,
                        rank: *rank,
                    };
                    found = Some((entry.alive, rank));
                }
            }
        }
        found.map(|(_, rank)| rank)
    }

    /// Jobs that are known here and have no rank alive.
    pub(crate) fn idle_jobs(&self) -> Vec<JobId> {
        let table = self.lock();
        let idle = table.jobs.iter().filter(|(_, job)| !job.ranks.values().any(|e| e.alive));
        idle.map(|(job, _)| job.clone()).collect()
    }

    /// Waits until no wanted rank is alive; gives those that still are at the deadline.
    pub(crate) async fn wait_gone(&self, wanted: impl Fn(&RankRef) -> bool, deadline: Duration) -> Vec<Started> {
        let until = Instant::now() + deadline;
        let mut ended = self.shared.ended.subscribe();
        loop {
            let left = self.alive(&wanted);
            let wait = until.saturating_duration_since(Instant::now());
            if left.is_empty() || wait.is_zero() {
                return left;
            }
            // The sender lives in the roster itself, so the only other outcome is the deadline.
            let _ = tokio::time::timeout(wait, ended.changed()).await;
        }
    }
}
