//! What agent and keeper say to each other: one packet a word, with the file that it speaks of, over a Unix socket that keeps
//! packets apart.

use std::fs::{self, File, Permissions};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rankguard_model::JobId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recvmsg, sendmsg, socket_with,
};
use serde::{Deserialize, Serialize};

/// The socket's name in the agent's directory.
const NAME: &str = "arenas.sock";

/// Longest packet: a job's name is most of it.
const PACKET_BYTES_MAX: usize = 16 << 10;

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
pub(super) struct Channel(OwnedFd);

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

fn new_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// A socket that agents can connect to from now on.
pub(super) fn listen_at(state_dir: &Path) -> io::Result<OwnedFd> {
    let (address, _folder) = address(state_dir)?;
    let place = place(state_dir);
    match fs::remove_file(&place) {
        Err(problem) if problem.kind() != io::ErrorKind::NotFound => return Err(problem),
        _ => {}
    }
    let socket = new_socket()?;
    bind(&socket, &address)?;
    fs::set_permissions(place, Permissions::from_mode(0o600))?;
    listen(&socket, 4)?;
    Ok(socket)
}

/// Waits at most `limit` for somebody to connect. Whoever is not of our own user is sent away.
pub(super) fn accept(listener: BorrowedFd<'_>, limit: Duration) -> io::Result<Option<Channel>> {
    if !ready(listener, PollFlags::IN, limit)? {
        return Ok(None);
    }
    let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
    let ours = socket_peercred(&socket)?.uid == rustix::process::geteuid();
    Ok(ours.then_some(Channel(socket)))
}

impl Channel {
    /// Connects to the keeper of a directory; `None` where there is none.
    pub(super) fn open(state_dir: &Path) -> io::Result<Option<Self>> {
        let (address, _folder) = address(state_dir)?;
        let socket = new_socket()?;
        match connect(&socket, &address) {
            Ok(()) => Ok(Some(Self(socket))),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(problem) => Err(problem.into()),
        }
    }

    pub(super) fn say(&self, word: &Word, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let text = serde_json::to_vec(word)?;
        if text.len() > PACKET_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        let until = Instant::now() + SAY_LIMIT;
        loop {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, flags) {
                // A packet is taken whole or not at all.
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if !ready(self.0.as_fd(), PollFlags::OUT, left)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(problem) => return Err(problem.into()),
            }
        }
    }

    /// The next word and the file that came with it, waited for as long as `limit`; `None` when the other side is gone.
    pub(super) fn hear(&self, limit: Duration) -> io::Result<Option<(Word, Option<OwnedFd>)>> {
        if !ready(self.0.as_fd(), PollFlags::IN, limit)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut text = vec![0; PACKET_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let heard = recvmsg(&self.0, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        if heard.bytes == 0 {
            return Ok(None);
        }
        if heard.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet is too long"));
        }
        Ok(Some((serde_json::from_slice(&text[..heard.bytes])?, file)))
    }
}

/// Whether a socket is ready within `limit`. A hang-up counts: what follows says what happened.
fn ready(socket: BorrowedFd<'_>, flags: PollFlags, limit: Duration) -> io::Result<bool> {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&socket, flags)], Some(&timeout)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(problem) => return Err(problem.into()),
        }
    }
}
