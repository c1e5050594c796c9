//! Rendezvous of the ranks: rank 0 listens at the configured address, accepts all ranks and sends each the listen
//! addresses of ranks 1 and above; then each rank connects to the ranks below it and accepts those above it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use rankguard_rank::RankEnv;
use rustix::event::{PollFd, PollFlags};

use crate::handshake::{self, ADDRESS_BYTES, ANSWER_BYTES, HELLO_BYTES, HelloReply, HelloVerdict, PeerHello};
use crate::mesh::{CollectiveOp, MeshError, RankMesh, ready};

/// Pause between two attempts to connect to rank 0, which may not have started yet.
const RETRY: Duration = Duration::from_millis(20);

/// Maximum time from a connection to the end of its greeting of 48 bytes; slower peers are disconnected.
const GREETING_WAIT: Duration = Duration::from_secs(5);

/// Maximum number of callers with an incomplete greeting; beyond it the oldest is disconnected.
const CALLERS_MAX: usize = 256;

/// Connects this rank with all others within `deadline`, which then applies to each collective too. `settings` is the
/// hash of the settings that all ranks must share; `listener` is rank 0's, if the caller has bound it already. Returns
/// an error that names the missing ranks, or the peer that refused this rank.
pub(crate) fn join(
    env: &RankEnv,
    settings: u64,
    listener: Option<TcpListener>,
    deadline: Duration,
) -> Result<RankMesh, MeshError> {
    let world_size = env.world_size as usize;
    let rank = env.rank.0 as usize;
    let mut streams: Vec<Option<TcpStream>> = (0..world_size).map(|_| None).collect();
    if world_size > 1 {
        let begun = Instant::now();
        let call = RendezvousCall {
            env,
            settings,
            begun,
            until: begun + deadline,
        };
        if rank == 0 {
            call.collect(listener, &mut streams)?;
        } else {
            call.call_all(&mut streams)?;
        }
    }
    RankMesh::new(rank, streams, deadline).map_err(|source| MeshError::Listen {
        address: "the sockets of the other ranks".to_owned(),
        source,
    })
}

/// Rendezvous in progress on one rank.
struct RendezvousCall<'a> {
    env: &'a RankEnv,
    /// Hash of the settings that all ranks must share.
    settings: u64,
    begun: Instant,
    /// Deadline of the whole rendezvous.
    until: Instant,
}

