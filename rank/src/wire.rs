//! Frames and file descriptors over a Unix stream socket, with a deadline on every wait.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rankguard_proto::frame::{self, FrameReader};
use rankguard_proto::v1::{CheckpointCalled, CheckpointFailed, FromRank, ToRank, from_rank, to_rank};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, recvmsg, send, socket_with,
};

use crate::ClientError;
use crate::interrupt::{CHECK_INTERVAL, check_interrupts};

/// Descriptors that may ride with one read. The protocol sends one at a time.
const FDS_A_READ: usize = 4;

/// Pause between two attempts to connect while the queue of the agent's socket is full.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// What the agent sends without a question.
#[derive(Debug)]
pub(crate) enum AgentNotice {
    /// A call for a checkpoint, or another rule.
    Called(CheckpointCalled),
    /// A checkpoint attempt is void.
    Failed(CheckpointFailed),
}

/// Connects to the socket at `path` within `limit`.
pub(crate) fn connect(path: &Path, limit: Duration) -> Result<UnixStream, ClientError> {
    let until = Instant::now() + limit;
    let refused = |errno: Errno| ClientError::Connect {
        path: path.to_owned(),
        source: errno.into(),
    };
    let address = SocketAddrUnix::new(path).map_err(refused)?;
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(refused)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {
                let stream = UnixStream::from(socket);
                let blocking = stream.set_nonblocking(false);
                blocking.map_err(|source| ClientError::Lost { source })?;
                return Ok(stream);
            }
            // The queue of connections is full, or a signal arrived.
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < until => {}
            Err(Errno::AGAIN) => return Err(refused(Errno::TIMEDOUT)),
            Err(errno) => return Err(refused(errno)),
        }
        check_interrupts()?;
        std::thread::sleep(CONNECT_PAUSE);
    }
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: UnixStream,
    reader: FrameReader,
    fds: VecDeque<OwnedFd>,
    /// Notices that were read and not yet taken: they come between a question and its answer, too.
    notices: VecDeque<AgentNotice>,
    /// Bytes of frames that the socket did not take yet: a frame that was begun must be finished.
    unsent: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            reader: FrameReader::new(),
            fds: VecDeque::new(),
            notices: VecDeque::new(),
            unsent: Vec::new(),
        }
    }

    /// Sends a message, waiting for room until `until`.
    pub(crate) fn send(&mut self, kind: from_rank::Kind, until: Instant) -> Result<(), ClientError> {
        self.unsent.extend(frame::encode(&FromRank { kind: Some(kind) }));
        while !self.flush()? {
            self.wait(PollFlags::OUT, until, "the agent to read")?;
        }
        Ok(())
    }

    /// Sends a message if the socket has room now; gives whether it was taken.
    pub(crate) fn offer(&mut self, kind: from_rank::Kind) -> Result<bool, ClientError> {
        if !self.flush()? {
            return Ok(false);
        }
        self.unsent.extend(frame::encode(&FromRank { kind: Some(kind) }));
        self.flush()?;
        Ok(true)
    }

    /// Writes what the socket takes; gives whether that was all.
    fn flush(&mut self) -> Result<bool, ClientError> {
        while !self.unsent.is_empty() {
            match send(&self.stream, &self.unsent, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(ClientError::Lost { source: errno.into() }),
            }
        }
        Ok(true)
    }

    /// The next message, waited for until `until`.
    pub(crate) fn receive(&mut self, until: Instant, what: &'static str) -> Result<to_rank::Kind, ClientError> {
        loop {
            match self.reader.next::<ToRank>().map_err(ClientError::Frame)? {
                Some(ToRank { kind: Some(kind) }) => {
                    if let Some(answer) = self.queue_notice(kind) {
                        return Ok(answer);
                    }
                }
                Some(ToRank { kind: None }) => return Err(ClientError::Unknown),
                None => {
                    self.wait(PollFlags::IN, until, what)?;
                    self.read()?;
                }
            }
        }
    }

    /// Queues a notice; returns the message where it is an answer.
    fn queue_notice(&mut self, kind: to_rank::Kind) -> Option<to_rank::Kind> {
        let notice = match kind {
            to_rank::Kind::Called(called) => AgentNotice::Called(called),
            to_rank::Kind::Failed(failed) => AgentNotice::Failed(failed),
            answer => return Some(answer),
        };
        self.notices.push_back(notice);
        None
    }

    /// The oldest notice that is there already; never waits.
    pub(crate) fn notice(&mut self) -> Result<Option<AgentNotice>, ClientError> {
        if self.notices.is_empty() {
            self.read()?;
            while let Some(message) = self.reader.next::<ToRank>().map_err(ClientError::Frame)? {
                let kind = message.kind.ok_or(ClientError::Unknown)?;
                if self.queue_notice(kind).is_some() {
                    // An answer without a question.
                    return Err(ClientError::Unknown);
                }
            }
        }
        Ok(self.notices.pop_front())
    }

    /// The oldest descriptor received and not yet taken.
    pub(crate) fn take_fd(&mut self) -> Option<OwnedFd> {
        self.fds.pop_front()
    }

    fn read(&mut self) -> Result<(), ClientError> {
        let mut bytes = [0; 16 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_A_READ))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let read = match recvmsg(&self.stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(read) => read.bytes,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(ClientError::Lost { source: errno.into() }),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if read == 0 {
            let source = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(ClientError::Lost { source });
        }
        self.reader.push(&bytes[..read]);
        Ok(())
    }

    fn wait(&self, flags: PollFlags, until: Instant, what: &'static str) -> Result<(), ClientError> {
        loop {
            check_interrupts()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::Deadline { what });
            }
            let mut fds = [PollFd::new(&self.stream, flags)];
            match poll(&mut fds, Some(&timespec(left.min(CHECK_INTERVAL)))) {
                Ok(0) | Err(Errno::INTR) => {}
                // A hang-up counts as ready: the read or write that follows says what happened.
                Ok(_) => return Ok(()),
                Err(errno) => return Err(ClientError::Lost { source: errno.into() }),
            }
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
