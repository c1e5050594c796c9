//! Client side of the bulk protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rankguard_checkpoint::ImageSource;
use rankguard_checkpoint::format::{CheckpointId, ChunkDigest, ShardIndex};
use rankguard_identity::{DialError, ExpectedPeer, PeerStream, PeerTransport};
use rankguard_model::{Generation, JobId};
use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::frame::{FrameError, ReplyHeader, RequestHeader, read_head, read_payload, write_head};
use super::server::MAX_FETCH_BYTES;
use super::{BulkError, PieceLayout, ReplicaKind, ReplicaName, ReplicaStorage, SumView, protocol};
use crate::cap::BandwidthCap;

/// Limits of the requests to one peer.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// Deadline of one request, default 10 s, without the wait for the bandwidth cap. With [`Keep::Disk`] the seal
    /// request includes the write to the peer's disk, so allow the time that the whole image takes there.
    pub deadline: Duration,
    /// Number of connections of one push, default 2.
    pub connections: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            connections: 2,
        }
    }
}

/// Receipt for an image that a peer holds complete and checked; moves a slot to `ReplicaReceipt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplicaReceipt {
    pub name: ReplicaName,
    pub peer: SocketAddr,
    /// Root over the chunks, as computed by the peer.
    pub root: ChunkDigest,
    /// Bytes sent; less than the image if the peer already held a part of it.
    pub sent_bytes: u64,
    pub took: Duration,
}

/// Client of one peer agent.
#[derive(Debug)]
pub struct BulkPeer {
    address: SocketAddr,
    /// Identity that the peer must have.
    expected: ExpectedPeer,
    network: PeerTransport,
    limits: ClientLimits,
    cap: Arc<BandwidthCap>,
    /// Idle connections for reuse.
    idle: Mutex<Vec<PeerStream>>,
}

