//! Packets between the agent and its helper processes: one JSON message with files, over a Unix socket that preserves
//! packet boundaries (`SOCK_SEQPACKET`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socket_with, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum bytes of a message.
const PACKET_BYTES_MAX: usize = 16 << 10;

/// Maximum files of a message.
const FILES_MAX: usize = 4;

/// Endpoint of a packet socket.
#[derive(Debug)]
pub(crate) struct PacketChannel(OwnedFd);

impl From<OwnedFd> for PacketChannel {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for PacketChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Creates a socket that is not connected.
pub(crate) fn new_packet_socket() -> io::Result<OwnedFd> {
    let family = AddressFamily::UNIX;
    let kind = SocketType::SEQPACKET;
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

impl PacketChannel {
    /// Creates a connected pair: this end, and the socket of the other end.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let family = AddressFamily::UNIX;
        let kind = SocketType::SEQPACKET;
        let (own, other) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Self(own), other))
    }

    /// Sends a message and waits at most `limit` for room in the socket.
    pub(crate) fn send<M: Serialize>(&self, message: &M, files: &[BorrowedFd<'_>], limit: Duration) -> io::Result<()> {
        self.send_bytes(&serde_json::to_vec(message)?, files, limit)
    }

    /// Sends a text that is not a message, as [`Self::send`] does.
    pub(crate) fn send_text(&self, text: &[u8], limit: Duration) -> io::Result<()> {
        self.send_bytes(text, &[], limit)
    }

    fn send_bytes(&self, text: &[u8], files: &[BorrowedFd<'_>], limit: Duration) -> io::Result<()> {
        if text.len() > PACKET_BYTES_MAX || files.len() > FILES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        let until = Instant::now() + limit;
        loop {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.0, &[IoSlice::new(text)], &mut control, flags) {
                // The kernel accepts a packet whole or not at all.
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if !wait_ready(self.0.as_fd(), PollFlags::OUT, left)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(problem) => return Err(problem.into()),
            }
        }
    }

    /// Receives the next message and its files within `limit`; `None` once the other end is closed.
    pub(crate) fn receive<M: DeserializeOwned>(&self, limit: Duration) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        if !wait_ready(self.0.as_fd(), PollFlags::IN, limit)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut text = vec![0; PACKET_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                files.extend(more);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet is too long"));
        }
        Ok(Some((serde_json::from_slice(&text[..received.bytes])?, files)))
    }
}

/// Waits until a socket is ready, at most `limit`. A hang-up counts as ready.
pub(crate) fn wait_ready(socket: BorrowedFd<'_>, flags: PollFlags, limit: Duration) -> io::Result<bool> {
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
