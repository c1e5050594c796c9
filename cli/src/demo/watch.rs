//! Waits for a state of the controller; every wait has a deadline.

use std::time::{Duration, Instant};

use rankguard_identity::PeerTransport;
use rankguard_model::{Case, JobId, JobState, JobView, NodeState, StatusView};

use super::{DemoError, LIMIT};
use crate::client::ControllerClient;

/// Interval between polls.
const POLL: Duration = Duration::from_millis(50);

/// Poller of a controller that may be away for a while.
pub(super) struct ControllerPoller {
    client: ControllerClient,
}

impl ControllerPoller {
    pub(super) fn new(address: &str) -> Self {
        Self {
            client: ControllerClient::new(address, PeerTransport::loopback()).without_notes(),
        }
    }

    pub(super) fn client(&self) -> &ControllerClient {
        &self.client
    }

    /// Polls until `found` returns a value.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        mut found: impl FnMut(&StatusView, &[Case]) -> Result<Option<T>, DemoError>,
    ) -> Result<T, DemoError> {
        let started = Instant::now();
        loop {
            if let (Ok(status), Ok(cases)) = (self.client.status().await, self.client.cases().await)
                && let Some(value) = found(&status, &cases)?
            {
                return Ok(value);
            }
            if started.elapsed() > LIMIT {
                return Err(DemoError::Story(format!(
                    "timeout after {} s waiting for {what}",
                    LIMIT.as_secs()
                )));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until `count` nodes are healthy.
    pub(super) async fn nodes(&self, count: usize) -> Result<(), DemoError> {
        let all = |status: &StatusView| {
            status
                .nodes
                .iter()
                .filter(|node| node.state == NodeState::Healthy)
                .count()
                == count
        };
        self.until("the agents to join", |status, _| Ok(all(status).then_some(())))
            .await
    }

    /// Waits until a running job has reached `step`.
    pub(super) async fn step(&self, job: &JobId, step: u64) -> Result<JobView, DemoError> {
        self.until(&format!("step {step}"), |status, _| {
            let view = view(status, job)?;
            if view.state == JobState::Stopped {
                return Err(stopped(view));
            }
            let there = view.state == JobState::Running && view.step.is_some_and(|at| at.0 >= step);
            Ok(there.then(|| view.clone()))
        })
        .await
    }

    /// Waits until a job has ended, successfully or not.
    pub(super) async fn end(&self, job: &JobId) -> Result<JobView, DemoError> {
        self.until("the job to end", |status, _| {
            let view = view(status, job)?;
            Ok(matches!(view.state, JobState::Finished | JobState::Stopped).then(|| view.clone()))
        })
        .await
    }
}

/// Returns one job of a status.
pub(super) fn view<'a>(status: &'a StatusView, job: &JobId) -> Result<&'a JobView, DemoError> {
    let found = status.jobs.iter().find(|view| view.spec.id == *job);
    found.ok_or_else(|| DemoError::Story(format!("the controller has no job {job}")))
}

/// Error for an unexpected end of a job.
pub(super) fn stopped(view: &JobView) -> DemoError {
    let reason = view.reason.clone().unwrap_or_else(|| "no reason given".to_owned());
    DemoError::Story(format!("job {} was stopped: {reason}", view.spec.id))
}
