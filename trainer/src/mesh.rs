//! Full mesh of connections between all ranks, and the one operation that all collectives are built on: every rank
//! sends every other a message and waits for theirs.
//!
//! One thread, non-blocking sockets, one `poll` over all of them: sending and receiving are concurrent, so no order of
//! ranks can deadlock, and a lost rank is detected at once even while another is waited for.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum bytes of a message, so that a foreign length cannot cause a large allocation.
const MESSAGE_BYTES_MAX: u64 = 1 << 30;
const HEADER_BYTES: usize = 24;

/// Collective operation of all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectiveOp {
    /// The ranks connect to each other.
    Rendezvous,
    /// Gradients are sent to the owners of the parameters.
    ReduceScatter,
    /// Updated parameters are sent to all ranks.
    AllGather,
    /// No rank continues before all ranks have arrived.
    Barrier,
}

const COLLECTIVES: [(CollectiveOp, &str); 4] = [
    (CollectiveOp::Rendezvous, "rendezvous"),
    (CollectiveOp::ReduceScatter, "reduce-scatter"),
    (CollectiveOp::AllGather, "all-gather"),
    (CollectiveOp::Barrier, "barrier"),
];

impl std::fmt::Display for CollectiveOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(COLLECTIVES[*self as usize].1)
    }
}

/// Failure of communication between ranks. All but `Refused` and `Mixed` are effects of another rank's end.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum MeshError {
    #[error("find the address of {host}")]
    Resolve { host: String, source: io::Error },
    #[error("listen on {address}")]
    Listen { address: String, source: io::Error },
    #[error("reach rank 0 at {address} within {waited_ms} ms")]
    Unreachable {
        address: SocketAddr,
        waited_ms: u128,
        source: io::Error,
    },
    #[error("join the ranks: {address} refused, {verdict} (it is of generation {generation})")]
    Refused {
        address: SocketAddr,
        verdict: crate::handshake::HelloVerdict,
        generation: u64,
    },
    #[error("join the ranks: {missing:?} did not come within {waited_ms} ms")]
    Missing { missing: Vec<u32>, waited_ms: u128 },
    #[error("finish {op} {sequence}: lost rank {rank} at {address}")]
    Lost {
        op: CollectiveOp,
        sequence: u64,
        rank: u32,
        address: SocketAddr,
        source: io::Error,
    },
    #[error("finish {op} {sequence}: waited {waited_ms} ms for ranks {ranks:?}")]
    Late {
        op: CollectiveOp,
        sequence: u64,
        ranks: Vec<u32>,
        elements: (usize, usize),
        waited_ms: u128,
    },
    #[error("finish {op} {sequence}: rank {rank} is in another collective")]
    Mixed { op: CollectiveOp, sequence: u64, rank: u32 },
}

/// Connection to another rank.
#[derive(Debug)]
struct PeerLink {
    stream: TcpStream,
    address: SocketAddr,
}

/// Connections of this rank to all others.
#[derive(Debug)]
pub(crate) struct RankMesh {
    rank: usize,
    /// Connections by rank; `None` for this rank.
    links: Vec<Option<PeerLink>>,
    sequence: u64,
    deadline: Duration,
}

impl RankMesh {
    /// Creates a mesh from connected streams by rank, `None` for this rank.
    pub(crate) fn new(rank: usize, streams: Vec<Option<TcpStream>>, deadline: Duration) -> io::Result<Self> {
        let link = |stream: Option<TcpStream>| {
            let Some(stream) = stream else { return Ok(None) };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let address = stream.peer_addr()?;
            Ok(Some(PeerLink { stream, address }))
        };
        Ok(Self {
            rank,
            links: streams.into_iter().map(link).collect::<io::Result<_>>()?,
            sequence: 0,
            deadline,
        })
    }

    pub(crate) fn world_size(&self) -> usize {
        self.links.len()
    }

    /// Returns the error for a message that does not have the format of this collective.
    pub(crate) fn mixed(&self, op: CollectiveOp, rank: usize) -> MeshError {
        MeshError::Mixed {
            op,
            sequence: self.sequence,
            rank: rank as u32,
        }
    }

    /// Sets the deadline of later collectives.
    pub(crate) fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Waits until every rank has arrived.
    pub(crate) fn barrier(&mut self) -> Result<(), MeshError> {
        let nothing = vec![Vec::new(); self.world_size()];
        self.exchange(CollectiveOp::Barrier, nothing).map(drop)
    }

