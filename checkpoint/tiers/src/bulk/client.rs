//! The sending and asking side.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rankguard_checkpoint::ImageSource;
use rankguard_checkpoint::format::{CheckpointId, ChunkDigest, ShardIndex};
use rankguard_identity::{DialError, Expected, Network, Wire};
use rankguard_model::{Generation, JobId};
use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::frame::{Ask, FrameError, Reply, read_head, read_payload, write_head};
use super::server::MAX_FETCH_BYTES;
use super::{BulkError, Cut, Keep, Name, SumView, What, protocol};
use crate::cap::Cap;

/// How a peer is spoken to.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest wait for one request; the wait for the bandwidth cap is not part of it. With [`Keep::Disk`] the last
    /// request waits for the peer's disk: give it the time that the whole image takes there.
    pub deadline: Duration,
    /// Connections of one push.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            connections: 2,
        }
    }
}

/// An image is with a peer, whole and checked: what makes a slot `Replicated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replicated {
    /// What.
    pub name: Name,
    /// Where.
    pub peer: SocketAddr,
    /// Root over its chunks, as the peer has computed it.
    pub root: ChunkDigest,
    /// Bytes that were sent; less than the image where the peer had some already.
    pub sent_bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// Another agent.
#[derive(Debug)]
pub struct BulkPeer {
    address: SocketAddr,
    /// Who must be there.
    expected: Expected,
    network: Network,
    limits: Limits,
    cap: Arc<Cap>,
    /// Connections that wait for their next use.
    idle: Mutex<Vec<Wire>>,
}

impl BulkPeer {
    /// The agent at `address`, which must be loopback unless `network` has an identity: then it must be who is `expected`.
    /// Connects when it is first needed; what is sent goes through `cap`.
    pub fn new(
        address: SocketAddr,
        expected: Expected,
        network: &Network,
        limits: Limits,
        cap: Arc<Cap>,
    ) -> Result<Self, BulkError> {
        network.may_use(address.ip())?;
        let idle = Mutex::default();
        Ok(Self {
            address,
            expected,
            network: network.clone(),
            limits,
            cap,
            idle,
        })
    }

    /// Sends a sealed image, or parity, and returns when the peer has all of it and has compared it with its digests.
    pub async fn push(
        self: &Arc<Self>,
        what: What,
        index: &ShardIndex,
        image: Arc<dyn ImageSource + Send + Sync>,
        keep: Keep,
    ) -> Result<Replicated, BulkError> {
        let started = Instant::now();
        let name = Name {
            what,
            ..Name::image(index)
        };
        let fence = index.generation;
        let offer = Ask::Offer {
            name: name.clone(),
            fence,
            keep,
        };
        let missing = match self.request(&offer, &index.to_bytes()).await?.0 {
            Reply::Wanted { missing } => missing,
            other => return Err(self.unexpected(&other)),
        };
        let cut = Arc::new(Cut::of(index));
        let runs = missing
            .iter()
            .flat_map(|&(first, count)| first..first.saturating_add(count));
        let pieces: Arc<Vec<u32>> = Arc::new(runs.take(cut.pieces.len()).collect());
        let next = Arc::new(AtomicUsize::new(0));
        let mut senders = JoinSet::new();
        for _ in 0..self.limits.connections.clamp(1, pieces.len().max(1)) {
            let (peer, cut, pieces, next) = (self.clone(), cut.clone(), pieces.clone(), next.clone());
            let (name, image) = (name.clone(), image.clone());
            senders.spawn(async move { peer.send_pieces(&name, fence, &cut, &pieces, &next, &image).await });
        }
        let mut sent_bytes = 0;
        // The others are dropped, and with them their connections, when one of them fails.
        while let Some(sent) = senders.join_next().await {
            let sent = sent.map_err(|problem| self.protocol(format!("a sender has died: {problem}")))?;
            sent_bytes += sent?;
        }
        let seal = Ask::Seal {
            name: name.clone(),
            fence,
        };
        let root = match self.request(&seal, &[]).await?.0 {
            Reply::Kept { root } if root == index.root.to_string() => index.root,
            other => return Err(self.unexpected(&other)),
        };
        Ok(Replicated {
            name,
            peer: self.address,
            root,
            sent_bytes,
            took: started.elapsed(),
        })
    }

    /// One of the senders of a push: takes the next piece until there is none.
    async fn send_pieces(
        &self,
        name: &Name,
        fence: Generation,
        cut: &Arc<Cut>,
        pieces: &[u32],
        next: &AtomicUsize,
        image: &Arc<dyn ImageSource + Send + Sync>,
    ) -> Result<u64, BulkError> {
        let (mut buffer, mut sent_bytes) = (Vec::new(), 0);
        while let Some(&piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (cut, image) = (cut.clone(), image.clone());
            let read = tokio::task::spawn_blocking(move || read_piece(&cut, piece, image.as_ref(), buffer)).await;
            buffer = read.map_err(|problem| self.protocol(format!("a reader has died: {problem}")))??;
            self.cap.take(buffer.len() as u64).await;
            let ask = Ask::Piece {
                name: name.clone(),
                fence,
                piece,
            };
            match self.request(&ask, &buffer).await?.0 {
                Reply::Took => sent_bytes += buffer.len() as u64,
                other => return Err(self.unexpected(&other)),
            }
        }
        Ok(sent_bytes)
    }

