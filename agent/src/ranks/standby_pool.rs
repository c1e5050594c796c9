//! Standby processes of the jobs on this node: when they start, and when they end.
//!
//! They start behind a launch, one after the other, once its ranks have made progress: imports must not delay the
//! ranks. They end with the job, with the agent, and where the job has had no rank on the node for a while.
//!
//! On a node that a job may take in they start ahead of its first launch there, one for each rank, and the controller
//! receives a report once they wait or cannot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_model::{Generation, JobId, LaunchOrder, PrepareOrder, RunningRank};

use crate::processes::FenceMark;
use crate::roster::RankRoster;
use crate::supervisor::{RankStart, RankSupervisors, StandbyBoard, StandbyStart, StandbyStatus, standby_recipe};

/// Time after a launch at which standby processes start even if no step was reported.
const LAUNCH_PAUSE: Duration = Duration::from_secs(5);

/// Time without a rank of the job on this node after which its standby processes end.
const UNUSED_MAX: Duration = Duration::from_secs(60);

/// Time without a launch after which the processes end that were started ahead of one. The job waits for a checkpoint in
/// between.
const PREPARED_MAX: Duration = Duration::from_secs(600);

/// State of the standby processes of a job that the controller requested ahead of a launch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PreparationReport {
    pub(crate) job: JobId,
    pub(crate) generation: Generation,
    /// Processes that wait.
    pub(crate) waiting: u32,
    /// Cause for which there are too few.
    pub(crate) problem: Option<String>,
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
    preparation: Preparation,
}

/// Request of the controller for processes ahead of a launch. None | Open => Reported, and each => None at the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Preparation {
    None,
    Open,
    Reported,
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
            preparation: Preparation::None,
        };
        self.insert(&launch.job, job);
    }

    /// Starts processes ahead of a launch, one for each rank, or ends them if the order names none; `start` is that of a
    /// rank. Returns the cause for which there can be none.
    pub(crate) fn prepare(&mut self, wanted: &PrepareOrder, start: &RankStart) -> Result<(), String> {
        let Some(policy) = &wanted.standby else {
            self.end_prepared(|job| *job == wanted.job);
            return Ok(());
        };
        let recipe = standby_recipe(start, &policy.imports, self.mark.of_standby(&wanted.job));
        let recipe = recipe.ok_or("the command is no Python script and no module")?;
        let known = self.jobs.remove(&wanted.job);
        let job = StandbyJob {
            recipe,
            wanted: policy.count,
            status: known.map_or_else(Arc::default, |known| known.status),
            launched: Instant::now(),
            generation: wanted.generation,
            unused_since: None,
            preparation: Preparation::Open,
        };
        self.insert(&wanted.job, job);
        Ok(())
    }

    fn insert(&mut self, name: &JobId, job: StandbyJob) {
        job.status.launched();
        self.board.show(name, job.wanted, &job.status);
        self.jobs.insert(name.clone(), job);
    }

    /// Returns the requests of the controller that are complete or failed since the last call.
    pub(crate) fn reports(&mut self) -> Vec<PreparationReport> {
        let open = self
            .jobs
            .iter_mut()
            .filter(|(_, job)| job.preparation == Preparation::Open);
        let mut reports = Vec::new();
        for (name, job) in open {
            let waiting = u32::try_from(job.status.waiting().len()).unwrap_or(u32::MAX);
            let problem = job.status.problem().filter(|_| waiting < job.wanted);
            if waiting < job.wanted && problem.is_none() {
                continue;
            }
            job.preparation = Preparation::Reported;
            reports.push(PreparationReport {
                job: name.clone(),
                generation: job.generation,
                waiting,
                problem,
            });
        }
        reports
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
                let is_prepared = job.preparation != Preparation::None;
                let limit = if is_prepared { PREPARED_MAX } else { UNUSED_MAX };
                if now.duration_since(since) >= limit || !is_prepared && roster.has_succeeded(name, job.generation) {
                    unused.push(name.clone());
                }
                if !is_prepared {
                    continue;
                }
            } else {
                job.unused_since = None;
                let has_progress = ranks.iter().all(|rank| rank.step.is_some());
                if !has_progress && now.duration_since(job.launched) < LAUNCH_PAUSE {
                    continue;
                }
            }
            if let Some(number) = job.status.next(job.wanted, now) {
                self.supervisors.start_standby(name, &job.status, number, &job.recipe);
            }
        }
        self.end(|job| unused.contains(job));
    }

    /// Ends the processes of the matching jobs that were started ahead of a launch.
    pub(crate) fn end_prepared(&mut self, which: impl Fn(&JobId) -> bool) {
        let prepared = self.jobs.iter().filter(|(_, job)| job.preparation != Preparation::None);
        let names: Vec<JobId> = prepared
            .map(|(name, _)| name.clone())
            .filter(|name| which(name))
            .collect();
        if !names.is_empty() {
            self.end(|job| names.contains(job));
        }
    }

    /// Ends the standby processes of the matching jobs and waits for their end.
    pub(crate) fn end(&mut self, which: impl Fn(&JobId) -> bool) {
        self.jobs.retain(|job, _| !which(job));
        self.board.hide(&which);
        self.supervisors.end_standbys(which);
    }
}
