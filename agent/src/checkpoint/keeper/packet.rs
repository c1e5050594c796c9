//! What agent and keeper say to each other: one packet a word, with the file that it speaks of, over a Unix socket that keeps
//! packets apart.

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

/// The socket's name in the agent's directory.
const NAME: &str = "arenas.sock";

/// Longest wait for the other side to take a packet (RG-9).
const SAY_LIMIT: Duration = Duration::from_secs(2);

/// What an arena was made for and with: the agent that inherits it believes this and not the memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    /// One of its own.
    pub(super) number: u64,
    pub(crate) job: JobId,
    pub(crate) local_rank: u32,
    pub(crate) slots: u32,
    pub(crate) image_bytes: u64,
    /// Least bytes of a slot's description area; 0 for what is usual for the image.
    #[serde(default)]
    pub(crate) meta_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
    /// Here is an arena, with its file: from the agent to be kept, to the agent as it was kept.
    Arena(Label),
    /// That is all that is kept.
    All,
    /// The arena of this number is not needed any more.
    LetGo(u64),
    /// Nothing is needed any more.
    End,
}

/// One end of the socket.
#[derive(Debug)]
pub(super) struct Channel(PacketChannel);

/// Where agents find the keeper of a directory.
pub(super) fn place(state_dir: &Path) -> PathBuf {
    state_dir.join(NAME)
}

/// The socket's address, through the directory's descriptor: a path of a Unix socket has room for 108 bytes.
fn address(state_dir: &Path) -> io::Result<(SocketAddrUnix, File)> {
    let folder = File::open(state_dir)?;
    let path = format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd());
    Ok((SocketAddrUnix::new(path)?, folder))
}

/// A socket that agents can connect to from now on.
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

/// Waits at most `limit` for somebody to connect. Whoever is not of our own user is sent away.
pub(super) fn accept(listener: BorrowedFd<'_>, limit: Duration) -> io::Result<Option<Channel>> {
    if !wait_ready(listener, PollFlags::IN, limit)? {
        return Ok(None);
    }
    let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
    let ours = socket_peercred(&socket)?.uid == rustix::process::geteuid();
    Ok(ours.then(|| Channel(socket.into())))
}

impl Channel {
    /// Connects to the keeper of a directory; `None` where there is none.
    pub(super) fn open(state_dir: &Path) -> io::Result<Option<Self>> {
        let (address, _folder) = address(state_dir)?;
        let socket = new_packet_socket()?;
        match connect(&socket, &address) {
            Ok(()) => Ok(Some(Self(socket.into()))),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(problem) => Err(problem.into()),
        }
    }

    pub(super) fn say(&self, word: &Word, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.0.send(word, file.as_slice(), SAY_LIMIT)
    }

    /// The next word and the file that came with it, waited for as long as `limit`; `None` when the other side is gone.
    pub(super) fn hear(&self, limit: Duration) -> io::Result<Option<(Word, Option<OwnedFd>)>> {
        let received = self.0.receive(limit)?;
        Ok(received.map(|(word, files)| (word, files.into_iter().next())))
    }
}
