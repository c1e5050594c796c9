//! Standby process, from the supervisor's side: a Python interpreter that has imported the modules of a job and waits
//! to become one of its ranks.
//!
//! It starts as a rank does: same user, rights, working directory and environment, without the variables of one rank.
//! Its standard input is the socket to the supervisor, its output goes to memory and precedes that of the rank.
//!
//! The process of a rank that has left its generation waits in the same way, with a socket from the agent. It becomes a
//! rank of the same local number only, because it may hold the device of that number.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rankguard_model::{RESERVED_VARIABLES, StandbyCommand, StandbyTarget};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};

use super::messages::{RankStart, StandbyStart, StartStage};
use super::rank_user::RankUser;
use super::start::{StartFailure, StartedRank, account_variables, find_user, give_files, spawn_process};
use crate::packets::{PacketChannel, wait_ready};
use crate::processes::FENCE_VARIABLE;

/// Program that the interpreter executes.
const PROGRAM: &str = include_str!("standby/program.py");

/// Text of the option `-c`: receives the program from the socket on standard input.
const LOADER: &str =
    "link=__import__('socket').socket(fileno=0);exec(compile(link.recv(65536),'<standby>','exec'),{'link':link})";

/// Longest wait for the answer of a standby process that is to become a rank. It only reads a message, but its memory
/// may have been swapped out; a start takes longer than this.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Longest wait for space in a socket that has never been used.
const SEND_LIMIT: Duration = Duration::from_millis(100);

/// Variables beside [`RESERVED_VARIABLES`] that differ between the ranks and generations of a job. PyTorch reads them
/// when a process group is created, not at import.
const RANK_VARIABLES: &[&str] = &[
    "TORCH_FR_DEBUG_INFO_PIPE_FILE",
    "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
];

/// Priority of a standby process while it imports.
const IMPORT_NICE: i32 = 19;

/// Most bytes of a problem's text.
const PROBLEM_MAX: usize = 500;

/// Returns true if a variable has a value of its own for each rank.
pub(crate) fn is_rank_variable(name: &str) -> bool {
    RESERVED_VARIABLES.contains(&name) || RANK_VARIABLES.contains(&name)
}

/// Message to the program.
#[derive(Serialize)]
struct ImportPlan<'a> {
    target: &'a StandbyTarget,
    imports: &'a [String],
}

/// Values of the rank that a standby process becomes.
#[derive(Serialize)]
struct RankValues<'a> {
    /// Variables to set.
    environment: BTreeMap<String, String>,
    /// Program to run; `None` for a process that was a rank.
    target: Option<&'a StandbyTarget>,
    arguments: &'a [String],
    /// Whole command of the rank.
    command: Vec<&'a str>,
}

/// Message from the program.
#[derive(Debug, Deserialize)]
enum ProgramReport {
    Ready { pid: u32, threads: u32 },
    Failed { problem: String },
    Taken,
}

/// How the process of a rank was started.
#[derive(Debug)]
pub(super) struct StartedAs {
    pub(super) start: RankStart,
    pub(super) user: Option<RankUser>,
    pub(super) uid: u32,
}

/// News of a standby process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StandbyNews {
    Ready { threads: u32 },
    Failed { problem: String },
}

/// Standby process.
#[derive(Debug)]
pub(super) struct StandbyProcess {
    pub(super) number: u32,
    pub(super) pid: u32,
    pub(super) handle: OwnedFd,
    pub(super) channel: PacketChannel,
    /// True once its imports are complete.
    pub(super) is_ready: bool,
    /// Parameters of its start.
    start: RankStart,
    /// Command of the job; `None` for a process that was a rank.
    command: Option<StandbyCommand>,
    user: Option<RankUser>,
    /// Environment at the start of its interpreter.
    environment: BTreeMap<String, String>,
    /// Standard error until it becomes a rank; `None` for a process that was a rank.
    errors: Option<File>,
    uid: u32,
}

