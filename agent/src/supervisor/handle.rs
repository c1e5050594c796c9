//! Agent's handle of one supervisor process.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use super::messages::{RankStart, StandbyStart, SupervisorReport, SupervisorRequest};
use super::orphans::{forget_helper, spawn_helper};
use super::rights::raise_supervisor_capabilities;
use crate::packets::PacketChannel;
use crate::processes::FENCE_VARIABLE;

/// Longest wait for space in the socket.
const SEND_LIMIT: Duration = Duration::from_secs(2);

/// Variable that the dynamic linker needs to start the program. A supervisor receives no other: it does not need the
/// agent's credentials, and ranks of the same user could read them there.
const LINKER_VARIABLE: &str = "LD_LIBRARY_PATH";

/// Supervisor process; it is killed if this is dropped before it has ended.
#[derive(Debug)]
pub(super) struct SupervisorHandle {
    channel: PacketChannel,
    pid: u32,
    child: Mutex<Option<Child>>,
    /// True once the agent has killed it.
    is_killed: AtomicBool,
}

impl SupervisorHandle {
    /// Starts a supervisor. `mark` is the value of the environment variable by which a later agent finds it.
    pub(super) fn spawn(program: &[OsString], mark: &str) -> io::Result<Self> {
        let (program, words) = program.split_first().ok_or(io::ErrorKind::NotFound)?;
        let (channel, other) = PacketChannel::pair()?;
        let mut command = Command::new(program);
        command
            .arg0("rankguard")
            .args(words)
            .env_clear()
            .env(FENCE_VARIABLE, mark);
        command.envs(std::env::var_os(LINKER_VARIABLE).map(|value| (LINKER_VARIABLE, value)));
        command.stdin(other).stdout(Stdio::null()).stderr(Stdio::null());
        let enter = || {
            // Opens its own session before the orphan reaper can mistake it for a helper without one.
            let _ = rustix::process::setsid();
            raise_supervisor_capabilities();
            Ok(())
        };
        // SAFETY: the closure makes system calls on values on the stack; it allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(enter);
        }
        let child = spawn_helper(&mut command)?;
        Ok(Self {
            channel,
            pid: child.id(),
            child: Mutex::new(Some(child)),
            is_killed: AtomicBool::new(false),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().expect("no holder of a supervisor panics")
    }

    /// Extends the lease. Does not wait: a supervisor that reads nothing must not delay the others.
    pub(super) fn renew(&self, until: Duration) -> io::Result<()> {
        self.channel
            .send(&SupervisorRequest::Renew { until }, &[], Duration::ZERO)
    }

    /// Requests the start of a rank.
    pub(super) fn start(&self, start: &RankStart, stdout: &File, stderr: &File) -> io::Result<()> {
        let mut text = File::from(memfd_create("rank-start", MemfdFlags::CLOEXEC)?);
        text.write_all(&serde_json::to_vec(start)?)?;
        let files = [text.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let request = SupervisorRequest::Start { rank: start.rank };
        self.channel.send(&request, &files, SEND_LIMIT)
    }

    /// Requests the start of a standby process.
    pub(super) fn start_standby(&self, number: u32, recipe: &StandbyStart) -> io::Result<()> {
        let mut text = File::from(memfd_create("standby-start", MemfdFlags::CLOEXEC)?);
        text.write_all(&serde_json::to_vec(recipe)?)?;
        let request = SupervisorRequest::StartStandby { number };
        self.channel.send(&request, &[text.as_fd()], SEND_LIMIT)
    }

    /// Requests that the process of a rank waits at this socket for another rank.
    pub(super) fn keep(&self, rank: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let request = SupervisorRequest::Keep { rank };
        self.channel.send(&request, &[socket], SEND_LIMIT)
    }

    /// Requests the end of all standby processes.
    pub(super) fn end_standbys(&self) {
        let _ = self.channel.send(&SupervisorRequest::EndStandbys, &[], SEND_LIMIT);
    }

    /// Requests the end of all ranks and of the supervisor.
    pub(super) fn ask_to_end(&self) {
        let _ = self.channel.send(&SupervisorRequest::End, &[], SEND_LIMIT);
    }

    /// Returns the next report; `None` once the process has ended.
    pub(super) fn receive(&self, limit: Duration) -> io::Result<Option<SupervisorReport>> {
        let received = self.channel.receive::<SupervisorReport>(limit)?;
        Ok(received.map(|(report, _): (_, Vec<OwnedFd>)| report))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock()
            .as_mut()
            .is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    pub(super) fn kill(&self) {
        if let Some(child) = self.lock().as_mut()
            && matches!(child.try_wait(), Ok(None))
        {
            self.is_killed.store(true, Ordering::Relaxed);
            let _ = child.kill();
        }
    }

    /// Waits for the end of the process and reaps it. Returns the signal that ended it, if the agent did not send it.
    pub(super) fn wait(&self) -> Option<i32> {
        let child = self.lock().take();
        let status = child.and_then(|mut child| {
            let status = child.wait();
            forget_helper(self.pid);
            status.ok()
        });
        let is_killed = self.is_killed.load(Ordering::Relaxed);
        status.and_then(|status| status.signal()).filter(|_| !is_killed)
    }
}

impl Drop for SupervisorHandle {
    fn drop(&mut self) {
        self.kill();
        self.wait();
    }
}