    /// Chunks in runs (first, count), one after the other; `None` when the peer has no such image. Not checked.
    pub async fn fetch(
        &self,
        name: &Name,
        generation: Generation,
        runs: Vec<(u32, u32)>,
    ) -> Result<Option<Vec<u8>>, BulkError> {
        let ask = Ask::Fetch {
            name: name.clone(),
            fence: generation,
            runs,
        };
        match self.request(&ask, &[]).await? {
            (Reply::Found, bytes) => Ok(Some(bytes)),
            (Reply::Absent, _) => Ok(None),
            (other, _) => Err(self.unexpected(&other)),
        }
    }

    /// The parities that the peer keeps whole of a checkpoint.
    pub async fn sums(
        &self,
        job: &JobId,
        checkpoint: CheckpointId,
        generation: Generation,
    ) -> Result<Vec<SumView>, BulkError> {
        let ask = Ask::Sums {
            job: job.clone(),
            checkpoint,
            fence: generation,
        };
        match self.request(&ask, &[]).await?.0 {
            Reply::Sums { sums } => Ok(sums),
            other => Err(self.unexpected(&other)),
        }
    }

    /// One request on one connection, which is kept for the next when all went well. A kept connection that the peer
    /// has closed meanwhile is no failure of the peer: a fresh one is tried.
    async fn request(&self, ask: &Ask, payload: &[u8]) -> Result<(Reply, Vec<u8>), BulkError> {
        let kept = self.idle.lock().await.pop();
        if let Some(stream) = kept {
            match self.request_on(stream, ask, payload).await {
                Err(BulkError::Io { .. }) => {}
                done => return done,
            }
        }
        let limit = self.limits.deadline;
        let address = self.address.to_string();
        let dialled = self.network.dial(&address, &self.expected, &protocol(), limit).await;
        let wire = dialled.map_err(|problem| match problem {
            DialError::Late { .. } => self.late("answer", limit),
            source => BulkError::Dial { peer: address, source },
        })?;
        self.request_on(wire, ask, payload).await
    }

    async fn request_on(&self, mut stream: Wire, ask: &Ask, payload: &[u8]) -> Result<(Reply, Vec<u8>), BulkError> {
        let exchange = async {
            write_head(&mut stream, ask, payload.len() as u64).await?;
            stream.write_all(payload).await?;
            stream.flush().await?;
            let closed = || FrameError::Io(std::io::ErrorKind::UnexpectedEof.into());
            let (reply, length) = read_head::<Reply>(&mut stream).await?.ok_or_else(closed)?;
            let mut bytes = Vec::new();
            read_payload(&mut stream, length, MAX_FETCH_BYTES, &mut bytes).await?;
            Ok::<_, FrameError>((reply, bytes))
        };
        let limit = self.limits.deadline;
        match tokio::time::timeout(limit, exchange).await {
            Ok(Ok((reply, bytes))) => {
                self.idle.lock().await.push(stream);
                match reply {
                    Reply::Refused(refusal) => Err(BulkError::Refused {
                        peer: self.address.to_string(),
                        refusal,
                    }),
                    reply => Ok((reply, bytes)),
                }
            }
            Ok(Err(FrameError::Io(source))) => Err(self.io("speak with", source)),
            Ok(Err(FrameError::Protocol(problem))) => Err(self.protocol(problem)),
            Err(_) => Err(self.late("answer", limit)),
        }
    }

    fn io(&self, what: &'static str, source: std::io::Error) -> BulkError {
        let peer = self.address.to_string();
        BulkError::Io { what, peer, source }
    }

    fn late(&self, what: &'static str, limit: Duration) -> BulkError {
        let peer = self.address.to_string();
        BulkError::Deadline { what, peer, limit }
    }

    fn protocol(&self, problem: String) -> BulkError {
        let peer = self.address.to_string();
        BulkError::Protocol { peer, problem }
    }

    fn unexpected(&self, reply: &Reply) -> BulkError {
        self.protocol(format!("it answers {reply:?}"))
    }
}

/// The chunks of a piece, one after the other.
fn read_piece(
    cut: &Cut,
    piece: u32,
    image: &(dyn ImageSource + Send + Sync),
    mut buffer: Vec<u8>,
) -> Result<Vec<u8>, BulkError> {
    buffer.resize(cut.piece_bytes(piece).unwrap_or(0), 0);
    let mut from = 0;
    for chunk in cut.pieces[piece as usize].clone() {
        let (to, at) = (from + cut.length(chunk), cut.ranges[chunk as usize].start);
        image
            .read_at(at, &mut buffer[from..to])
            .map_err(|source| BulkError::Image { at, source })?;
        from = to;
    }
    Ok(buffer)
}