impl StandbyProcess {
    /// Starts the process; it imports its modules meanwhile.
    pub(super) fn spawn(number: u32, recipe: StandbyStart) -> Result<Self, StartFailure> {
        let failed = |problem: io::Error| StartFailure::at(StartStage::Request, problem);
        let user = find_user(&recipe.start, rustix::process::geteuid())?;
        let (channel, other) = PacketChannel::pair().map_err(failed)?;
        let memory = || memfd_create("standby-output", MemfdFlags::CLOEXEC).map_err(|it| failed(it.into()));
        let (stdout, stderr) = (memory()?, memory()?);
        let errors = File::from(stderr.try_clone().map_err(failed)?);
        channel.send_text(PROGRAM.as_bytes(), SEND_LIMIT).map_err(failed)?;
        let plan = ImportPlan {
            target: &recipe.command.target,
            imports: &recipe.imports,
        };
        channel.send(&plan, &[], SEND_LIMIT).map_err(failed)?;
        let environment = full_environment(&recipe.start, user.as_ref());
        let start = RankStart {
            program: recipe.command.interpreter.clone(),
            arguments: interpreter_arguments(&recipe.command),
            ..recipe.start.clone()
        };
        let StartedRank { pid, uid } = spawn_process(&start, user.as_ref(), other.into(), stdout, stderr)?;
        let number_of = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let leader = number_of.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        let handle = pidfd_open(leader, PidfdFlags::empty()).map_err(|it| failed(it.into()))?;
        if may_raise_priority() {
            set_priority(pid, IMPORT_NICE);
        }
        Ok(Self {
            number,
            pid,
            handle,
            channel,
            is_ready: false,
            start: recipe.start,
            command: Some(recipe.command),
            user,
            environment,
            errors: Some(errors),
            uid,
        })
    }

    /// Makes a standby process of a rank that has left its generation.
    pub(super) fn kept(pid: u32, handle: OwnedFd, channel: PacketChannel, started: StartedAs) -> Self {
        let environment = full_environment(&started.start, started.user.as_ref());
        Self {
            number: 0,
            pid,
            handle,
            channel,
            is_ready: true,
            start: started.start,
            command: None,
            user: started.user,
            environment,
            errors: None,
            uid: started.uid,
        }
    }

    /// Returns true if the process was a rank of the same local number as the rank that is to be started.
    pub(super) fn was_in_place_of(&self, start: &RankStart) -> bool {
        self.command.is_none() && local_rank(&self.start) == local_rank(start)
    }

    /// Returns true if the process has imported the modules of a job, and has never been a rank.
    pub(super) fn is_fresh(&self) -> bool {
        self.command.is_some()
    }

    /// Receives what the program reports; `None` if its end of the socket is closed.
    pub(super) fn receive(&mut self) -> Option<StandbyNews> {
        match self.channel.receive::<ProgramReport>(Duration::ZERO) {
            Ok(Some((ProgramReport::Ready { pid, threads }, _))) if pid == self.pid => {
                self.is_ready = true;
                if may_raise_priority() {
                    raise_priority(self.pid);
                }
                Some(StandbyNews::Ready { threads })
            }
            Ok(Some((ProgramReport::Ready { .. }, _))) => Some(StandbyNews::Failed {
                problem: "its interpreter runs in another process than the command: a wrapper starts it".to_owned(),
            }),
            Ok(Some((ProgramReport::Failed { problem }, _))) => Some(StandbyNews::Failed { problem }),
            Ok(Some((ProgramReport::Taken, _))) | Err(_) => Some(StandbyNews::Failed {
                problem: "it sent a message that is not of this protocol".to_owned(),
            }),
            Ok(None) => None,
        }
    }

    /// Returns the variables to set for a rank, or the reason for which the process cannot become it.
    pub(super) fn values_for(
        &self,
        start: &RankStart,
        user: Option<&RankUser>,
    ) -> Result<BTreeMap<String, String>, String> {
        let own = &self.start;
        let is_same_command = match &self.command {
            Some(command) => start.standby.as_ref() == Some(command),
            None => (&own.program, &own.arguments) == (&start.program, &start.arguments),
        };
        if !is_same_command {
            return Err("the command differs".to_owned());
        }
        if (&own.workdir, own.umask, own.tracer) != (&start.workdir, start.umask, start.tracer) {
            return Err("working directory, umask or agent differ".to_owned());
        }
        if user != self.user.as_ref() {
            return Err("the user or its groups differ".to_owned());
        }
        let wanted = full_environment(start, user);
        let is_equal = |name: &str| self.environment.get(name) == wanted.get(name);
        let names = self.environment.keys().chain(wanted.keys());
        if let Some(name) = names
            .filter(|name| !is_rank_variable(name))
            .find(|name| !is_equal(name))
        {
            return Err(format!("the variable {name} differs"));
        }
        Ok(wanted.into_iter().filter(|(name, _)| is_rank_variable(name)).collect())
    }

