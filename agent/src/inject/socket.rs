//! Injection socket in the state directory: one request a connection, as a line of JSON, with one answer.
//!
//! It exists only if injection is enabled, and serves only its own user and root.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::FaultInjection;
use super::executor::InjectionExecutor;
use crate::accept_loop::attend;
use crate::outlets::{is_own_user, listen, through};
use crate::views::InjectionRecord;

const NAME: &str = "inject.sock";
/// Most concurrent connections.
const CONNECTIONS: usize = 4;
/// Time limit for a connection.
const DEADLINE: Duration = Duration::from_secs(10);
/// Longest request, bytes: as many lines as one injection may have, and their quotes.
const QUESTION_BYTES: u64 = 16 << 20;
/// Longest answer, bytes.
const ANSWER_BYTES: u64 = 1 << 20;
/// Answer to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum InjectionAnswer {
    Done(InjectionRecord),
    Refused(String),
}

/// Failure of an injection request.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// No agent runs in the state directory, or it does not allow injection.
    #[error("no agent that allows injection answers in the state directory {path}")]
    Absent {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The agent did not answer.
    #[error("the agent in the state directory {path} did not say what became of it")]
    Broken {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The agent rejected the request, with its reason.
    #[error("the agent refused: {0}")]
    Refused(String),
}

/// Listening socket; dropping it removes the file.
#[derive(Debug)]
pub(crate) struct InjectSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl InjectSocket {
    /// Starts to listen. The caller owns the state directory.
    pub(crate) fn start(state_dir: &Path, desk: InjectionExecutor) -> io::Result<Self> {
        let (path, listener) = listen(state_dir, NAME)?;
        let task = tokio::spawn(attend(listener, CONNECTIONS, DEADLINE, move |stream| {
            let desk = desk.clone();
            async move {
                // The client has gone or reads too slowly; other connections are not affected.
                let _ = converse(stream, desk).await;
            }
        }));
        Ok(Self { path, task })
    }

    /// Removes the socket file that an earlier agent with injection left.
    pub(crate) fn absent(state_dir: &Path) {
        let _ = std::fs::remove_file(state_dir.join(NAME));
    }

    /// Stops the task, and waits until it has released everything.
    pub(crate) async fn end(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for InjectSocket {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn converse(mut stream: UnixStream, desk: InjectionExecutor) -> io::Result<()> {
    if !is_own_user(&stream)? {
        return Ok(());
    }
    let (reading, mut writing) = stream.split();
    let mut question = Vec::new();
    BufReader::new(reading.take(QUESTION_BYTES))
        .read_until(b'\n', &mut question)
        .await?;
    let answer = match serde_json::from_slice::<FaultInjection>(&question) {
        Ok(wanted) => {
            tracing::warn!(kind = wanted.kind(), "a fault is injected");
            let done = tokio::task::spawn_blocking(move || desk.carry_out(wanted)).await;
            done.unwrap_or_else(|_| Err("the desk failed".to_owned()))
                .map_or_else(InjectionAnswer::Refused, InjectionAnswer::Done)
        }
        Err(problem) => InjectionAnswer::Refused(format!("that is no injection: {problem}")),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    writing.write_all(&line).await?;
    writing.shutdown().await
}

/// Requests a fault from the agent that runs in a state directory. Waits at most for `deadline`.
pub fn inject(state_dir: &Path, wanted: &FaultInjection, deadline: Duration) -> Result<InjectionRecord, InjectError> {
    let path = || state_dir.to_owned();
    let absent = |source| InjectError::Absent { path: path(), source };
    let broken = |source| InjectError::Broken { path: path(), source };
    let folder = File::open(state_dir).map_err(absent)?;
    let mut stream = std::os::unix::net::UnixStream::connect(through(&folder, NAME)).map_err(absent)?;
    stream.set_write_timeout(Some(deadline)).map_err(broken)?;
    let mut question = serde_json::to_vec(wanted).map_err(|problem| broken(problem.into()))?;
    question.push(b'\n');
    let until = Instant::now() + deadline;
    // A client with the wrong user is disconnected without an answer.
    let asked = stream.write_all(&question);
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || answer.len() as u64 > ANSWER_BYTES {
            return Err(broken(io::ErrorKind::TimedOut.into()));
        }
        stream.set_read_timeout(Some(left)).map_err(broken)?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            Err(problem) if problem.kind() == io::ErrorKind::ConnectionReset => break,
            Err(problem) => return Err(broken(problem)),
        }
    }
    if answer.is_empty() {
        asked.map_err(broken)?;
        let refused = io::Error::new(io::ErrorKind::PermissionDenied, "it answers its own user and root only");
        return Err(broken(refused));
    }
    match serde_json::from_slice(&answer).map_err(|problem| broken(problem.into()))? {
        InjectionAnswer::Done(injected) => Ok(injected),
        InjectionAnswer::Refused(why) => Err(InjectError::Refused(why)),
    }
}
