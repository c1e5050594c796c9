//! Carrying out what the controller asks.
//!
//! Orders are taken one after the other. Each may arrive twice: a fence is answered again, a launch whose generation
//! was launched before is ignored. An order of a generation below the fence is refused and said to be (RG-3); a stale
//! `Keep` is ignored without a word, since the memory it speaks of is already given to a newer generation.

use std::sync::Arc;
use std::time::Duration;

use rankguard_model::{Body, Generation, JobId, Launch, Order, OrderId, RankRef, Source};
use rustix::process::Signal;

use crate::checkpoints::Checkpoints;
use crate::fences::Fences;
use crate::intake::Intake;
use crate::ranks::{Launcher, Roster, reserve};
use crate::sighting::Sighting;

/// Everything orders work on. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    pub(crate) host: String,
    pub(crate) slots: u32,
    pub(crate) kill: Duration,
    pub(crate) fences: Fences,
    pub(crate) roster: Roster,
    pub(crate) launcher: Launcher,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) intake: Intake,
}

impl Orders {
    /// Carries out one order and says what came of it.
    pub(crate) async fn take(&self, id: OrderId, order: Order) {
        let (job, generation) = order.fence();
        let (job, generation) = (job.clone(), generation);
        let fence = self.fences.of(&job);
        if generation < fence {
            if !matches!(order, Order::Keep { .. }) {
                let reason = format!("generation {generation} is fenced off by generation {fence}");
                self.failed(id, &job, generation, reason);
            }
            return;
        }
        let result = match order {
            Order::Fence { reserve_port, .. } => self.fence(&job, generation, reserve_port).await,
            Order::Launch(launch) => self.launch(launch).await,
            Order::Keep { step, .. } => {
                self.checkpoints.keep(&job, generation, step);
                Ok(())
            }
            Order::Stop { grace_ms, .. } => self.stop(&job, generation, Duration::from_millis(grace_ms)),
        };
        if let Err(reason) = result {
            self.failed(id, &job, generation, reason);
        }
    }

    fn failed(&self, order: OrderId, job: &JobId, generation: Generation, reason: String) {
        tracing::warn!(%order, %job, %generation, reason, "order not carried out");
        let body = Body::OrderFailed {
            order,
            job: job.clone(),
            generation,
            reason,
        };
        self.say(job, body);
    }

    fn say(&self, job: &JobId, body: Body) {
        // The node is what failed or acted; the job stands in the body.
        tracing::debug!(%job, ?body, "order answered");
        self.intake
            .push(Sighting::now(Source::Ranks, self.intake.node_entity(), body));
    }

    async fn fence(&self, job: &JobId, generation: Generation, reserve_port: bool) -> Result<(), String> {
        self.end_older(job, generation).await?;
        let master_port = if reserve_port {
            Some(reserve(&self.host).map_err(|error| format!("no free port for the rendezvous: {error}"))?)
        } else {
            None
        };
        let body = Body::Fenced {
            job: job.clone(),
            generation,
            master_port,
        };
        self.say(job, body);
        Ok(())
    }

    /// Raises the fence, kills every rank below it and waits until they are gone.
    async fn end_older(&self, job: &JobId, generation: Generation) -> Result<(), String> {
        self.fences
            .raise(job, generation)
            .map_err(|error| format!("the fence cannot be stored: {error}"))?;
        let older = |rank: &RankRef| rank.job == *job && rank.generation < generation;
        self.launcher.signal(older, Signal::KILL);
        let left = self.roster.wait_gone(older, self.kill).await;
        if let Some(first) = left.first() {
            let pid = first.pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
            return Err(format!(
                "rank {} of generation {} (process {pid}) does not die within {:?} of SIGKILL: it hangs in the kernel",
                first.rank.rank, first.rank.generation, self.kill
            ));
        }
        self.checkpoints.fence(job, generation);
        Ok(())
    }

    async fn launch(&self, launch: Launch) -> Result<(), String> {
        let (job, generation) = (launch.job.clone(), launch.generation);
        if self.fences.is_stopped(&job, generation) {
            return Err(format!("generation {generation} was stopped"));
        }
        if generation > self.fences.of(&job) {
            // A launch implies its fence.
            self.end_older(&job, generation).await?;
        }
        let this_job = |rank: &RankRef| rank.job == job;
        let busy = self.roster.alive(|rank| !this_job(rank)).len();
        if launch.ranks.len() + busy > self.slots as usize {
            return Err(format!(
                "{} ranks asked for, and the node has {} slots, of which {busy} are taken",
                launch.ranks.len(),
                self.slots
            ));
        }
        let launch = Arc::new(launch);
        if !self.roster.launch(&launch) {
            tracing::info!(%job, %generation, "launch repeated: its ranks were started before");
            return Ok(());
        }
        self.checkpoints.launch(&launch, &self.roster.idle_jobs());
        self.launcher.launch(launch).await
    }

    /// Ends the job's ranks; their exits are the answer. Does not wait for the grace: orders behind it may not.
    fn stop(&self, job: &JobId, generation: Generation, grace: Duration) -> Result<(), String> {
        self.fences
            .stop(job, generation)
            .map_err(|error| format!("the fence cannot be stored: {error}"))?;
        let orders = self.clone();
        let job = job.clone();
        tokio::spawn(async move {
            let meant = |rank: &RankRef| rank.job == job && rank.generation <= generation;
            orders.end(meant, grace).await;
            if orders.roster.alive(|rank| rank.job == job).is_empty() {
                orders.checkpoints.free(&job);
            }
        });
        Ok(())
    }

    /// SIGTERM, grace, SIGKILL. Gives those that do not die, as sentences.
    pub(crate) async fn end(&self, meant: impl Fn(&RankRef) -> bool, grace: Duration) -> Vec<String> {
        self.launcher.signal(&meant, Signal::TERM);
        if !self.roster.wait_gone(&meant, grace).await.is_empty() {
            self.launcher.signal(&meant, Signal::KILL);
        }
        let left = self.roster.wait_gone(&meant, self.kill).await;
        left.iter()
            .map(|rank| {
                format!(
                    "rank {} of job {} (process {:?})",
                    rank.rank.rank, rank.rank.job, rank.pid
                )
            })
            .collect()
    }
}
