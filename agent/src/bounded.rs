//! Bounded execution of third-party programs: a deadline, resource limits, bounded output, and no process left behind.
//!
//! A program runs in its own process group with a marker in its environment, which its children inherit. At its end, or
//! at the deadline, the group is killed, and then every process with the marker: a program that starts a new session
//! leaves the group but keeps its environment. Absent: cgroups, which require rights that an agent may not have.

mod strays;
mod stream;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rankguard_model::ProcessExit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process_group, pidfd_open, setrlimit};

use strays::end_strays;
use stream::BoundedOutput;

/// Environment variable with the marker.
const WORD: &str = "RANKGUARD_BOUNDED";
/// Bytes retained of each of the two output streams.
const KEPT: usize = 16 << 10;
/// Bytes of output after which a program is killed.
const FLOOD: usize = 1 << 20;
/// Longest wait between two checks of `stopped`.
const HEAR: Duration = Duration::from_millis(200);
/// Longest wait for killed processes to end, and for a busy executable.
const GONE: Duration = Duration::from_secs(2);

/// Limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunLimits {
    /// Wall time until the program is killed.
    pub(crate) deadline: Duration,
    /// Processor seconds of each of its processes; no limit if absent.
    pub(crate) cpu_s: Option<u64>,
    /// Bytes of address space of each of its processes; no limit if absent.
    pub(crate) memory: Option<u64>,
}

/// End of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RunEnd {
    /// The program exited, or a signal of another process killed it.
    Itself(ProcessExit),
    /// Killed at the deadline.
    Deadline,
    /// Killed because the caller cancelled the run.
    Stopped,
    /// Killed because it exceeded the output limit.
    Flood,
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunOutcome {
    pub(crate) end: RunEnd,
    /// Beginning of its standard output, decoded lossily.
    pub(crate) stdout: String,
    /// Beginning of its standard error, decoded lossily.
    pub(crate) stderr: String,
    /// Number of processes outside of its group that were killed.
    pub(crate) strays: usize,
}

/// Runs a program to its end. Blocks the calling thread, at most for the deadline and the cleanup.
pub(crate) fn run(words: &[OsString], bounds: RunLimits) -> io::Result<RunOutcome> {
    run_until(words, bounds, || false)
}

/// Runs as [`run`] does, but kills the program soon after `stopped` returns true.
pub(crate) fn run_until(words: &[OsString], bounds: RunLimits, stopped: impl Fn() -> bool) -> io::Result<RunOutcome> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
    let word = word();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env(WORD, &word)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let limit = move || {
        let set = |resource, value| {
            setrlimit(
                resource,
                Rlimit {
                    current: Some(value),
                    maximum: Some(value),
                },
            )
            .map_err(io::Error::from)
        };
        set(Resource::Core, 0)?;
        if let Some(seconds) = bounds.cpu_s {
            set(Resource::Cpu, seconds)?;
        }
        if let Some(bytes) = bounds.memory {
            set(Resource::As, bytes)?;
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)
    };
    // SAFETY: between fork and exec only setrlimit and prctl are called, which are async-signal-safe and touch no
    // memory that another thread may have left locked.
    unsafe {
        command.pre_exec(limit);
    }
    let mut child = spawn(&mut command)?;
    let told = listen(&mut child, Instant::now() + bounds.deadline, stopped);
    // The process id is not reused before the leader is reaped.
    if let Some(leader) = pid(child.id()) {
        let _ = kill_process_group(leader, Signal::KILL);
    }
    let status = child.wait()?;
    let strays = end_strays(&word);
    let (by_us, stdout, stderr) = told?;
    let exit = status
        .signal()
        .map_or(ProcessExit::Code(status.code().unwrap_or(-1)), ProcessExit::Signal);
    Ok(RunOutcome {
        end: by_us.unwrap_or(RunEnd::Itself(exit)),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        strays,
    })
}

