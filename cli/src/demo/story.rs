//! Scenarios of the demo: four failures in sequence, or random kills.

use std::path::Path;
use std::time::Duration;

use rankguard_model::{Case, CaseState, JobId, JobState, JobView, NodeId, NodeState, Rank};
use rankguard_sim::SeededRandom;

use super::DemoError;
use super::cluster::{DemoCluster, NODES};
use super::inject;
use super::job::TrainingPace;
use super::progress::ProgressPrinter;
use super::watch::{ControllerPoller, stopped, view};

/// Undisturbed steps of the job before each fault.
const CALM_STEPS: u64 = 25;

/// Context of a scenario.
pub(super) struct ScenarioContext<'a> {
    pub(super) cluster: &'a mut DemoCluster,
    pub(super) watch: &'a ControllerPoller,
    pub(super) progress: &'a ProgressPrinter,
    pub(super) training: &'a TrainingPace,
    pub(super) exe: &'a Path,
    pub(super) out: &'a Path,
}

impl ScenarioContext<'_> {
    /// Submits a job with a directory of its own.
    pub(super) async fn submit(&self, name: &str, extra: &[String]) -> Result<JobId, DemoError> {
        let spec = self
            .training
            .spec(name, self.exe, &self.out.join(name), &self.cluster.store(), extra);
        std::fs::create_dir_all(self.out.join(name)).map_err(|source| DemoError::io("create a folder", source))?;
        self.watch.client().submit(&spec).await?;
        Ok(spec.id)
    }

    /// Runs scenarios a, b and c on one job, until it has finished.
    pub(super) async fn failures(&mut self, job: &JobId) -> Result<(), DemoError> {
        let before = self.watch.step(job, CALM_STEPS).await?;
        self.progress.report(&format!(
            "step {}: six ranks train on node-1, node-2, node-3",
            step(&before)
        ));

        self.progress
            .report("a. GPU lost: XID 79 on node-2, its ranks abort, the others lose their peers");
        inject::gpu_lost(self.cluster, &NodeId::from("node-2"), job)?;
        let after = self.recovered(job, 1).await?;

        let calm = self.watch.step(job, step(&after) + CALM_STEPS).await?;
        self.progress
            .report("b. Node lost with no spare: the agent of node-1 and its ranks are killed");
        let lost = NodeId::from("node-1");
        self.cluster.kill_agent(&lost);
        let after = self.recovered(job, 2).await?;
        self.progress
            .report(&format!("   the job continues with {} ranks", after.placements.len()));
        self.watch.step(job, step(&after) + CALM_STEPS).await?;
        self.progress.report("   node-1 returns");
        self.cluster.start_agent(&lost)?;
        let grown = self.grown(job, calm.placements.len()).await?;
        self.progress
            .report(&format!("   the job has grown to {} ranks", grown.placements.len()));

        let calm = self.watch.step(job, step(&grown) + CALM_STEPS).await?;
        let victim = Rank(3);
        let place = calm.placements.iter().find(|place| place.rank == victim);
        let node = place.map(|place| place.node.clone()).ok_or_else(|| lost_rank(victim))?;
        let pid = inject::host_oom(self.cluster, &node, job, victim)?.ok_or_else(|| lost_rank(victim))?;
        self.progress.report(&format!(
            "c. Host OOM kill: the kernel of {node} kills rank {victim} (process {pid})"
        ));
        self.recovered(job, 3).await?;

        let end = self.watch.end(job).await?;
        if end.state == JobState::Stopped {
            return Err(stopped(&end));
        }
        self.progress
            .report(&format!("step {}: the job has finished", step(&end)));
        Ok(())
    }

    /// Runs scenario d: a bug that recurs after a retry.
    pub(super) async fn user_bug(&mut self) -> Result<JobId, DemoError> {
        self.progress
            .report("d. User bug: rank 4 of a second job builds a batch of the wrong shape, every time");
        let extra = ["--bug-at-step=14".to_owned(), "--bug-rank=4".to_owned()];
        let job = self.submit("buggy", &extra).await?;
        let end = self.watch.end(&job).await?;
        if end.state != JobState::Stopped {
            return Err(DemoError::Story("the job with the bug was not stopped".to_owned()));
        }
        self.progress
            .report(&format!("   stopped: {}", end.reason.unwrap_or_default()));
        Ok(job)
    }

    /// Waits until the job's nth case has recovered and the job runs.
    async fn recovered(&self, job: &JobId, nth: usize) -> Result<JobView, DemoError> {
        let (case, view) = self
            .watch
            .until("the job to recover", |status, cases| {
                let view = view(status, job)?;
                if view.state == JobState::Stopped {
                    return Err(stopped(view));
                }
                let of_job = |case: &&Case| case.job.as_ref() == Some(job);
                let case = cases.iter().filter(of_job).nth(nth - 1);
                let case = case.filter(|case| matches!(case.state, CaseState::Recovered | CaseState::Closed));
                Ok(case
                    .filter(|_| view.state == JobState::Running)
                    .map(|case| (case.clone(), view.clone())))
            })
            .await?;
        self.progress.case(&case);
        Ok(view)
    }

    async fn grown(&self, job: &JobId, ranks: usize) -> Result<JobView, DemoError> {
        self.watch
            .until("the job to grow", |status, _| {
                let view = view(status, job)?;
                let there = view.state == JobState::Running && view.placements.len() == ranks;
                Ok(there.then(|| view.clone()))
            })
            .await
    }

    /// Kills random processes at random times, the controller included, until the job has finished. Returns the list of
    /// kills.
    pub(super) async fn chaos(&mut self, job: &JobId, dice: &mut SeededRandom) -> Result<Vec<String>, DemoError> {
        let mut done = Vec::new();
        self.watch.step(job, 5).await?;
        for _ in 0..dice.between(4, 7) {
            tokio::time::sleep(Duration::from_millis(dice.between(100, 2_500))).await;
            let what = self.strike(job, dice).await?;
            self.progress.report(&what);
            done.push(what);
        }
        let end = self.watch.end(job).await?;
        match end.state {
            JobState::Stopped => Err(stopped(&end)),
            _ => Ok(done),
        }
    }

    async fn strike(&mut self, job: &JobId, dice: &mut SeededRandom) -> Result<String, DemoError> {
        let agents = self.cluster.running_agents();
        let node = agents.get(dice.between(0, agents.len() as u64 - 1) as usize).cloned();
        let node = node.unwrap_or_else(|| NodeId::from(NODES[0]));
        match dice.between(0, 9) {
            0..=3 => {
                self.cluster.kill_controller();
                let away = dice.between(0, 1_500);
                tokio::time::sleep(Duration::from_millis(away)).await;
                self.cluster.start_controller().await?;
                Ok(format!("controller killed, back after {away} ms"))
            }
            4..=6 => {
                self.cluster.kill_agent(&node);
                let away = dice.between(0, 3_000);
                tokio::time::sleep(Duration::from_millis(away)).await;
                self.cluster.start_agent(&node)?;
                Ok(format!("agent of {node} killed with its ranks, back after {away} ms"))
            }
            _ => match inject::kill_rank(self.cluster, &node, job, dice.between(0, 1) as usize) {
                Some(rank) => Ok(format!("rank {rank} on {node} killed")),
                None => Ok(format!("no rank runs on {node}; nothing killed")),
            },
        }
    }

    /// Waits until no node is lost: every restarted agent has rejoined.
    pub(super) async fn all_nodes_back(&self) -> Result<(), DemoError> {
        self.watch
            .until("all nodes to be back", |status, _| {
                let lost = status.nodes.iter().any(|node| node.state == NodeState::Lost);
                Ok((!lost).then_some(()))
            })
            .await
    }
}

fn step(view: &JobView) -> u64 {
    view.step.map_or(0, |step| step.0)
}

fn lost_rank(rank: Rank) -> DemoError {
    DemoError::Story(format!("rank {rank} has no process"))
}
