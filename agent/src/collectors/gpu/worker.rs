//! The process that calls the library, as the collector sees it: started, asked, killed when it is stuck, started again.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::look::{Answer, LOOK};
use crate::collectors::Stop;

/// How the process is started: a program, its words, and what is added to its environment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Process {
    pub(crate) words: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// First pause after a call that was stuck; it doubles up to the pause between two loads of a library.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long a killed process may take to be gone before it is left behind: it waits inside the kernel then.
const DEATH: Duration = Duration::from_millis(500);
/// Processes that may be left behind; with so many no further one is started.
const LEFT_MAX: usize = 4;
/// Longest answer, bytes: many times what 64 devices need.
const ANSWER_MAX: usize = 1 << 20;
/// Deadlines after which a process that says nothing at all is given up: it should have named the call long before.
const SILENCE: u32 = 4;

/// What came of a look.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Answer(Answer),
    /// It is not yet time to try again.
    Paused,
    /// The collector is asked to end.
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Worker {
    process: Process,
    deadline: Duration,
    /// Between two tries to load a library that was not there.
    reload: Duration,
    running: Option<Running>,
    /// Killed and not gone.
    left: Vec<Child>,
    next_try: Option<Instant>,
    stuck_in_a_row: u32,
}

#[derive(Debug)]
struct Running {
    child: Child,
    socket: UnixStream,
}

impl Worker {
    pub(crate) fn new(process: Process, deadline: Duration, reload: Duration) -> Self {
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

    /// Killed processes that the kernel does not let go.
    pub(super) fn left_behind(&mut self) -> usize {
        self.left.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        self.left.len()
    }

    /// One look. Takes as long as the deadline of a call at most, unless many calls are slow.
    pub(crate) fn look(&mut self, stop: &Stop) -> Outcome {
        if self.running.is_none() {
            if self.next_try.is_some_and(|next| Instant::now() < next) || self.left_behind() >= LEFT_MAX {
                return Outcome::Paused;
            }
            match self.start() {
                Ok(running) => self.running = Some(running),
                Err(error) => {
                    self.next_try = Some(Instant::now() + self.reload);
                    let program = self.process.words.first().cloned().unwrap_or_default();
                    let problem = format!("cannot start {}: {error}", program.display());
                    return Outcome::Answer(Answer::Absent(problem));
                }
            }
        }
        let Some(running) = &self.running else {
            return Outcome::Paused;
        };
        let answer = match ask(running, self.deadline * SILENCE, stop) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Outcome::Stopped,
            Err(error) => Answer::Absent(format!(
                "the process that calls the management library is gone: {error}"
            )),
        };
        match &answer {
            Answer::Seen { .. } => {
                self.stuck_in_a_row = 0;
                return Outcome::Answer(answer);
            }
            // Its driver was unloaded or replaced: only a library that is loaded anew finds the next one.
            Answer::Absent(_) => self.next_try = Some(Instant::now() + self.reload),
            Answer::Stuck(_) => {
                let pause = FIRST_PAUSE.saturating_mul(1 << self.stuck_in_a_row.min(16));
                self.stuck_in_a_row += 1;
                self.next_try = Some(Instant::now() + pause.min(self.reload));
            }
        }
        self.end();
        Outcome::Answer(answer)
    }

    fn start(&self) -> io::Result<Running> {
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
        Ok(Running { child, socket: ours })
    }

    /// Kills the process; leaves it behind when it does not go.
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

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Asks and waits, in small steps so that a stop is heard; `None` when it was.
fn ask(running: &Running, silence: Duration, stop: &Stop) -> io::Result<Option<Answer>> {
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
                    return Ok(Some(Answer::Stuck("the process that makes the calls".to_owned())));
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

    fn look(words: &[&str], deadline: Duration) -> Outcome {
        let process = Process {
            words: words.iter().map(OsString::from).collect(),
            environment: Vec::new(),
        };
        Worker::new(process, deadline, Duration::ZERO).look(&Stop::default())
    }

    fn problem(words: &[&str]) -> String {
        match look(words, Duration::from_secs(20)) {
            Outcome::Answer(Answer::Absent(problem)) => problem,
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
        let stuck = Answer::Stuck("the process that makes the calls".to_owned());
        assert_eq!(
            look(&["sleep", "600"], Duration::from_millis(50)),
            Outcome::Answer(stuck)
        );
    }
}