impl BulkPeer {
    /// Creates a client of the agent at `address`, which must be loopback unless `network` has an identity; then the
    /// peer must match `expected`. Connects on first use; sent bytes are limited by `cap`.
    pub fn new(
        address: SocketAddr,
        expected: ExpectedPeer,
        network: &PeerTransport,
        limits: ClientLimits,
        cap: Arc<BandwidthCap>,
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

    /// Sends a sealed image or parity; returns once the peer has all of it and has compared it with its digests.
    pub async fn push(
        self: &Arc<Self>,
        what: ReplicaKind,
        index: &ShardIndex,
        image: Arc<dyn ImageSource + Send + Sync>,
        keep: ReplicaStorage,
    ) -> Result<ReplicaReceipt, BulkError> {
        let started = Instant::now();
        let name = ReplicaName {
            what,
            ..ReplicaName::image(index)
        };
        let fence = index.generation;
        let offer = RequestHeader::Offer {
            name: name.clone(),
            fence,
            keep,
        };
        let missing = match self.request(&offer, &index.to_bytes()).await?.0 {
            ReplyHeader::Wanted { missing } => missing,
            other => return Err(self.unexpected(&other)),
        };
        let cut = Arc::new(PieceLayout::of(index));
        let runs = missing
            .iter()
            .flat_map(|&(first, count)| first..first.saturating_add(count));
        let pieces: Arc<Vec<u32>> = Arc::new(runs.take(cut.pieces.len()).collect());
        let next = Arc::new(AtomicUsize::new(0));
        let mut senders = JoinSet::new();
        for _ in 0..self.limits.connections.clamp(1, pieces.len().max(1)) {
            let peer = self.clone();
            let cut = cut.clone();
            let pieces = pieces.clone();
            let next = next.clone();
            let name = name.clone();
            let image = image.clone();
            senders.spawn(async move { peer.send_pieces(&name, fence, &cut, &pieces, &next, &image).await });
        }
        let mut sent_bytes = 0;
        // If one sender fails, the others are dropped together with their connections.
        while let Some(sent) = senders.join_next().await {
            let sent = sent.map_err(|problem| self.protocol(format!("a sender has died: {problem}")))?;
            sent_bytes += sent?;
        }
        let seal = RequestHeader::Seal {
            name: name.clone(),
            fence,
        };
        let root = match self.request(&seal, &[]).await?.0 {
            ReplyHeader::Kept { root } if root == index.root.to_string() => index.root,
            other => return Err(self.unexpected(&other)),
        };
        Ok(ReplicaReceipt {
            name,
            peer: self.address,
            root,
            sent_bytes,
            took: started.elapsed(),
        })
    }

    /// Sender task of a push: takes the next piece until none is left.
    async fn send_pieces(
        &self,
        name: &ReplicaName,
        fence: Generation,
        cut: &Arc<PieceLayout>,
        pieces: &[u32],
        next: &AtomicUsize,
        image: &Arc<dyn ImageSource + Send + Sync>,
    ) -> Result<u64, BulkError> {
        let mut buffer = Vec::new();
        let mut sent_bytes = 0;
        while let Some(&piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            let cut = cut.clone();
            let image = image.clone();
            let read = tokio::task::spawn_blocking(move || read_piece(&cut, piece, image.as_ref(), buffer)).await;
            buffer = read.map_err(|problem| self.protocol(format!("a reader has died: {problem}")))??;
            self.cap.take(buffer.len() as u64).await;
            let ask = RequestHeader::Piece {
                name: name.clone(),
                fence,
                piece,
            };
            match self.request(&ask, &buffer).await?.0 {
                ReplyHeader::Took => sent_bytes += buffer.len() as u64,
                other => return Err(self.unexpected(&other)),
            }
        }
        Ok(sent_bytes)
    }

    /// Fetches chunks in runs (first, count), concatenated; `None` if the peer has no such image. Digests are not
    /// checked.
    pub async fn fetch(
        &self,
        name: &ReplicaName,
        generation: Generation,
        runs: Vec<(u32, u32)>,
    ) -> Result<Option<Vec<u8>>, BulkError> {
        let ask = RequestHeader::Fetch {
            name: name.clone(),
            fence: generation,
            runs,
        };
        match self.request(&ask, &[]).await? {
            (ReplyHeader::Found, bytes) => Ok(Some(bytes)),
            (ReplyHeader::Absent, _) => Ok(None),
            (other, _) => Err(self.unexpected(&other)),
        }
    }

    /// Returns the complete parities that the peer holds for a checkpoint.
    pub async fn sums(
        &self,
        job: &JobId,
        checkpoint: CheckpointId,
        generation: Generation,
    ) -> Result<Vec<SumView>, BulkError> {
        let ask = RequestHeader::Sums {
            job: job.clone(),
            checkpoint,
            fence: generation,
        };
        match self.request(&ask, &[]).await?.0 {
            ReplyHeader::Sums { sums } => Ok(sums),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Sends one request on one connection, which is retained for reuse after success. If the peer has closed a
    /// retained connection meanwhile, a new one is tried.
    async fn request(&self, ask: &RequestHeader, payload: &[u8]) -> Result<(ReplyHeader, Vec<u8>), BulkError> {
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

    async fn request_on(
        &self,
        mut stream: PeerStream,
        ask: &RequestHeader,
        payload: &[u8],
    ) -> Result<(ReplyHeader, Vec<u8>), BulkError> {
        let exchange = async {
            write_head(&mut stream, ask, payload.len() as u64).await?;
            stream.write_all(payload).await?;
            stream.flush().await?;
            let closed = || FrameError::Io(std::io::ErrorKind::UnexpectedEof.into());
            let (reply, length) = read_head::<ReplyHeader>(&mut stream).await?.ok_or_else(closed)?;
            let mut bytes = Vec::new();
            read_payload(&mut stream, length, MAX_FETCH_BYTES, &mut bytes).await?;
            Ok::<_, FrameError>((reply, bytes))
        };
        let limit = self.limits.deadline;
        match tokio::time::timeout(limit, exchange).await {
            Ok(Ok((reply, bytes))) => {
                self.idle.lock().await.push(stream);
                match reply {
                    ReplyHeader::Refused(refusal) => Err(BulkError::Refused {
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

    fn unexpected(&self, reply: &ReplyHeader) -> BulkError {
        self.protocol(format!("it answers {reply:?}"))
    }
}

/// Reads the chunks of a piece, concatenated.
fn read_piece(
    cut: &PieceLayout,
    piece: u32,
    image: &(dyn ImageSource + Send + Sync),
    mut buffer: Vec<u8>,
) -> Result<Vec<u8>, BulkError> {
    buffer.resize(cut.piece_bytes(piece).unwrap_or(0), 0);
    let mut from = 0;
    for chunk in cut.pieces[piece as usize].clone() {
        let to = from + cut.length(chunk);
        let at = cut.ranges[chunk as usize].start;
        image
            .read_at(at, &mut buffer[from..to])
            .map_err(|source| BulkError::Image { at, source })?;
        from = to;
    }
    Ok(buffer)
}
