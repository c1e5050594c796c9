//! Orderly end of an agent (spot notices and drains arrive as SIGTERM), which also ends its ranks. The agent reports
//! it to the controller, which orders one more checkpoint of ranks that take images, and waits until that is committed
//! or the limit has passed.

use std::collections::BTreeMap;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceBody, EvidenceSource, FAREWELL_SIGNATURE, JobId, Role, Step};
use tokio::time::{Instant, sleep_until};

use super::CheckpointService;
use crate::pending_evidence::{PendingEvidence, mark};

/// Poll interval for ranks that have ended meanwhile; commits wake the wait at once.
const LOOK: Duration = Duration::from_millis(100);

impl CheckpointService {
    /// Reports that this agent is about to end if it has ranks, and returns when their steps are committed, when they
    /// have ended, or after `limit`. Returns at once if no rank takes images.
    pub(crate) async fn bid_farewell(&self, limit: Duration) {
        if self.roster.running().is_empty() {
            return;
        }
        let body = EvidenceBody::Line {
            text: "the agent was asked to end and takes its ranks along".to_owned(),
            context: Vec::new(),
            repeats: 1,
        };
        let node = self.node.clone();
        // Explains what follows on this node and carries no blame.
        let announced = mark(classes::MAINTENANCE, Role::Confirmation, 0.9, FAREWELL_SIGNATURE);
        let sighting = PendingEvidence::now(EvidenceSource::Agent, Entity::Node { node }, body);
        self.intake.push(sighting.marked(vec![announced]).urgent());
        let jobs = self.roster.checkpointing();
        if jobs.is_empty() {
            return;
        }
        let until = Instant::now() + limit;
        loop {
            // Registered before the check, so that no commit falls between the two.
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

    /// Returns true if each of the jobs has a committed checkpoint at its step or later, or no rank here any more.
    fn is_safe(&self, jobs: &BTreeMap<JobId, Step>) -> bool {
        let running = self.roster.checkpointing();
        jobs.iter().all(|(job, done)| {
            let safe = self.newest_commit(job).is_some_and(|(_, step)| step >= *done);
            safe || !running.contains_key(job)
        })
    }
}