/// Spawns a program; waits while an executable that was just installed is busy, because a process forked meanwhile may
/// hold it open for writing.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let until = Instant::now() + GONE;
    loop {
        match command.spawn() {
            Err(problem) if problem.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// Returns a marker that no other run of any agent of this machine has.
fn word() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let now = crate::clock::now().0;
    format!("{}-{now}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
}

/// Reads both streams until the leader has ended or must be killed; returns the reason in the latter case.
fn listen(
    child: &mut Child,
    deadline: Instant,
    stopped: impl Fn() -> bool,
) -> io::Result<(Option<RunEnd>, Vec<u8>, Vec<u8>)> {
    let leader = pid(child.id()).ok_or_else(|| io::Error::other("a process without a number"))?;
    let ended = pidfd_open(leader, PidfdFlags::empty())?;
    let mut streams = [
        BoundedOutput::of(child.stdout.take().map(OwnedFd::from))?,
        BoundedOutput::of(child.stderr.take().map(OwnedFd::from))?,
    ];
    let by_us = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break Some(RunEnd::Deadline);
        }
        if stopped() {
            break Some(RunEnd::Stopped);
        }
        let left = left.min(HEAR);
        let mut waited: Vec<PollFd<'_>> = vec![PollFd::new(&ended, PollFlags::IN)];
        waited.extend(
            streams
                .iter()
                .filter_map(|stream| stream.pipe.as_ref())
                .map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)),
        );
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut waited, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(problem) => return Err(problem.into()),
        }
        let over = waited.first().is_some_and(|fd| !fd.revents().is_empty());
        streams.iter_mut().for_each(BoundedOutput::read);
        if streams.iter().any(|stream| stream.seen > FLOOD) {
            break Some(RunEnd::Flood);
        }
        if over {
            break None;
        }
    };
    let [stdout, stderr] = streams;
    Ok((by_us, stdout.kept, stderr.kept))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LONG: RunLimits = RunLimits {
        deadline: Duration::from_secs(60),
        cpu_s: None,
        memory: None,
    };

    fn shell(script: &str, bounds: RunLimits) -> RunOutcome {
        run(&["sh".into(), "-c".into(), script.into()], bounds).unwrap()
    }

    /// Returns a command that no other run of these tests on this machine uses.
    fn sleep_of_mine(seconds: u32) -> String {
        format!("sleep {seconds}.{}", std::process::id())
    }

    fn running(words: &str) -> usize {
        let wanted = format!("{}\0", words.replace(' ', "\0")).into_bytes();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default());
        lines.filter(|line| *line == wanted).count()
    }

    #[test]
    fn a_program_that_ends_is_told_with_its_words() {
        let outcome = shell("echo out; echo err >&2; exit 3", LONG);
        assert_eq!(outcome.end, RunEnd::Itself(ProcessExit::Code(3)));
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_program_that_forks_and_hangs_leaves_nothing_behind() {
        let short = RunLimits {
            deadline: Duration::from_secs(2),
            ..LONG
        };
        let sleep = sleep_of_mine(4321);
        // One child in the group, one in a session of its own.
        let outcome = shell(&format!("{sleep} & setsid {sleep} & echo started; wait"), short);
        assert_eq!(outcome.end, RunEnd::Deadline);
        assert_eq!(outcome.stdout, "started\n");
        // No process carries the marker of this test any more: the run would have counted it and waited for it.
        assert!(outcome.strays <= 2, "{outcome:?}");
        assert_eq!(running(&sleep), 0);
    }

    #[test]
    fn a_program_that_ends_before_its_child_does_not_keep_us_waiting() {
        let sleep = sleep_of_mine(5432);
        let outcome = shell(&format!("setsid {sleep} & exit 1"), LONG);
        assert_eq!(outcome.end, RunEnd::Itself(ProcessExit::Code(1)));
        assert_eq!(running(&sleep), 0);
    }

    #[test]
    fn a_flood_is_cut_and_ended() {
        let outcome = shell("while :; do echo 0123456789012345678901234567890123456789; done", LONG);
        assert_eq!(outcome.end, RunEnd::Flood);
        assert_eq!(outcome.stdout.len(), KEPT);
    }

    #[test]
    fn a_missing_program_is_an_error_and_memory_has_a_limit() {
        let missing = run(&["/no/such/program".into()], LONG).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let small = RunLimits {
            memory: Some(1 << 20),
            ..LONG
        };
        let outcome = run(&["sh".into(), "-c".into(), "echo fine".into()], small);
        assert!(
            outcome.is_err() || outcome.is_ok_and(|outcome| outcome.end != RunEnd::Itself(ProcessExit::Code(0))),
            "a megabyte of address space is not enough for any program"
        );
    }
}
