//! `rankguard cancel`: stops a job and waits until no process of it is left, or lists the nodes where processes may be
//! left.

use std::time::{Duration, Instant};

use clap::Args;
use rankguard_model::{JobId, JobState, JobView, NodeState, UnconfirmedNode};

use crate::args::ControllerAddress;
use crate::client::ControllerClient;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;

/// Maximum wait for reachable nodes: longer than the agents' own limits.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Interval between polls.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Interval between progress notes.
const NOTE_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Args)]
pub(crate) struct CancelArgs {
    /// Name of the job
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) address: ControllerAddress,
}

pub(crate) async fn run(args: &CancelArgs, client: &ControllerClient) -> Result<CommandExit, CliError> {
    let job = JobId::from(args.job.as_str());
    let before = view(client, &job).await?;
    let has_changed = client.cancel(&job).await?;
    match before.as_ref().map(|view| view.state) {
        Some(JobState::Finished) => {
            out::note(&format!("job {job} has already finished"));
            return Ok(CommandExit::Fine);
        }
        Some(JobState::Stopped) => out::note(&format!(
            "job {job} was already stopped: {}",
            before.and_then(|view| view.reason).unwrap_or_default()
        )),
        // It ended since.
        _ if !has_changed => out::note(&format!("job {job} was over before it was cancelled")),
        _ => out::note(&format!("stopping job {job}{}", store_note(before.as_ref()))),
    }
    report_end(client, &job).await
}

/// Describes what a stop leaves in the checkpoint store of a job.
fn store_note(view: Option<&JobView>) -> &'static str {
    match view {
        Some(view) if view.spec.checkpoint.is_some() => "; its committed checkpoints are kept",
        // The controller has no record of a job that another journal began.
        Some(view) if !view.spec.command.is_empty() => "",
        _ => "; its committed checkpoints are kept, if it has a checkpoint store",
    }
}

/// Waits until no process of a stopped job is left, and reports nodes where processes may be left.
pub(super) async fn report_end(client: &ControllerClient, job: &JobId) -> Result<CommandExit, CliError> {
    let left = wait(client, job).await?;
    let (over, left): (Vec<_>, Vec<_>) = left.into_iter().partition(|node| node.is_lease_over);
    for node in over {
        out::note(&format!(
            "node {} is unreachable for longer than its lease; ranks of job {job} are fenced again when it returns",
            node.node
        ));
    }
    if left.is_empty() {
        out::note(&format!("all processes of job {job} have ended"));
        return Ok(CommandExit::Fine);
    }
    for node in &left {
        out::note(&describe(job, node));
    }
    Ok(CommandExit::Finding)
}

async fn view(client: &ControllerClient, job: &JobId) -> Result<Option<JobView>, CliError> {
    let jobs = client.status().await?.jobs;
    Ok(jobs.into_iter().find(|view| view.spec.id == *job))
}

/// Waits for confirmations of reachable nodes. Unreachable nodes are not awaited; they are returned.
async fn wait(client: &ControllerClient, job: &JobId) -> Result<Vec<UnconfirmedNode>, CliError> {
    let started = Instant::now();
    let mut noted = started;
    loop {
        let left = view(client, job)
            .await?
            .map(|view| view.unconfirmed)
            .unwrap_or_default();
        let is_awaited = |node: &&UnconfirmedNode| node.state != NodeState::Lost && node.left.is_empty();
        let awaited: Vec<&str> = left.iter().filter(is_awaited).map(|node| node.node.as_str()).collect();
        if awaited.is_empty() || started.elapsed() > WAIT_MAX {
            return Ok(left);
        }
        if noted.elapsed() > NOTE_EVERY {
            noted = Instant::now();
            out::note(&format!("waiting for {} to end its ranks", awaited.join(", ")));
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

fn describe(job: &JobId, node: &UnconfirmedNode) -> String {
    let processes = if node.left.is_empty() {
        String::new()
    } else {
        format!(": {}", node.left.join(", "))
    };
    format!(
        "processes of job {job} may still run on node {}: {}{processes}",
        node.node, node.reason
    )
}
