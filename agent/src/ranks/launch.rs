//! Starting one rank.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rankguard_model::{Body, Exit, Launch, NodeId, RankRef, RankSlot, Source};
use rustix::process::{PTracer, Pid, Signal, WaitId, WaitIdOptions, kill_process_group, set_ptracer, waitid};

use super::Roster;
use super::environment::{flight_dump, flight_pipe, rank_files, variables};
use crate::clock;
use crate::collectors::{FlightDumps, JobLogs};
use crate::intake::Intake;
use crate::sighting::Sighting;

/// How long the end of a rank waits at most for the reading of what it wrote: on a node with a free core that takes
/// milliseconds, on a starved one the cause is worth the wait.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a rank could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("the job has no command")]
    NoCommand,
    #[error("the command `{program}` was not found on node {node} (PATH is {path})")]
    NotFound {
        program: String,
        node: NodeId,
        path: String,
    },
    #[error("the working directory {path} does not exist on node {node}")]
    NoWorkdir { path: String, node: NodeId },
    #[error("cannot start `{program}` on node {node}: {source}")]
    Spawn {
        program: String,
        node: NodeId,
        source: io::Error,
    },
    #[error("cannot write the output of rank {rank} to {path}: {source}")]
    Output {
        rank: u32,
        path: PathBuf,
        source: io::Error,
    },
}

/// What ranks are given beside their order.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) state_dir: &'a Path,
    pub(crate) socket: &'a Path,
    pub(crate) node: &'a NodeId,
    pub(crate) roster: &'a Roster,
    pub(crate) intake: &'a Intake,
    pub(crate) job_logs: &'a JobLogs,
    pub(crate) flight: &'a FlightDumps,
    /// Whether ranks are to have a pipe at which their flight recorder is asked, where their job says nothing of it.
    pub(crate) flight_pipe: bool,
}

/// Starts a rank and a thread that waits for its end.
///
/// Must be called on a thread that lives as long as the agent: the rank dies with the thread that started it, because a
/// rank without an owner cannot be fenced (RG-3).
pub(crate) fn spawn(around: &Surroundings<'_>, launch: &Arc<Launch>, slot: RankSlot) -> Result<(), LaunchError> {
    let node = around.node.clone();
    let (program, arguments) = launch.command.split_first().ok_or(LaunchError::NoCommand)?;
    if let Some(path) = launch.workdir.as_ref().filter(|path| !Path::new(path).is_dir()) {
        return Err(LaunchError::NoWorkdir {
            path: path.clone(),
            node,
        });
    }
    let files = rank_files(around.state_dir, launch, slot);
    let open = |path: &Path| {
        let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
        parent
            .and_then(|()| File::create(path))
            .map_err(|source| LaunchError::Output {
                rank: slot.rank.0,
                path: path.to_owned(),
                source,
            })
    };
    let (stdout, stderr) = (open(&files.stdout)?, open(&files.stderr)?);
    let mut variables = variables(launch, slot, around.node, around.socket);
    let from_workdir = |path: PathBuf| {
        launch
            .workdir
            .as_ref()
            .map_or(path.clone(), |dir| Path::new(dir).join(path))
    };
    let dump = from_workdir(flight_dump(&mut variables, &files, slot));
    let pipe = flight_pipe(&mut variables, &files, slot, around.flight_pipe).map(from_workdir);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        // A group of its own, so that what the rank starts ends with it.
        .process_group(0);
    if let Some(workdir) = &launch.workdir {
        command.current_dir(workdir);
    }
    die_with_agent(&mut command);
    let rank = RankRef {
        job: launch.job.clone(),
        generation: launch.generation,
        rank: slot.rank,
    };
    around.roster.expect(rank.clone(), slot.local_rank, launch.clone());
    around.flight.follow(rank.clone(), dump, pipe);
    let mut child = command.spawn().map_err(|source| {
        around.roster.ended(&rank);
        around.flight.finish(&rank);
        match source.kind() {
            io::ErrorKind::NotFound => {
                let path = std::env::var("PATH").unwrap_or_default();
                LaunchError::NotFound {
                    program: program.clone(),
                    node,
                    path,
                }
            }
            _ => LaunchError::Spawn {
                program: program.clone(),
                node,
                source,
            },
        }
    })?;
    let pid = child.id();
    around
        .job_logs
        .follow(rank.clone(), vec![files.stdout.clone(), files.stderr.clone()]);
    around.roster.started(&rank, pid);
    let (roster, intake, job_logs) = (around.roster.clone(), around.intake.clone(), around.job_logs.clone());
    let flight = around.flight.clone();
    let entity = roster.entity(&rank);
    intake.push(Sighting::now(Source::Ranks, entity.clone(), Body::RankStarted { pid }).urgent());
    let wait = move || {
        end_group_with_leader(pid);
        let exit = match child.wait() {
            Ok(status) => status
                .signal()
                .map_or(Exit::Code(status.code().unwrap_or(-1)), Exit::Signal),
            Err(problem) => {
                tracing::error!(pid, %problem, "cannot wait for a rank; its end is taken for a kill");
                Exit::Signal(9)
            }
        };
        let ended_at = clock::now();
        // Its last words come before its death, so that the cause stands before the consequence.
        job_logs.finish(rank.clone(), LAST_WORDS);
        flight.finish(&rank);
        // The evidence first: whoever waits for the rank to be gone may report what follows from it.
        intake.push(
            Sighting::now(Source::Ranks, entity, Body::RankExited { pid, exit })
                .at(ended_at)
                .urgent(),
        );
        roster.ended(&rank);
    };
    let waiter = std::thread::Builder::new()
        .name(format!("rank-{}", slot.rank))
        .spawn(wait);
    waiter.map(drop).map_err(|source| LaunchError::Spawn {
        program: program.clone(),
        node: around.node.clone(),
        source,
    })
}

/// Waits for the end of a rank and kills what it left behind in its group, all before it is reaped: until then the kernel
/// gives its number to nobody else, so no stranger can be hit.
fn end_group_with_leader(pid: u32) {
    let Some(leader) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(leader), ended) {}
    // No such group: nothing was left behind.
    let _ = kill_process_group(leader, Signal::KILL);
}

fn die_with_agent(command: &mut Command) {
    let agent = rustix::process::getpid();
    let arm = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
        // Where only parents may look into a process, the agent's helper that reads stacks may, too. Other kernels refuse,
        // and need no word for it.
        let _ = set_ptracer(PTracer::ProcessID(agent));
        // The agent may have died between the fork and this line.
        match rustix::process::getppid() {
            Some(parent) if parent == agent => Ok(()),
            _ => Err(io::Error::other("the agent is gone")),
        }
    };
    // SAFETY: between fork and exec only prctl and getppid are called, which are async-signal-safe and touch no memory
    // that another thread may have left locked.
    unsafe {
        command.pre_exec(arm);
    }
}
