//! Python stacks, read by the py-spy library in a separate process.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use rankguard_model::ProcessExit;
use serde::{Deserialize, Serialize};

use crate::bounded::{self, RunEnd, RunLimits};

/// Time limit for one process. Finding the interpreter means reading the symbols of a large file.
const DEADLINE: Duration = Duration::from_secs(10);
/// Address space limit of the reader, bytes: it maps the interpreter's files, which are large, and reads little of
/// them.
const MEMORY: u64 = 4 << 30;
/// Most threads, and most frames of each, that are returned.
const THREADS: usize = 256;
const FRAMES: usize = 256;

/// Python thread with its frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PythonThread {
    /// Thread id of the kernel, if known.
    pub(super) id: Option<u32>,
    pub(super) name: String,
    /// Frames, outermost first: `train_step (train.py:88)`.
    pub(super) frames: Vec<String>,
}

impl PythonThread {
    /// True for the main thread of the process.
    pub(super) fn is_main(&self, pid: u32) -> bool {
        self.id.map_or(self.name == "MainThread", |id| id == pid)
    }
}

/// Runs the reader and returns the Python threads of a process, or a message with the reason for their absence.
pub(super) fn ask(words: &[OsString], pid: u32) -> Result<Vec<PythonThread>, String> {
    let mut words = words.to_vec();
    words.push(pid.to_string().into());
    let bounds = RunLimits {
        deadline: DEADLINE,
        cpu_s: None,
        memory: Some(MEMORY),
    };
    let outcome = bounded::run(&words, bounds).map_err(|problem| problem.to_string())?;
    match outcome.end {
        RunEnd::Itself(ProcessExit::Code(0)) => {}
        RunEnd::Deadline => return Err(format!("not read within {} s", DEADLINE.as_secs())),
        _ => {
            let why = outcome.stderr.lines().rev().find(|line| !line.trim().is_empty());
            return Err(why.unwrap_or("the reader failed without a word").trim().to_owned());
        }
    }
    let threads: Result<Vec<PythonThread>, _> = outcome.stdout.lines().map(serde_json::from_str).collect();
    match threads {
        Ok(threads) if !threads.is_empty() => Ok(threads),
        Ok(_) => Err("it has no Python thread".to_owned()),
        // Only the beginning of very long output is retained; its complete lines are used.
        Err(_) => {
            let whole: Vec<PythonThread> = outcome
                .stdout
                .lines()
                .map_while(|line| serde_json::from_str(line).ok())
                .collect();
            if whole.is_empty() {
                Err("what the reader says cannot be understood".to_owned())
            } else {
                Ok(whole)
            }
        }
    }
}

/// Writes the Python threads of a process, one JSON object a line, the main thread first. The process is neither
/// stopped nor attached to: a stack that changes during the read may be wrong or absent.
///
/// # Errors
///
/// A message for people: the process is not Python, its version is unknown, or this user may not read it.
pub fn serve_stack_calls(pid: u32, out: &mut impl Write) -> Result<(), String> {
    for thread in threads(pid)? {
        let line = serde_json::to_string(&thread).map_err(|problem| problem.to_string())?;
        writeln!(out, "{line}").map_err(|problem| problem.to_string())?;
    }
    Ok(())
}

fn threads(pid: u32) -> Result<Vec<PythonThread>, String> {
    let config = py_spy::Config {
        blocking: py_spy::config::LockingStrategy::NonBlocking,
        ..py_spy::Config::default()
    };
    // The causes are listed from the outermost to the innermost.
    let failed = |problem: &dyn std::fmt::Display| problem.to_string().replace('\n', " ");
    let number = py_spy::Pid::try_from(pid).map_err(|problem| failed(&problem))?;
    let mut spy = py_spy::PythonSpy::new(number, &config).map_err(|problem| failed(&format!("{problem:#}")))?;
    let traces = spy
        .get_stack_traces()
        .map_err(|problem| failed(&format!("{problem:#}")))?;
    let mut threads: Vec<PythonThread> = traces
        .into_iter()
        .take(THREADS)
        .map(|trace| {
            let frames = trace.frames.iter().take(FRAMES).rev();
            let told = frames.map(|frame| {
                let file = frame.short_filename.as_ref().unwrap_or(&frame.filename);
                format!("{} ({file}:{})", frame.name, frame.line)
            });
            PythonThread {
                id: trace.os_thread_id.and_then(|id| u32::try_from(id).ok()),
                frames: told.collect(),
                name: trace.thread_name.unwrap_or_else(|| "without a name".to_owned()),
            }
        })
        .collect();
    threads.sort_by_key(|thread| !thread.is_main(pid));
    Ok(threads)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    const PROGRAM: &str = "
import sys, threading
def wait_for_peer():
    sys.stdin.read(1)
def train():
    print('ready', flush=True)
    wait_for_peer()
held = threading.Event()
def load():
    held.wait()
threading.Thread(target=load, name='loader', daemon=True).start()
train()
";

    #[test]
    fn a_python_that_waits_is_read_without_stopping_it() {
        let started = Command::new("python3")
            .args(["-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut python) = started else {
            eprintln!("SKIPPED: there is no python3 here");
            return;
        };
        let mut line = String::new();
        BufReader::new(python.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let wanted = |threads: &[PythonThread]| {
            let main: Vec<&str> = threads[0]
                .frames
                .iter()
                .map(|frame| frame.split(' ').next().unwrap())
                .collect();
            main.ends_with(&["train", "wait_for_peer"]) && threads.iter().any(|thread| thread.name == "loader")
        };
        // The process may not have reached the call yet.
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        let pid = python.id();
        let mut read = threads(pid);
        while !read.as_ref().is_ok_and(|threads| wanted(threads)) && std::time::Instant::now() < deadline {
            read = threads(pid);
        }
        python.kill().unwrap();
        python.wait().unwrap();
        match read {
            Err(why) if why.contains("ermission") => eprintln!("SKIPPED: this user may not read it: {why}"),
            read => assert!(read.as_ref().is_ok_and(|threads| wanted(threads)), "{read:?}"),
        }
    }

    #[test]
    fn what_is_no_python_and_what_is_not_there_are_told_in_words() {
        let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
        let told = threads(sleeper.id());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(told.is_err_and(|why| !why.contains('\n') && !why.is_empty()));
        assert!(threads(u32::MAX).is_err());
    }

    #[test]
    fn a_reader_that_fails_hangs_up_or_talks_nonsense_is_told() {
        let ask = |script: &str| {
            let words = ["sh", "-c", script, "reader"].map(OsString::from);
            ask(&words, 7)
        };
        assert_eq!(
            ask("echo 'Error: no symbols' >&2; exit 1"),
            Err("Error: no symbols".to_owned())
        );
        assert!(ask("echo nonsense").is_err());
        assert!(ask("kill -SEGV $$").is_err());
        assert_eq!(ask("true"), Err("it has no Python thread".to_owned()));
        let line = r#"{"id":7,"name":"MainThread","frames":["a (b.py:1)"]}"#;
        let cut = ask(&format!("echo '{line}'; echo '{{\"id\":8,'")).unwrap();
        assert!(cut.len() == 1 && cut[0].is_main(7), "{cut:?}");
    }
}
