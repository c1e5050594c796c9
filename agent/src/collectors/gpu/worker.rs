//! Agent's side of the process that calls the library: starts, polls and restarts it, and kills it if it is stuck.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::protocol::{LOOK, LibraryAnswer};
use crate::stop_flag::StopFlag;

/// Command of the process: program, arguments, and added environment variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct LibraryCommand {
    pub(crate) words: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// First pause after a stuck call; doubles up to the pause between two loads of the library.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Time for a killed process to end before it is abandoned: it then waits inside the kernel.
const DEATH: Duration = Duration::from_millis(500);
/// Most abandoned processes; beyond it no further one is started.
const LEFT_MAX: usize = 4;
/// Longest answer, bytes: many times the size for 64 devices.
const ANSWER_MAX: usize = 1 << 20;
/// Time without any output after which a process is given up, in deadlines: it should have reported the call earlier.
const SILENCE: u32 = 4;

/// Result of a poll.
#[derive(Debug, PartialEq)]
pub(crate) enum PollOutcome {
    Answer(LibraryAnswer),
    /// The next attempt is not due yet.
    Paused,
    /// The stop flag was set.
    Stopped,
}

#[derive(Debug)]
pub(crate) struct LibraryWorker {
    process: LibraryCommand,
    deadline: Duration,
    /// Pause between two attempts to load a missing library.
    reload: Duration,
    running: Option<RunningLibrary>,
    /// Killed processes that have not ended.
    left: Vec<Child>,
    next_try: Option<Instant>,
    stuck_in_a_row: u32,
}

#[derive(Debug)]
struct RunningLibrary {
    child: Child,
    socket: UnixStream,
}

impl LibraryWorker {
    pub(crate) fn new(process: LibraryCommand, deadline: Duration, reload: Duration) -> Self {
        Self {
            process,
            deadline,
            reload,
            running: None,
            left: Vec::new(),
            next_try: None,
            stuck_in_a_row: 0,
        }
    }

    /// Returns the number of killed processes that have not ended.
    pub(super) fn left_behind(&mut self) -> usize {
        self.left.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        self.left.len()
    }

    /// Polls the devices. Takes at most the deadline of one call, unless many calls are slow.
    pub(crate) fn look(&mut self, stop: &StopFlag) -> PollOutcome {
        if self.running.is_none() {
            if self.next_try.is_some_and(|next| Instant::now() < next) || self.left_behind() >= LEFT_MAX {
                return PollOutcome::Paused;
            }
            match self.start() {
                Ok(running) => self.running = Some(running),
                Err(error) => {
                    self.next_try = Some(Instant::now() + self.reload);
                    let program = self.process.words.first().cloned().unwrap_or_default();
                    let problem = format!("cannot start {}: {error}", program.display());
                    return PollOutcome::Answer(LibraryAnswer::Absent(problem));
                }
            }
        }
        let Some(running) = &self.running else {
            return PollOutcome::Paused;
        };
        let answer = match ask(running, self.deadline * SILENCE, stop) {
            Ok(Some(answer)) => answer,
            Ok(None) => return PollOutcome::Stopped,
            Err(error) => LibraryAnswer::Absent(format!(
                "the process that calls the management library is gone: {error}"
            )),
        };
        match &answer {
            LibraryAnswer::Seen { .. } => {
                self.stuck_in_a_row = 0;
                return PollOutcome::Answer(answer);
            }
            // The driver was unloaded or replaced: only a new load of the library finds the next one.
            LibraryAnswer::Absent(_) => self.next_try = Some(Instant::now() + self.reload),
            LibraryAnswer::Stuck(_) => {
                let pause = FIRST_PAUSE.saturating_mul(1 << self.stuck_in_a_row.min(16));
                self.stuck_in_a_row += 1;
                self.next_try = Some(Instant::now() + pause.min(self.reload));
            }
        }
        self.end();
        PollOutcome::Answer(answer)
    }

    fn start(&self) -> io::Result<RunningLibrary> {
        let (program, words) = self
            .process
            .words
            .split_first()
            .ok_or_else(|| io::Error::other("no program is set that calls the management library"))?;
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(program)
            .args(words)
            .envs(self.process.environment.iter().cloned())
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(RunningLibrary { child, socket: ours })
    }

    /// Kills the process, and abandons it if it does not end.
    pub(super) fn end(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        drop(running.socket);
        let _ = running.child.kill();
        let until = Instant::now() + DEATH;
        while Instant::now() < until {
            if !matches!(running.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        tracing::warn!(
            pid = running.child.id(),
            "the process that calls the GPU library does not die; it is left behind"
        );
        self.left.push(running.child);
    }
}

impl Drop for LibraryWorker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends a request and waits for the answer, in small steps to check the stop flag; `None` if it was set.
fn ask(running: &RunningLibrary, silence: Duration, stop: &StopFlag) -> io::Result<Option<LibraryAnswer>> {
    let mut socket = &running.socket;
    socket.write_all(LOOK)?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let until = Instant::now() + silence;
    let mut line = Vec::new();
    let mut chunk = [0; 8192];
    while line.last() != Some(&b'\n') {
        match socket.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => line.extend_from_slice(chunk.get(..bytes).unwrap_or_default()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                if stop.stopped() {
                    return Ok(None);
                }
                if Instant::now() >= until {
                    return Ok(Some(LibraryAnswer::Stuck(
                        "the process that makes the calls".to_owned(),
                    )));
                }
            }
            Err(error) => return Err(error),
        }
        if line.len() > ANSWER_MAX {
            return Err(io::Error::other("its answer is too long"));
        }
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(words: &[&str], deadline: Duration) -> PollOutcome {
        let process = LibraryCommand {
            words: words.iter().map(OsString::from).collect(),
            environment: Vec::new(),
        };
        LibraryWorker::new(process, deadline, Duration::ZERO).look(&StopFlag::default())
    }

    fn problem(words: &[&str]) -> String {
        match look(words, Duration::from_secs(20)) {
            PollOutcome::Answer(LibraryAnswer::Absent(problem)) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_process_that_cannot_be_started_or_ends_or_babbles_is_an_absent_library() {
        assert!(problem(&[]).contains("no program is set"));
        assert!(problem(&["/nowhere/at-all"]).starts_with("cannot start /nowhere/at-all: "));
        assert!(problem(&["true"]).contains("is gone"));
        assert!(problem(&["sh", "-c", "read line; echo '{\"nonsense\": 1}' >&0"]).contains("is gone"));
        assert!(problem(&["sh", "-c", "read line; exec 3>&0; yes | tr -d '\\n' >&3"]).contains("too long"));
    }

    #[test]
    fn a_process_that_says_nothing_is_stuck_and_killed() {
        let stuck = LibraryAnswer::Stuck("the process that makes the calls".to_owned());
        assert_eq!(
            look(&["sleep", "600"], Duration::from_millis(50)),
            PollOutcome::Answer(stuck)
        );
    }
}
