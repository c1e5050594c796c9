//! Local status socket in the state directory: the agent's view as one JSON document per connection.
//!
//! Only the agent's own user and root may query: the file's mode allows no other user, and the peer's credentials are
//! checked as well, because the mode is set only after the file exists. The path goes through the directory's
//! descriptor, so that a state directory may have a longer name than a socket address can hold.

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::snapshot::ViewSource;
use crate::accept_loop::attend;
use crate::views::{AgentQueryError, AgentView};

const NAME: &str = "agent.sock";
/// Maximum concurrent connections.
const CONNECTIONS: usize = 8;
/// Deadline for a client to read the response.
const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum bytes of a response: some hundred evidence records have a few kilobytes each.
const ANSWER_BYTES: u64 = 64 << 20;
/// Local status socket; its file is removed on drop.
#[derive(Debug)]
pub(crate) struct StatusSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

/// Returns a short path of a socket in a folder; valid while the folder's handle is open.
pub(crate) fn through(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

/// Listens on a socket that only its own user may open; replaces the socket of a dead process.
pub(crate) fn listen(state_dir: &Path, name: &str) -> io::Result<(PathBuf, UnixListener)> {
    let path = state_dir.join(name);
    let _ = fs::remove_file(&path);
    let folder = File::open(state_dir)?;
    let listener = UnixListener::bind(through(&folder, name))?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok((path, listener))
}

/// Returns true if the peer is this process's user or root, by the kernel's credentials.
pub(crate) fn is_own_user(stream: &UnixStream) -> io::Result<bool> {
    let asker = stream.peer_cred()?.uid();
    Ok(asker == 0 || asker == geteuid().as_raw())
}

impl StatusSocket {
    /// Starts to serve. The caller owns the state directory, so an existing socket file belongs to a dead agent.
    pub(crate) fn start(state_dir: &Path, snapshots: ViewSource) -> io::Result<Self> {
        let (path, listener) = listen(state_dir, NAME)?;
        let task = tokio::spawn(attend(listener, CONNECTIONS, DEADLINE, move |stream| {
            let snapshots = snapshots.clone();
            async move {
                // The client is gone or reads too slowly; other connections are unaffected.
                let _ = answer(stream, &snapshots).await;
            }
        }));
        Ok(Self { path, task })
    }

    /// Stops the socket and closes its connections.
    pub(crate) async fn end(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.path);
    }
}

async fn answer(mut stream: UnixStream, snapshots: &ViewSource) -> io::Result<()> {
    if !is_own_user(&stream)? {
        return Ok(());
    }
    let document = serde_json::to_vec(&snapshots.take())?;
    stream.write_all(&document).await?;
    stream.shutdown().await
}

/// Queries the agent of a state directory. Waits at most `deadline`.
pub fn ask(state_dir: &Path, deadline: Duration) -> Result<AgentView, AgentQueryError> {
    let path = || state_dir.to_owned();
    let absent = |source| AgentQueryError::Absent { path: path(), source };
    let broken = |source| AgentQueryError::Broken { path: path(), source };
    let folder = File::open(state_dir).map_err(absent)?;
    let mut stream = std::os::unix::net::UnixStream::connect(through(&folder, NAME)).map_err(absent)?;
    let until = Instant::now() + deadline;
    let mut document = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(broken(io::ErrorKind::TimedOut.into()));
        }
        stream.set_read_timeout(Some(left)).map_err(broken)?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => document.extend_from_slice(&buffer[..count]),
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            Err(problem) => return Err(broken(problem)),
        }
        if document.len() as u64 > ANSWER_BYTES {
            return Err(broken(io::Error::other("the answer does not end")));
        }
    }
    if document.is_empty() {
        let refused = io::Error::new(io::ErrorKind::PermissionDenied, "it answers its own user and root only");
        return Err(broken(refused));
    }
    serde_json::from_slice(&document).map_err(|source| AgentQueryError::Foreign { path: path(), source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::outlets::tests::snapshots;

    #[tokio::test]
    async fn an_agent_tells_itself_to_who_asks_in_its_directory_however_long_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a".repeat(120));
        fs::create_dir_all(&deep).unwrap();
        let snapshots = snapshots(&deep);
        let socket = StatusSocket::start(&deep, snapshots.clone()).unwrap();
        let mode = fs::metadata(deep.join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let asked = deep.clone();
        let told = tokio::task::spawn_blocking(move || ask(&asked, Duration::from_secs(60)));
        let told = told.await.unwrap().unwrap();
        let mut wanted = snapshots.take();
        wanted.now = told.now;
        wanted.lease.expires_in_ms = told.lease.expires_in_ms;
        assert_eq!(told, wanted);
        socket.end().await;
        assert!(!deep.join(NAME).exists());
        assert!(matches!(
            ask(&deep, Duration::from_secs(1)),
            Err(AgentQueryError::Absent { .. })
        ));
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_foreign_answer_refused() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join(NAME);
        let stale = std::os::unix::net::UnixListener::bind(&place).unwrap();
        let serve = std::thread::spawn(move || {
            let (mut stream, _) = stale.accept().unwrap();
            io::Write::write_all(&mut stream, b"{\"node\": 3}").unwrap();
        });
        let told = ask(folder.path(), Duration::from_secs(60));
        assert!(matches!(told, Err(AgentQueryError::Foreign { .. })), "{told:?}");
        serve.join().unwrap();
        assert!(matches!(
            ask(folder.path(), Duration::from_secs(60)),
            Err(AgentQueryError::Absent { .. })
        ));
        let socket = StatusSocket::start(folder.path(), snapshots(folder.path())).unwrap();
        let asked = folder.path().to_owned();
        let told = tokio::task::spawn_blocking(move || ask(&asked, Duration::from_secs(60)));
        told.await.unwrap().unwrap();
        socket.end().await;
    }
}
