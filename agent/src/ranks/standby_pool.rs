//! Standby processes of the jobs on this node: when they start, and when they end.
//!
//! They start behind a launch, one after the other, once its ranks have made progress: imports must not delay the
//! ranks. They end with the job, with the agent, and where the job has had no rank on the node for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_model::{Generation, JobId, LaunchOrder, RunningRank};

use crate::processes::FenceMark;
use crate::roster::RankRoster;
use crate::supervisor::{RankStart, RankSupervisors, StandbyBoard, StandbyStart, StandbyStatus, standby_recipe};

/// Time after a launch at which standby processes start even if no step was reported.
const LAUNCH_PAUSE: Duration = Duration::from_secs(5);

/// Time without a rank of the job on this node after which its standby processes end.
const UNUSED_MAX: Duration = Duration::from_secs(60);

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

    /// Records a launch after its ranks have started; `start` is that of one of them.
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
        self.board.show(&launch.job, job.wanted, &job.status);
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
        self.board.hide(&which);
        self.supervisors.end_standbys(which);
    }
}