impl RendezvousCall<'_> {
    /// Returns this rank's greeting, with the port on which it listens; 0 if no rank needs it.
    fn hello(&self, port: u16) -> PeerHello {
        PeerHello::of(self.env, self.settings, port)
    }

    /// Resolves the address of rank 0.
    fn master(&self) -> Result<SocketAddr, MeshError> {
        let place = (self.env.master_addr.as_str(), self.env.master_port);
        let found = place.to_socket_addrs().and_then(|mut all| {
            all.next()
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
        });
        found.map_err(|source| MeshError::Resolve {
            host: self.env.master_addr.clone(),
            source,
        })
    }

    /// Accepts all other ranks and sends each the listen addresses of ranks 1 and above; called on rank 0.
    fn collect(&self, listener: Option<TcpListener>, streams: &mut [Option<TcpStream>]) -> Result<(), MeshError> {
        let listener = match listener {
            Some(listener) => listener,
            None => listen(self.master()?)?,
        };
        let others = (1..self.env.world_size).collect();
        let callers = self.admit(&listener, &self.hello(0), others)?;
        let mut book = vec![0; ADDRESS_BYTES * streams.len()];
        for (&rank, (address, _)) in &callers {
            let at = rank as usize * ADDRESS_BYTES;
            book[at..at + ADDRESS_BYTES].copy_from_slice(&handshake::address_to_bytes(*address));
        }
        for (rank, (address, mut stream)) in callers {
            write_all(&mut stream, &book, self.until).map_err(|source| lost(rank, address, source))?;
            streams[rank as usize] = Some(stream);
        }
        Ok(())
    }

    /// Connects to rank 0, receives the addresses, connects to the ranks below and admits those above; called on all
    /// other ranks.
    fn call_all(&self, streams: &mut [Option<TcpStream>]) -> Result<(), MeshError> {
        let rank = self.env.rank.0;
        let (mut master, listener, port) = self.call_master()?;
        let address = master.peer_addr().map_err(|source| MeshError::Unreachable {
            address: SocketAddr::new(IpAddr::from([0, 0, 0, 0]), self.env.master_port),
            waited_ms: self.begun.elapsed().as_millis(),
            source,
        })?;
        let mut book = vec![0; ADDRESS_BYTES * streams.len()];
        read_exact(&mut master, &mut book, self.until).map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut => MeshError::Late {
                op: CollectiveOp::Rendezvous,
                sequence: 0,
                ranks: vec![0],
                elements: (0, 0),
                waited_ms: self.begun.elapsed().as_millis(),
            },
            _ => lost(0, address, source),
        })?;
        streams[0] = Some(master);
        for (below, entry) in book.as_chunks::<ADDRESS_BYTES>().0.iter().enumerate() {
            if (1..rank as usize).contains(&below) {
                let address = handshake::address_from_bytes(entry);
                let failed = |source| lost(below as u32, address, source);
                let mut stream = TcpStream::connect_timeout(&address, self.left()).map_err(failed)?;
                let answer = self.greet(&mut stream, port).map_err(failed)?;
                welcome(address, answer)?;
                streams[below] = Some(stream);
            }
        }
        let above = (rank + 1..self.env.world_size).collect();
        for (rank, (_, stream)) in self.admit(&listener, &self.hello(port), above)? {
            streams[rank as usize] = Some(stream);
        }
        Ok(())
    }

    /// Connects to rank 0 with retries: it may start later, or rank 0 of an older generation may still be ending.
    fn call_master(&self) -> Result<(TcpStream, TcpListener, u16), MeshError> {
        let address = self.master()?;
        loop {
            let problem = match self.try_master(address)? {
                Ok(called) => return Ok(called),
                Err(problem) => problem,
            };
            if self.left() <= RETRY {
                return Err(MeshError::Unreachable {
                    address,
                    waited_ms: self.begun.elapsed().as_millis(),
                    source: problem,
                });
            }
            thread::sleep(RETRY);
        }
    }

    /// Makes one attempt; the outer error is final, the inner one may be retried.
    #[allow(clippy::type_complexity, reason = "two kinds of failure of one attempt")]
    fn try_master(&self, address: SocketAddr) -> Result<io::Result<(TcpStream, TcpListener, u16)>, MeshError> {
        let attempt = || {
            let mut stream = TcpStream::connect_timeout(&address, self.left())?;
            // On the host of rank 0, a socket may get the address itself as its source and connect to itself (TCP
            // simultaneous open).
            if stream.local_addr()? == stream.peer_addr()? {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let listener = TcpListener::bind((stream.local_addr()?.ip(), 0))?;
            let port = listener.local_addr()?.port();
            let answer = self.greet(&mut stream, port)?;
            Ok((stream, listener, port, answer))
        };
        match attempt() {
            Err(problem) => Ok(Err(problem)),
            Ok((_, _, _, Some(answer)))
                if answer.verdict == HelloVerdict::OtherGeneration && answer.generation < self.env.generation.0 =>
            {
                Ok(Err(io::Error::other(format!(
                    "generation {} still listens there",
                    answer.generation
                ))))
            }
            Ok((stream, listener, port, answer)) => welcome(address, answer).map(|()| Ok((stream, listener, port))),
        }
    }

    /// Sends the greeting and returns the answer; `None` if it is not in this protocol.
    fn greet(&self, stream: &mut TcpStream, port: u16) -> io::Result<Option<HelloReply>> {
        stream.set_nonblocking(true)?;
        write_all(stream, &self.hello(port).to_bytes(), self.until)?;
        let mut answer = [0; ANSWER_BYTES];
        read_exact(stream, &mut answer, self.until)?;
        Ok(HelloReply::from_bytes(&answer))
    }

    /// Answers callers until every expected rank is connected; returns the address and stream of each.
    fn admit(
        &self,
        listener: &TcpListener,
        me: &PeerHello,
        mut expected: BTreeSet<u32>,
    ) -> Result<BTreeMap<u32, (SocketAddr, TcpStream)>, MeshError> {
        let failed = |source| MeshError::Listen {
            address: listener.local_addr().map_or_else(|e| e.to_string(), |a| a.to_string()),
            source,
        };
        listener.set_nonblocking(true).map_err(failed)?;
        let mut callers: Vec<PendingPeer> = Vec::new();
        let mut admitted = BTreeMap::new();
        while !expected.is_empty() {
            let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
            fds.extend(callers.iter().map(|c| PollFd::new(&c.stream, PollFlags::IN)));
            if !ready(&mut fds, self.until) {
                return Err(MeshError::Missing {
                    missing: expected.into_iter().collect(),
                    waited_ms: self.begun.elapsed().as_millis(),
                });
            }
            drop(fds);
            if let Some(caller) = PendingPeer::accept(listener).map_err(failed)? {
                callers.push(caller);
            }
            callers.retain(|c| c.since.elapsed() < GREETING_WAIT);
            if callers.len() > CALLERS_MAX {
                callers.remove(0);
            }
            for mut caller in std::mem::take(&mut callers) {
                match caller.listen() {
                    HelloProgress::NotYet => callers.push(caller),
                    HelloProgress::Nothing => {}
                    HelloProgress::All => {
                        let said = PeerHello::from_bytes(&caller.bytes);
                        let answer = me.answer(said.as_ref(), |rank| expected.contains(&rank));
                        let told = write_all(&mut caller.stream, &answer.to_bytes(), self.until);
                        let welcome = answer.verdict == HelloVerdict::Welcome && told.is_ok();
                        if let (true, Some(hello)) = (welcome, said) {
                            expected.remove(&hello.rank);
                            let address = SocketAddr::new(caller.address.ip(), hello.port);
                            admitted.insert(hello.rank, (address, caller.stream));
                        }
                    }
                }
            }
        }
        Ok(admitted)
    }

    /// Returns the time until the deadline, at least 1 ms.
    fn left(&self) -> Duration {
        // `TcpStream::connect_timeout` refuses a timeout of zero.
        let left = self.until.saturating_duration_since(Instant::now());
        left.max(Duration::from_millis(1))
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, MeshError> {
    TcpListener::bind(address).map_err(|source| MeshError::Listen {
        address: address.to_string(),
        source,
    })
}

fn lost(rank: u32, address: SocketAddr, source: io::Error) -> MeshError {
    MeshError::Lost {
        op: CollectiveOp::Rendezvous,
        sequence: 0,
        rank,
        address,
        source,
    }
}

/// Returns an error unless the answer is a welcome.
fn welcome(address: SocketAddr, answer: Option<HelloReply>) -> Result<(), MeshError> {
    let (verdict, generation) = match answer {
        Some(answer) if answer.verdict == HelloVerdict::Welcome => return Ok(()),
        Some(answer) => (answer.verdict, answer.generation),
        None => (HelloVerdict::Stranger, 0),
    };
    Err(MeshError::Refused {
        address,
        verdict,
        generation,
    })
}

/// Connected peer that has not identified itself yet.
struct PendingPeer {
    stream: TcpStream,
    address: SocketAddr,
    bytes: [u8; HELLO_BYTES],
    /// Number of bytes received.
    heard: usize,
    /// Time of the connection.
    since: Instant,
}

/// State of a peer's greeting.
enum HelloProgress {
    /// Incomplete.
    NotYet,
    /// Complete.
    All,
    /// The peer closed the connection, or it failed.
    Nothing,
}

impl PendingPeer {
    /// Accepts a connection; `None` if there is none.
    fn accept(listener: &TcpListener) -> io::Result<Option<Self>> {
        let (stream, address) = match listener.accept() {
            Ok(accepted) => accepted,
            // No caller, or one that has closed already: no error of the listener.
            Err(e) if transient(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        stream.set_nonblocking(true)?;
        Ok(Some(Self {
            stream,
            address,
            bytes: [0; HELLO_BYTES],
            heard: 0,
            since: Instant::now(),
        }))
    }

    /// Reads available bytes of the greeting without waiting.
    fn listen(&mut self) -> HelloProgress {
        match self.stream.read(&mut self.bytes[self.heard..]) {
            Ok(0) => HelloProgress::Nothing,
            Ok(n) => {
                self.heard += n;
                if self.heard == HELLO_BYTES {
                    HelloProgress::All
                } else {
                    HelloProgress::NotYet
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => HelloProgress::NotYet,
            Err(_) => HelloProgress::Nothing,
        }
    }
}

/// Returns true if an operation on a non-blocking socket may be repeated.
fn transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

fn read_exact(stream: &mut TcpStream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => bytes = &mut bytes[n..],
            Err(e) if transient(&e) => wait(stream, PollFlags::IN, until)?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn write_all(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if transient(&e) => wait(stream, PollFlags::OUT, until)?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn wait(stream: &TcpStream, flags: PollFlags, until: Instant) -> io::Result<()> {
    if ready(&mut [PollFd::new(stream, flags)], until) {
        Ok(())
    } else {
        Err(io::ErrorKind::TimedOut.into())
    }
}
