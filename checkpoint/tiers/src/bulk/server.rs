//! Server side of the bulk protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{MAX_INDEX_BYTES, ShardIndex};
use rankguard_identity::{
    ConnectionPeer, PeerListener, PeerRole, PeerStream, PeerTransport, RefusalCounters, RefusalReason as CallRefusal,
};
use rankguard_model::{Generation, JobId, NodeId};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use super::frame::{FrameError, ReplyHeader, RequestHeader, read_head, read_payload, write_head};
use super::{
    BulkError, ImageHolder, ParityMemory, ReplicaKind, ReplicaMemory, ReplicaName, ReplicaStorage, TransferRefusal,
    protocol,
};

/// Maximum bytes of chunks in one reply.
pub(super) const MAX_FETCH_BYTES: usize = 128 << 20;

/// Limits of a receiver.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// Deadline for the rest of a request and for sending a reply, default 30 s.
    pub deadline: Duration,
    /// Maximum idle time between requests of a connection, default 120 s.
    pub idle: Duration,
    /// Number of connections, default 64; further ones wait to be accepted.
    pub connections: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            idle: Duration::from_secs(120),
            connections: 64,
        }
    }
}

/// Authorisation of callers by generation.
pub trait CallerAuthorization: std::fmt::Debug + Send + Sync {
    /// Returns true if a node takes part in this generation. A generation that no order has named to this agent has no
    /// nodes.
    fn is_authorized(&self, node: &NodeId, job: &JobId, generation: Generation) -> bool;
}

/// Stores that a receiver writes to and reads from.
pub struct ReceiverStores {
    /// Images in memory; first source of a fetch.
    pub shelf: Arc<ReplicaMemory>,
    /// Parity of images; `None` disables parity.
    pub sums: Option<Arc<ParityMemory>>,
    /// Further sources of a fetch.
    pub others: Vec<Arc<dyn ImageHolder>>,
    /// Store for images that the sender requests on disk.
    pub store: Option<Store>,
    /// Authorisation of callers; `None` admits every agent of the cluster.
    pub callers: Option<Arc<dyn CallerAuthorization>>,
}

impl ReceiverStores {
    /// Creates holdings with a shelf alone, open to every agent of the cluster.
    pub fn new(shelf: Arc<ReplicaMemory>) -> Self {
        Self {
            shelf,
            sums: None,
            others: Vec::new(),
            store: None,
            callers: None,
        }
    }
}

/// Receiver; stops, with all its connections, on drop.
#[derive(Debug)]
pub struct BulkServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

struct ReceiverState {
    holdings: ReceiverStores,
    refusals: RefusalCounters,
    /// Images that were offered for disk; all others are for memory.
    for_disk: std::sync::Mutex<std::collections::BTreeSet<ReplicaName>>,
    limits: ServerLimits,
}

