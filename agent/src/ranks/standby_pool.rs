//! Standby processes of the jobs on this node: when they start, and when they end.
//!
//! They start behind a launch, one after the other, once its ranks have made progress: imports must not delay the
//! ranks. They end with the job, with the agent, and where the job has had no rank on the node for a while.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rankguard_model::{Generation, JobId, LaunchOrder, RunningRank};

use crate::processes::FenceMark;
use crate::roster::RankRoster;
use crate::supervisor::{RankStart, RankSupervisors, StandbyStart, StandbyStatus, standby_recipe};
use crate::views::StandbyView;

/// Time after a launch at which standby processes start even if no step was reported.
const LAUNCH_PAUSE: Duration = Duration::from_secs(5);

/// Time without a rank of the job on this node after which its standby processes end.
const UNUSED_MAX: Duration = Duration::from_secs(60);

/// Standby processes of this node, for views. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct StandbyBoard(Arc<Mutex<BTreeMap<JobId, BoardEntry>>>);

#[derive(Debug, Clone)]
struct BoardEntry {
    wanted: u32,
    status: Arc<StandbyStatus>,
}

impl StandbyBoard {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, BoardEntry>> {
        self.0.lock().expect("no holder of the standby board panics")
    }

    /// Returns the standby processes of each job.
    pub(crate) fn views(&self) -> Vec<StandbyView> {
        let all = self.lock().clone();
        let view = |(job, entry): (JobId, BoardEntry)| {
            let waiting = entry.status.waiting();
            StandbyView {
                job,
                wanted: entry.wanted,
                memory_bytes: waiting.iter().filter_map(|pid| memory_of(*pid)).sum(),
                waiting,
                is_starting: entry.status.is_starting(),
                problem: entry.status.problem(),
            }
        };
        all.into_iter().map(view).collect()
    }
}

/// Standby processes of all jobs.
#[derive(Debug)]
pub(crate) struct StandbyPool {
    supervisors: RankSupervisors,
    mark: FenceMark,
    board: StandbyBoard,
    jobs: BTreeMap<JobId, StandbyJob>,
}

#[derive(Debug)]
struct StandbyJob {
    recipe: StandbyStart,
    wanted: u32,
    status: Arc<StandbyStatus>,
    launched: Instant,
    generation: Generation,
    unused_since: Option<Instant>,
}

impl StandbyPool {
    pub(crate) fn new(supervisors: RankSupervisors, mark: FenceMark, board: StandbyBoard) -> Self {
        Self {
            supervisors,
            mark,
            board,
            jobs: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Records a launch whose ranks have started; `start` is that of one of them.
    pub(crate) fn launched(&mut self, launch: &LaunchOrder, start: &RankStart) {
        let policy = launch.standby.as_ref();
        let recipe =
            policy.and_then(|policy| standby_recipe(start, &policy.imports, self.mark.of_standby(&launch.job)));
        let (Some(policy), Some(recipe)) = (policy, recipe) else {
            if policy.is_some() {
                tracing::warn!(job = %launch.job, "no standby processes: the command is no Python script and no module");
            }
            return self.end(|job| *job == launch.job);
        };
        let ranks = u32::try_from(launch.ranks.len()).unwrap_or(u32::MAX);
        let known = self.jobs.remove(&launch.job);
        let job = StandbyJob {
            recipe,
            wanted: policy.count.min(ranks),
            status: known.map_or_else(Arc::default, |known| known.status),
            launched: Instant::now(),
            generation: launch.generation,
            unused_since: None,
        };
        job.status.launched();
        let entry = BoardEntry {
            wanted: job.wanted,
            status: job.status.clone(),
        };
        self.board.lock().insert(launch.job.clone(), entry);
        self.jobs.insert(launch.job.clone(), job);
    }

    /// Starts missing processes and ends those that are not used any more.
    pub(crate) fn check(&mut self, roster: &RankRoster) {
        let now = Instant::now();
        let running = roster.running();
        let mut unused = Vec::new();
        for (name, job) in &mut self.jobs {
            let ranks: Vec<&RunningRank> = running.iter().filter(|it| it.rank.job == *name).collect();
            if ranks.is_empty() {
                let since = *job.unused_since.get_or_insert(now);
                if now.duration_since(since) >= UNUSED_MAX || roster.has_succeeded(name, job.generation) {
                    unused.push(name.clone());
                }
                continue;
            }
            job.unused_since = None;
            let has_progress = ranks.iter().all(|rank| rank.step.is_some());
            if !has_progress && now.duration_since(job.launched) < LAUNCH_PAUSE {
                continue;
            }
            if let Some(number) = job.status.next(job.wanted, now) {
                self.supervisors.start_standby(name, &job.status, number, &job.recipe);
            }
        }
        self.end(|job| unused.contains(job));
    }

    /// Ends the standby processes of the matching jobs and waits for their end.
    pub(crate) fn end(&mut self, which: impl Fn(&JobId) -> bool) {
        self.jobs.retain(|job, _| !which(job));
        self.board.lock().retain(|job, _| !which(job));
        self.supervisors.end_standbys(which);
    }
}

/// Returns the memory of a process; memory that several processes share counts in equal parts.
fn memory_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}
