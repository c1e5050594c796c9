//! Starting and ending ranks.
//!
//! One thread forks, and lives as long as the agent: ranks are tied to it by PR_SET_PDEATHSIG, because a rank without an
//! owner could not be fenced (RG-3). Each rank leads a process group of its own; signals go to the group, so what a rank
//! started ends with it. When a rank ends by itself, the rest of its group is killed. Only when the agent is killed with
//! SIGKILL do grandchildren of the agent outlive it, until they notice; cgroups that would take them along are absent.
//!
//! One thread a rank waits for its end. The process is not reaped before it is off the table of processes, so a signal
//! never goes to a number that the kernel has given to somebody else.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rankguard_model::{Body, Entity, Exit, Launch, NodeId, RankRef, RankSlot, Source};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::oneshot;

use super::environment::{rank_files, variables};
use super::process::{self, Spec};
use super::roster::Roster;
use crate::collectors::job_log::JobLogs;
use crate::intake::Intake;
use crate::sighting::Sighting;

/// Longest wait for an ended rank's last lines to be read before its end is reported.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// What the launcher works with.
#[derive(Debug, Clone)]
pub(crate) struct LauncherParts {
    pub(crate) node: NodeId,
    pub(crate) state_dir: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) roster: Roster,
    pub(crate) intake: Intake,
    pub(crate) logs: JobLogs,
}

/// Answers with every rank that could not be started.
struct Request {
    launch: Arc<Launch>,
    reply: oneshot::Sender<Result<(), String>>,
}

/// The door to the launcher's thread. When the last one is dropped the thread ends, and every rank with it.
#[derive(Debug, Clone)]
pub(crate) struct Launcher {
    requests: Sender<Request>,
    processes: Processes,
    roster: Roster,
}

/// Leaders of the groups that are not reaped yet.
#[derive(Debug, Clone, Default)]
struct Processes {
    table: Arc<Mutex<BTreeMap<RankRef, Pid>>>,
}

impl Launcher {
    /// Starts the thread.
    pub(crate) fn start(parts: LauncherParts) -> io::Result<(Self, JoinHandle<()>)> {
        let (requests, receiver) = channel();
        let launcher = Self {
            requests,
            processes: Processes::default(),
            roster: parts.roster.clone(),
        };
        let processes = launcher.processes.clone();
        let thread = std::thread::Builder::new()
            .name("launcher".to_owned())
            .spawn(move || serve(&parts, &processes, &receiver))?;
        Ok((launcher, thread))
    }

    /// Starts the ranks of a launch that is on the roster already. When one cannot be started, those that were are
    /// killed: a generation is whole or it is not.
    pub(crate) async fn launch(&self, launch: Arc<Launch>) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        let request = Request { launch, reply };
        if self.requests.send(request).is_err() {
            return Err("the agent is shutting down".to_owned());
        }
        answer.await.unwrap_or_else(|_| Err("the agent is shutting down".to_owned()))
    }

    /// Signals the groups of the ranks that are meant.
    pub(crate) fn signal(&self, wanted: impl Fn(&RankRef) -> bool, signal: Signal) {
        for rank in self.roster.alive(&wanted) {
            self.roster.ending(&rank.rank);
            self.processes.signal(&rank.rank, signal);
        }
    }
}

impl Processes {
    fn signal(&self, rank: &RankRef, signal: Signal) {
        let table = self.table.lock().expect("no holder of the processes panics");
        if let Some(pid) = table.get(rank) {
            // It may have ended in this very moment; then the wait thread already knows.
            let _ = kill_process_group(*pid, signal);
        }
    }

    /// Takes a rank that has ended off the table and reaps it, in one step for everyone who signals.
    fn reap(&self, rank: &RankRef, pid: Pid, child: &mut Child) -> io::Result<Exit> {
        let mut table = self.table.lock().expect("no holder of the processes panics");
        // What the rank left behind in its group dies with it. ESRCH: nothing was left.
        let _ = kill_process_group(pid, Signal::KILL);
        table.remove(rank);
        child.wait().map(process::exit_of)
    }
}