    /// Lets the process become a rank; returns its user id. After an error it must be killed.
    pub(super) fn become_rank(
        &self,
        start: &RankStart,
        environment: BTreeMap<String, String>,
        outputs: [&OwnedFd; 2],
    ) -> io::Result<u32> {
        if let Some(user) = &self.user {
            give_files(start, user, outputs)?;
        }
        if let Some(group) = &start.cgroup {
            // Without the group the process is still below its supervisor.
            let _ = std::fs::write(group.join("cgroup.procs"), self.pid.to_string());
        }
        let values = RankValues {
            environment,
            target: self.command.as_ref().map(|command| &command.target),
            arguments: self.command.as_ref().map_or(&[], |command| &command.arguments),
            command: [start.program.as_str()]
                .into_iter()
                .chain(start.arguments.iter().map(String::as_str))
                .collect(),
        };
        let mut text = File::from(memfd_create("rank-values", MemfdFlags::CLOEXEC)?);
        text.write_all(&serde_json::to_vec(&values)?)?;
        let files = [text.as_fd(), outputs[0].as_fd(), outputs[1].as_fd()];
        self.channel.send(&"Wake", &files, SEND_LIMIT)?;
        if !wait_ready(self.channel.as_fd(), rustix::event::PollFlags::IN, ANSWER_LIMIT)? {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {} ms", ANSWER_LIMIT.as_millis()),
            ));
        }
        match self.channel.receive::<ProgramReport>(Duration::ZERO)? {
            Some((ProgramReport::Taken, _)) => Ok(self.uid),
            _ => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Kills the process with its process group.
    pub(super) fn kill(&self) {
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        if let Some(leader) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    /// Waits until the process has ended; it remains to be reaped.
    pub(super) fn wait_ended(&self, limit: Duration) {
        let _ = wait_ready(self.handle.as_fd(), rustix::event::PollFlags::IN, limit);
    }

    /// Returns the last line that the program wrote to standard error.
    pub(super) fn last_error(&mut self) -> Option<String> {
        let mut text = Vec::new();
        let errors = self.errors.as_mut()?;
        errors.rewind().ok()?;
        errors.take(1 << 20).read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(line.trim().chars().take(PROBLEM_MAX).collect())
    }
}

/// Returns the number of a rank on its node, as in its environment.
fn local_rank(start: &RankStart) -> Option<&String> {
    start.environment.get("LOCAL_RANK")
}

/// Returns the environment with the variables of the user's account.
fn full_environment(start: &RankStart, user: Option<&RankUser>) -> BTreeMap<String, String> {
    let mut all = start.environment.clone();
    let account = user.map(|user| account_variables(start, user)).unwrap_or_default();
    all.extend(account.into_iter().map(|(name, value)| (name.to_owned(), value)));
    all
}

/// Returns the arguments of an interpreter that runs the program. Script and arguments follow for lists of processes.
fn interpreter_arguments(command: &StandbyCommand) -> Vec<String> {
    let mut words = command.options.clone();
    words.extend(["-c".to_owned(), LOADER.to_owned()]);
    match &command.target {
        StandbyTarget::Script(path) => words.push(path.clone()),
        StandbyTarget::Module(module) => words.extend(["-m".to_owned(), module.clone()]),
    }
    words.extend(command.arguments.iter().cloned());
    words
}

/// Returns true if this process may raise the priority that it lowered.
fn may_raise_priority() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
}

fn set_priority(task: u32, nice: i32) {
    if let Some(task) = i32::try_from(task).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::setpriority_process(Some(task), nice);
    }
}

/// Gives all threads of a process the priority of this one.
fn raise_priority(pid: u32) {
    let own = rustix::process::getpriority_process(None).unwrap_or(0);
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let numbers = tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.for_each(|task: u32| set_priority(task, own));
}

/// Returns the recipe of standby processes for the ranks of a launch: the start of one of them, without its variables.
pub(crate) fn standby_recipe(start: &RankStart, imports: &[String], mark: String) -> Option<StandbyStart> {
    let command = start.standby.clone()?;
    let mut start = start.clone();
    start.environment.retain(|name, _| !is_rank_variable(name));
    start.environment.insert(FENCE_VARIABLE.to_owned(), mark);
    start.cgroup = None;
    Some(StandbyStart {
        start,
        command,
        imports: imports.to_vec(),
    })
}

#[cfg(test)]
mod tests;
