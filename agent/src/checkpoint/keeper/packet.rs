//! Messages between agent and keeper: one packet a message, with the file that it refers to, over a Unix socket that
//! preserves packet boundaries.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rankguard_model::JobId;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketAddrUnix, SocketFlags, accept_with, bind, connect, listen};
use serde::{Deserialize, Serialize};

use crate::packets::{PacketChannel, new_packet_socket, wait_ready};

/// Name of the socket in the agent's directory.
const NAME: &str = "arenas.sock";

/// Longest wait for the peer to accept a packet (RG-9).
const SAY_LIMIT: Duration = Duration::from_secs(2);

/// Parameters of an arena. An agent that inherits the arena trusts them, not the memory's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArenaLabel {
    /// Unique number of the arena.
    pub(super) number: u64,
    pub(crate) job: JobId,
    pub(crate) local_rank: u32,
    pub(crate) slots: u32,
    pub(crate) image_bytes: u64,
    /// Minimum bytes of a slot's description area; 0 selects the default for the image size.
    #[serde(default)]
    pub(crate) meta_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum KeeperMessage {
    /// Arena with its file: sent by the agent for registration, and by the keeper at takeover.
    Arena(ArenaLabel),
    /// Ends the keeper's list of arenas.
    All,
    /// The arena of this number is released.
    LetGo(u64),
    /// Ends the keeper.
    End,
}

/// Packet socket of agent or keeper.
#[derive(Debug)]
pub(super) struct KeeperChannel(PacketChannel);

/// Returns the path of the keeper's socket in a directory.
pub(super) fn place(state_dir: &Path) -> PathBuf {
    state_dir.join(NAME)
}

/// Returns the socket's address, through the directory's descriptor: the path of a Unix socket is limited to 108
/// bytes.
fn address(state_dir: &Path) -> io::Result<(SocketAddrUnix, File)> {
    let folder = File::open(state_dir)?;
    let path = format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd());
    Ok((SocketAddrUnix::new(path)?, folder))
}

/// Opens the socket that agents connect to.
pub(super) fn listen_at(state_dir: &Path) -> io::Result<OwnedFd> {
    let (address, _folder) = address(state_dir)?;
    let place = place(state_dir);
    match fs::remove_file(&place) {
        Err(problem) if problem.kind() != io::ErrorKind::NotFound => return Err(problem),
        _ => {}
    }
    let socket = new_packet_socket()?;
    bind(&socket, &address)?;
    fs::set_permissions(place, Permissions::from_mode(0o600))?;
    listen(&socket, 4)?;
    Ok(socket)
}

/// Waits at most `limit` for a connection. A peer of another user is refused.
pub(super) fn accept(listener: BorrowedFd<'_>, limit: Duration) -> io::Result<Option<KeeperChannel>> {
    if !wait_ready(listener, PollFlags::IN, limit)? {
        return Ok(None);
    }
    let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
    let ours = socket_peercred(&socket)?.uid == rustix::process::geteuid();
    Ok(ours.then(|| KeeperChannel(socket.into())))
}

impl KeeperChannel {
    /// Connects to the keeper of a directory; `None` if there is none.
    pub(super) fn open(state_dir: &Path) -> io::Result<Option<Self>> {
        let (address, _folder) = address(state_dir)?;
        let socket = new_packet_socket()?;
        match connect(&socket, &address) {
            Ok(()) => Ok(Some(Self(socket.into()))),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(problem) => Err(problem.into()),
        }
    }

    pub(super) fn send(&self, word: &KeeperMessage, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.0.send(word, file.as_slice(), SAY_LIMIT)
    }

    /// Receives the next message and its file within `limit`; `None` once the peer has closed the socket.
    pub(super) fn receive(&self, limit: Duration) -> io::Result<Option<(KeeperMessage, Option<OwnedFd>)>> {
        let received = self.0.receive(limit)?;
        Ok(received.map(|(word, files)| (word, files.into_iter().next())))
    }
}