    /// Sends `outgoing[r]` to rank r and returns the messages of all ranks to this one, by rank; the rank's own
    /// message is returned unchanged.
    pub(crate) fn exchange(&mut self, op: CollectiveOp, outgoing: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, MeshError> {
        self.sequence += 1;
        let sequence = self.sequence;
        let start = Instant::now();
        let elements = (
            outgoing.iter().map(Vec::len).sum::<usize>() / 4,
            outgoing[self.rank].len() / 4,
        );
        let mut talks: Vec<MessageExchange> = outgoing
            .into_iter()
            .map(|bytes| MessageExchange::new(op, sequence, bytes))
            .collect();
        loop {
            let mut waiting = Vec::new();
            for (rank, talk) in talks.iter_mut().enumerate() {
                let Some(link) = &mut self.links[rank] else { continue };
                talk.advance(&mut link.stream).map_err(|problem| match problem {
                    MessageProblem::Io(source) => MeshError::Lost {
                        op,
                        sequence,
                        rank: rank as u32,
                        address: link.address,
                        source,
                    },
                    MessageProblem::Mixed => MeshError::Mixed {
                        op,
                        sequence,
                        rank: rank as u32,
                    },
                })?;
                if !talk.wants().is_empty() {
                    waiting.push(rank);
                }
            }
            if waiting.is_empty() {
                break;
            }
            let links = &self.links;
            let mut fds: Vec<PollFd<'_>> = waiting
                .iter()
                .filter_map(|&rank| Some(PollFd::new(&links[rank].as_ref()?.stream, talks[rank].wants())))
                .collect();
            if !ready(&mut fds, start + self.deadline) {
                return Err(MeshError::Late {
                    op,
                    sequence,
                    ranks: waiting.iter().map(|&rank| rank as u32).collect(),
                    elements,
                    waited_ms: start.elapsed().as_millis(),
                });
            }
        }
        let own = self.rank;
        let incoming = talks.into_iter().enumerate();
        Ok(incoming
            .map(|(rank, talk)| if rank == own { talk.outgoing } else { talk.incoming })
            .collect())
    }
}

/// Waits until any descriptor is ready; returns false at the deadline. A failure of `poll` itself counts as ready: the
/// read or write that follows returns the error.
pub(crate) fn ready(fds: &mut [PollFd<'_>], until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let time = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(fds, Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return true,
        }
    }
}

/// Exchange of one message each way.
struct MessageExchange {
    op: CollectiveOp,
    sequence: u64,
    head_out: [u8; HEADER_BYTES],
    outgoing: Vec<u8>,
    sent: usize,
    head_in: [u8; HEADER_BYTES],
    incoming: Vec<u8>,
    received: usize,
    /// Bytes of header and body; `None` until the header has arrived.
    expected: Option<usize>,
}

enum MessageProblem {
    Io(io::Error),
    Mixed,
}

impl MessageExchange {
    fn new(op: CollectiveOp, sequence: u64, outgoing: Vec<u8>) -> Self {
        let mut head_out = [0; HEADER_BYTES];
        head_out[..8].copy_from_slice(&(op as u64).to_le_bytes());
        head_out[8..16].copy_from_slice(&sequence.to_le_bytes());
        head_out[16..].copy_from_slice(&(outgoing.len() as u64).to_le_bytes());
        Self {
            op,
            sequence,
            head_out,
            outgoing,
            sent: 0,
            head_in: [0; HEADER_BYTES],
            incoming: Vec::new(),
            received: 0,
            expected: None,
        }
    }

    /// Returns the events to wait for; empty when both messages are transferred.
    fn wants(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::OUT, self.sent < HEADER_BYTES + self.outgoing.len());
        flags.set(PollFlags::IN, self.expected.is_none_or(|all| self.received < all));
        flags
    }

    /// Sends and receives as much as the socket allows now.
    fn advance(&mut self, stream: &mut TcpStream) -> Result<(), MessageProblem> {
        while self.wants().contains(PollFlags::OUT) {
            let head = IoSlice::new(&self.head_out[self.sent.min(HEADER_BYTES)..]);
            let body = IoSlice::new(&self.outgoing[self.sent.saturating_sub(HEADER_BYTES)..]);
            match done(stream.write_vectored(&[head, body])) {
                Ok(Some(sent)) => self.sent += sent,
                Ok(None) => break,
                // The peer cannot receive this message any more, so it will not finish this collective.
                Err(error) => return Err(MessageProblem::Io(error)),
            }
        }
        self.receive(stream)
    }

    fn receive(&mut self, stream: &mut TcpStream) -> Result<(), MessageProblem> {
        while self.wants().contains(PollFlags::IN) {
            // Never reads past the end of this message: the next one belongs to the next collective.
            let room = match self.expected {
                None => &mut self.head_in[self.received..],
                Some(_) => &mut self.incoming[self.received - HEADER_BYTES..],
            };
            match done(stream.read(room)).map_err(MessageProblem::Io)? {
                Some(received) => self.received += received,
                None => break,
            }
            if self.expected.is_none() && self.received == HEADER_BYTES {
                self.expect()?;
            }
        }
        Ok(())
    }

    fn expect(&mut self) -> Result<(), MessageProblem> {
        let [op, sequence, length] = [0, 8, 16].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&self.head_in[at..at + 8]);
            u64::from_le_bytes(word)
        });
        if op != self.op as u64 || sequence != self.sequence || length > MESSAGE_BYTES_MAX {
            return Err(MessageProblem::Mixed);
        }
        self.incoming = vec![0; length as usize];
        self.expected = Some(HEADER_BYTES + self.incoming.len());
        Ok(())
    }
}

/// Returns the bytes that were transferred; `None` if the socket is not ready, an error if it is closed.
fn done(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(n) => Ok(Some(n)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        // Nothing was transferred; retried after the next poll.
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(e) => Err(e),
    }
}
