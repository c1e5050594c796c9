//! An agent that is asked to end (a spot notice and a drain arrive as SIGTERM) takes its ranks along. The controller hears of
//! it first and calls one more checkpoint, and the agent waits until that is committed, or for as long as it may.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_model::{Body, Entity, JobId, Role, Source, Step};
use tokio::time::{Instant, sleep_until};

use super::Checkpoints;
use crate::collectors::mark;
use crate::sighting::Sighting;

/// How often it is looked whether ranks have ended meanwhile; commits are heard of at once.
const LOOK: Duration = Duration::from_millis(100);

impl Checkpoints {
    /// Says that this node is about to go, and returns when what its ranks have done so far is committed, when they have
    /// ended, or after `limit`. At once where no rank takes images.
    pub(crate) async fn bid_farewell(&self, limit: Duration) {
        let jobs = self.roster.checkpointing();
        if jobs.is_empty() {
            return;
        }
        let body = Body::Line {
            text: "the agent was asked to end and takes its ranks along".to_owned(),
            context: Vec::new(),
            repeats: 1,
        };
        let node = self.node.clone();
        // It explains what follows on this node, and is nobody's fault.
        let announced = mark("maintenance", Role::Confirmation, 0.9, "agent-asked-to-end");
        let sighting = Sighting::now(Source::Agent, Entity::Node { node }, body);
        self.intake.push(sighting.marked(vec![announced]).urgent());
        let until = Instant::now() + limit;
        loop {
            // Before the look, so that no commit falls between the two.
            let committed = self.committed.notified();
            if self.is_safe(&jobs) {
                return tracing::info!("what the ranks have done is committed");
            }
            if Instant::now() >= until {
                return tracing::warn!(?limit, "the last checkpoint was not committed in time");
            }
            tokio::select! {
                () = committed => {}
                () = sleep_until(until.min(Instant::now() + LOOK)) => {}
            }
        }
    }

    /// Whether each of the jobs has a checkpoint of this step or a later one, or no rank here any more.
    fn is_safe(&self, jobs: &BTreeMap<JobId, Step>) -> bool {
        let running = self.roster.checkpointing();
        jobs.iter().all(|(job, done)| {
            let safe = self.kept(job).is_some_and(|(_, step)| step >= *done);
            safe || !running.contains_key(job)
        })
    }
}
