//! `rankguard run`: submits a job and follows it. Ctrl-C cancels it.

mod args;
pub(in crate::commands) mod checkpoint_news;
mod follow;
mod launcher;
pub(in crate::commands) mod resume;
mod spec;
mod submitter;

use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) use args::RunArgs;

use crate::client::ControllerClient;
use crate::commands::cancel::report_end;
use crate::commands::logs::LogReader;
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::out;
use crate::signals::StopSignals;

use follow::JobFollower;
use spec::{missing_capacity, missing_copies, shared_nodes, spec};

/// Maximum wait for the end of a cancelled job.
const CANCEL_MAX: Duration = Duration::from_secs(60);

pub(crate) async fn run(args: RunArgs, client: &ControllerClient) -> Result<CommandExit, CliError> {
    let detach = args.detach;
    let output = args.output;
    let mut stop = StopSignals::catch().map_err(|problem| {
        CliError::failure("cannot catch signals", "check the limit of open files (`ulimit -n`)").because(problem)
    })?;
    let resume_from = match (&args.resume_from, &args.checkpoint_dir) {
        (Some(source), Some(dir)) => Some(source.resolve(dir).await?),
        _ => None,
    };
    let mut spec = spec(args)?;
    spec.resume_from = resume_from;
    let status = client.status().await?;
    let job = client.submit(&spec).await?;
    out::line(job.as_str());
    let notes = missing_capacity(&spec, &status)
        .into_iter()
        .chain(missing_copies(&spec))
        .chain(shared_nodes(&status));
    notes.for_each(|note| out::note(&note));
    if detach {
        let options = client.options();
        let name = Some(job.as_str());
        out::note(&format!(
            "submitted; {} shows the job, {} its output, {} stops it",
            options.command("status", None),
            options.command("logs", name),
            options.command("cancel", name)
        ));
        return Ok(CommandExit::Fine);
    }
    if !output {
        out::note(&format!(
            "{} shows the output of its ranks; --output prints it here",
            client.options().command("logs", Some(job.as_str()))
        ));
    }
    let reader = output.then(|| LogReader::new(job.clone(), BTreeSet::new(), None));
    let mut follower = JobFollower::new(job.clone(), reader);
    tokio::select! {
        ended = follower.follow(client) => ended,
        signal = stop.wait() => {
            if follower.has_finished() {
                out::note(&format!(
                    "{signal}: job {job} has finished; the agents still write its last checkpoint, which is not committed yet"
                ));
                return Ok(CommandExit::Finding);
            }
            out::note(&format!("{signal}: cancelling job {job}; repeat to exit at once and leave it"));
            tokio::select! {
                ended = cancel(&mut follower, client) => ended,
                _ = stop.wait() => Err(CliError::failure(
                    format!("processes of job {job} may still run: the wait for their end was interrupted"),
                    format!(
                        "{} stops the job and waits for their end",
                        client.options().command("cancel", Some(job.as_str()))
                    ),
                )),
            }
        }
    }
}

/// Cancels a job, and waits until no process of it is left.
async fn cancel(follower: &mut JobFollower, client: &ControllerClient) -> Result<CommandExit, CliError> {
    // A job that is over has nothing to cancel, and its end is followed as well.
    let _has_changed = client.cancel(&follower.job).await?;
    match tokio::time::timeout(CANCEL_MAX, follower.follow(client)).await {
        Ok(ended) => {
            report_end(client, &follower.job).await?;
            follower.print_rest(client).await;
            ended
        }
        Err(_) => Err(CliError::failure(
            format!(
                "job {} is cancelled but did not end within {} s",
                follower.job,
                CANCEL_MAX.as_secs()
            ),
            format!("{} shows the reason", client.options().command("status", None)),
        )),
    }
}