impl BulkServer {
    /// Listens at `address` (port 0 for any), which must be loopback unless `network` has an identity; then callers
    /// must be agents of the same cluster. Replies ignore the bandwidth cap, because a job that fetches an image is not
    /// training.
    pub async fn bind(
        address: SocketAddr,
        network: &PeerTransport,
        holdings: ReceiverStores,
        limits: ServerLimits,
    ) -> Result<Self, BulkError> {
        network.may_use(address.ip())?;
        let io = |source| BulkError::Io {
            what: "listen at",
            peer: address.to_string(),
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(io)?;
        let address = listener.local_addr().map_err(io)?;
        let for_disk = std::sync::Mutex::default();
        let desk = ReceiverState {
            holdings,
            refusals: network.refusals().clone(),
            for_disk,
            limits,
        };
        let listener = PeerListener::new(listener, network, protocol());
        let task = tokio::spawn(accept(listener, Arc::new(desk)));
        Ok(Self { address, task })
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for BulkServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(mut listener: PeerListener, desk: Arc<ReceiverState>) {
    let room = Arc::new(Semaphore::new(desk.limits.connections.max(1)));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        let Some(wire) = listener.next().await else { return };
        let desk = desk.clone();
        connections.spawn(async move {
            let peer = wire.caller().address;
            if let Err(problem) = desk.serve(wire).await {
                tracing::debug!(?peer, %problem, "a bulk connection ended");
            }
            drop(place);
        });
    }
}

impl ReceiverState {
    async fn serve(&self, mut stream: PeerStream) -> Result<(), FrameError> {
        if let Some(name) = stream
            .caller()
            .name
            .clone()
            .filter(|name| name.role() != PeerRole::Agent)
        {
            let what = format!(
                "{} may not read the images of agents: use an agent certificate",
                name.short()
            );
            self.refusals.record(CallRefusal::Role, stream.caller().address, &what);
            return Err(FrameError::Protocol(what));
        }
        let late = |_| FrameError::Protocol("the other side is too slow".to_owned());
        loop {
            let asked = tokio::time::timeout(self.limits.idle, read_head::<RequestHeader>(&mut stream))
                .await
                .map_err(late)??;
            let Some((ask, payload)) = asked else { return Ok(()) };
            let served = self.answer(&mut stream, &ask, payload);
            let (reply, bytes) = tokio::time::timeout(self.limits.deadline, served)
                .await
                .map_err(late)??;
            let sent = async {
                write_head(&mut stream, &reply, bytes.len() as u64).await?;
                stream.write_all(&bytes).await?;
                Ok::<_, FrameError>(stream.flush().await?)
            };
            tokio::time::timeout(self.limits.deadline, sent).await.map_err(late)??;
        }
    }

    /// Reads the payload and executes the request. A refusal is a reply; an error ends the connection.
    async fn answer(
        &self,
        stream: &mut PeerStream,
        ask: &RequestHeader,
        payload: u64,
    ) -> Result<(ReplyHeader, Vec<u8>), FrameError> {
        let mut buffer = Vec::new();
        let known = self.check_caller(stream.caller(), ask);
        let allowed = known.and_then(|()| self.holdings.shelf.check_fence(ask.job(), ask.fence()));
        let expected = match (ask, &allowed) {
            (RequestHeader::Offer { .. }, _) => MAX_INDEX_BYTES,
            (RequestHeader::Piece { name, piece, .. }, Ok(())) => match self.expect(name, *piece) {
                Ok((bytes, spare)) => {
                    buffer = spare;
                    bytes
                }
                Err(refusal) => return self.refuse(stream, payload, refusal).await,
            },
            (RequestHeader::Piece { .. }, Err(refusal)) => return self.refuse(stream, payload, refusal.clone()).await,
            (RequestHeader::Seal { .. } | RequestHeader::Fetch { .. } | RequestHeader::Sums { .. }, _) => 0,
        };
        read_payload(stream, payload, expected, &mut buffer).await?;
        if let Err(refusal) = allowed {
            return Ok((ReplyHeader::Refused(refusal), Vec::new()));
        }
        let done = match ask {
            RequestHeader::Offer { name, keep, .. } => self.offer(name, keep, &buffer).map(|reply| (reply, Vec::new())),
            RequestHeader::Piece { name, piece, .. } => self
                .put(name, *piece, buffer)
                .await
                .map(|()| (ReplyHeader::Took, Vec::new())),
            RequestHeader::Seal { name, .. } => self.seal(name).await.map(|reply| (reply, Vec::new())),
            RequestHeader::Fetch { name, runs, .. } => self.fetch(name.clone(), runs.clone()).await,
            RequestHeader::Sums { job, checkpoint, .. } => {
                let sums = self.holdings.sums.as_ref().map(|sums| sums.whole(job, *checkpoint));
                let sums = sums.unwrap_or_default();
                Ok((ReplyHeader::Sums { sums }, Vec::new()))
            }
        };
        Ok(done.unwrap_or_else(|refusal| (ReplyHeader::Refused(refusal), Vec::new())))
    }

    /// Checks that the calling node takes part in the generation of its request.
    fn check_caller(&self, caller: &ConnectionPeer, ask: &RequestHeader) -> Result<(), TransferRefusal> {
        let (Some(name), Some(callers)) = (&caller.name, &self.holdings.callers) else {
            return Ok(());
        };
        let node = NodeId::from(name.own());
        let generation = ask.fence();
        if callers.is_authorized(&node, ask.job(), generation) {
            return Ok(());
        }
        let refusal = TransferRefusal::Stranger {
            node: node.to_string(),
            generation: generation.0,
        };
        self.refusals
            .record(CallRefusal::Node, caller.address, &refusal.to_string());
        Err(refusal)
    }

    /// Skips the payload of a refused piece, so that the connection stays in sync.
    async fn refuse(
        &self,
        stream: &mut PeerStream,
        payload: u64,
        refusal: TransferRefusal,
    ) -> Result<(ReplyHeader, Vec<u8>), FrameError> {
        use tokio::io::AsyncReadExt;
        let skipped = tokio::io::copy(&mut stream.take(payload), &mut tokio::io::sink()).await?;
        if skipped < payload {
            return Err(FrameError::Protocol("the piece is cut off".to_owned()));
        }
        Ok((ReplyHeader::Refused(refusal), Vec::new()))
    }

    fn disk(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeSet<ReplicaName>> {
        self.for_disk.lock().expect("no holder of the list panics")
    }

    /// Returns the parity holder if the object is a parity share; refuses a share if parity is disabled.
    fn sums(&self, name: &ReplicaName) -> Result<Option<&Arc<ParityMemory>>, TransferRefusal> {
        match (name.what, &self.holdings.sums) {
            (ReplicaKind::Share(_), None) => Err(TransferRefusal::NoParity),
            (ReplicaKind::Share(_), sums) => Ok(sums.as_ref()),
            _ => Ok(None),
        }
    }

    fn expect(&self, name: &ReplicaName, piece: u32) -> Result<(usize, Vec<u8>), TransferRefusal> {
        match self.sums(name)? {
            Some(sums) => Ok((sums.expect(name, piece)?, Vec::new())),
            None => self.holdings.shelf.expect(name, piece),
        }
    }

    async fn put(&self, name: &ReplicaName, piece: u32, bytes: Vec<u8>) -> Result<(), TransferRefusal> {
        let Some(sums) = self.sums(name)?.cloned() else {
            return self.holdings.shelf.put(name, piece, bytes);
        };
        let name = name.clone();
        // Coding is CPU work, so it runs on a blocking thread.
        let added = tokio::task::spawn_blocking(move || sums.add(&name, piece, &bytes)).await;
        added.map_err(|problem| TransferRefusal::Failed(problem.to_string()))?
    }

    fn offer(&self, name: &ReplicaName, keep: &ReplicaStorage, bytes: &[u8]) -> Result<ReplyHeader, TransferRefusal> {
        let index =
            ShardIndex::from_bytes(bytes).map_err(|problem| TransferRefusal::Failed(format!("the index {problem}")))?;
        if name.job != index.job || name.checkpoint != index.id() || name.rank != index.rank {
            return Err(TransferRefusal::Failed("the index is of another image".to_owned()));
        }
        if let (ReplicaKind::Share(nth), ReplicaStorage::Sum(lane)) = (name.what, keep) {
            let sums = self.sums(name)?.ok_or(TransferRefusal::NoParity)?;
            let missing = sums.offer(name, nth, lane, index)?;
            return Ok(ReplyHeader::Wanted { missing });
        }
        if matches!(
            (name.what, keep),
            (ReplicaKind::Share(_) | ReplicaKind::Sum(_), _) | (_, ReplicaStorage::Sum(_))
        ) {
            return Err(TransferRefusal::NoParity);
        }
        if *keep == ReplicaStorage::Disk && (self.holdings.store.is_none() || name.what != ReplicaKind::Image) {
            return Err(TransferRefusal::NoDisk);
        }
        let missing = self.holdings.shelf.offer(name, index)?;
        match keep {
            ReplicaStorage::Disk => self.disk().insert(name.clone()),
            ReplicaStorage::Memory | ReplicaStorage::Sum(_) => self.disk().remove(name),
        };
        Ok(ReplyHeader::Wanted { missing })
    }

    async fn seal(&self, name: &ReplicaName) -> Result<ReplyHeader, TransferRefusal> {
        if let Some(sums) = self.sums(name)? {
            let root = sums.seal(name)?.to_string();
            return Ok(ReplyHeader::Kept { root });
        }
        let held = self.holdings.shelf.seal(name)?;
        let root = held.index().root.to_string();
        let to_disk = self.disk().remove(name);
        if let Some(store) = self.holdings.store.clone().filter(|_| to_disk) {
            let write = move || {
                store
                    .write_shard(held.index(), &held as &dyn rankguard_checkpoint::ImageSource)
                    .map(|_| ())
            };
            let written = tokio::task::spawn_blocking(write).await;
            // Its memory is free now whether or not the write succeeded; after a failure the sender offers it again.
            self.holdings.shelf.remove(name);
            let failed = |problem: &dyn std::error::Error| TransferRefusal::Failed(problem.to_string());
            written
                .map_err(|problem| failed(&problem))?
                .map_err(|problem| failed(&problem))?;
        }
        Ok(ReplyHeader::Kept { root })
    }

    async fn fetch(&self, name: ReplicaName, runs: Vec<(u32, u32)>) -> Result<(ReplyHeader, Vec<u8>), TransferRefusal> {
        let mut holders: Vec<Arc<dyn ImageHolder>> = vec![self.holdings.shelf.clone()];
        holders.extend(self.holdings.sums.clone().map(|sums| sums as Arc<dyn ImageHolder>));
        holders.extend(self.holdings.others.iter().cloned());
        let read = move || {
            holders
                .iter()
                .find_map(|holder| holder.read(&name, &runs, MAX_FETCH_BYTES))
        };
        // Arena reads compute digests, so they run on a blocking thread.
        let found = tokio::task::spawn_blocking(read)
            .await
            .map_err(|problem| TransferRefusal::Failed(problem.to_string()))?;
        match found {
            None => Ok((ReplyHeader::Absent, Vec::new())),
            Some(Ok(bytes)) => Ok((ReplyHeader::Found, bytes)),
            Some(Err(problem)) => Err(TransferRefusal::Failed(problem)),
        }
    }
}