fn serve(parts: &LauncherParts, processes: &Processes, requests: &Receiver<Request>) {
    while let Ok(Request { launch, reply }) = requests.recv() {
        let result = start_all(parts, processes, &launch);
        // The asker gave up: the ranks run, and the controller learns that from their evidence.
        let _ = reply.send(result);
    }
}

fn start_all(parts: &LauncherParts, processes: &Processes, launch: &Arc<Launch>) -> Result<(), String> {
    for (position, slot) in launch.ranks.iter().enumerate() {
        if let Err(problem) = start(parts, processes, launch, *slot) {
            for never_started in &launch.ranks[position..] {
                parts.roster.ended(&rank_ref(launch, *never_started));
            }
            for started in &launch.ranks[..position] {
                let rank = rank_ref(launch, *started);
                parts.roster.ending(&rank);
                processes.signal(&rank, Signal::KILL);
            }
            return Err(format!("rank {}: {problem}", slot.rank));
        }
    }
    Ok(())
}

fn rank_ref(launch: &Launch, slot: RankSlot) -> RankRef {
    RankRef {
        job: launch.job.clone(),
        generation: launch.generation,
        rank: slot.rank,
    }
}

fn start(parts: &LauncherParts, processes: &Processes, launch: &Arc<Launch>, slot: RankSlot) -> Result<(), String> {
    let rank = rank_ref(launch, slot);
    let files = rank_files(&parts.state_dir, launch, slot);
    let vars = variables(launch, slot, &parts.node, &parts.socket);
    let mut child = process::spawn(&Spec {
        command: &launch.command,
        workdir: launch.workdir.as_deref(),
        vars: &vars,
        files: &files,
    })?;
    let number = child.id();
    let pid = Pid::from_child(&child);
    {
        let mut table = processes.table.lock().expect("no holder of the processes panics");
        table.insert(rank.clone(), pid);
    }
    parts.roster.started(&rank, number);
    parts.logs.follow(rank.clone(), vec![files.stdout, files.stderr]);
    parts.intake.push(sighting(parts, &rank, Body::RankStarted { pid: number }));
    let waiter = {
        let (parts, processes, rank) = (parts.clone(), processes.clone(), rank.clone());
        move || wait(&parts, &processes, &rank, pid, &mut child)
    };
    let name = format!("rank-{}", rank.rank);
    if let Err(error) = std::thread::Builder::new().name(name).spawn(waiter) {
        // Without its waiter it would never be reaped. The handle is gone with the closure, the process is not.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
        let mut table = processes.table.lock().expect("no holder of the processes panics");
        table.remove(&rank);
        return Err(format!("cannot start a thread that waits for it: {error}"));
    }
    Ok(())
}

fn wait(parts: &LauncherParts, processes: &Processes, rank: &RankRef, pid: Pid, child: &mut Child) {
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {}
    let exit = match processes.reap(rank, pid, child) {
        Ok(exit) => exit,
        Err(error) => {
            tracing::warn!(%error, %pid, "exit status of a rank is not known");
            Exit::Code(-1)
        }
    };
    let pid = child.id();
    let ended = sighting(parts, rank, Body::RankExited { pid, exit });
    // A rank that ended by itself may have said why; one that was ended on purpose holds up nobody.
    let patience = if parts.roster.is_ending(rank) { Duration::ZERO } else { LAST_WORDS };
    parts.logs.finish(rank.clone(), patience);
    parts.intake.push(ended);
    parts.roster.ended(rank);
}

fn sighting(parts: &LauncherParts, rank: &RankRef, body: Body) -> Sighting {
    let entity = Entity::Rank {
        job: rank.job.clone(),
        generation: rank.generation,
        rank: rank.rank,
        node: parts.node.clone(),
    };
    Sighting::now(Source::Ranks, entity, body)
}
