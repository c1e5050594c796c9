//! Chunks from and for the agents of other nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::source::{ArenaSource, ChunkError, ChunkId, ChunkSource, Tier};
use rankguard_model::{Generation, JobId, Peer, Rank, Step};
use rankguard_proto::v1::peers_client::PeersClient;
use rankguard_proto::v1::peers_server::Peers;
use rankguard_proto::{MESSAGE_BYTES_MAX, v1};
use tokio::runtime::Handle;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Response, Status};

use super::Checkpoints;

/// Another agent as a tier. Used from threads that may wait.
#[derive(Debug)]
pub(super) struct PeerSource {
    peer: Peer,
    runtime: Handle,
    limit: Duration,
    /// It failed to answer once; nobody waits for it again in this restore (RG-9).
    given_up: AtomicBool,
}

impl PeerSource {
    pub(super) fn all(peers: &[Peer], runtime: &Handle, limit: Duration) -> Vec<Self> {
        let source = |peer: &Peer| Self {
            peer: peer.clone(),
            runtime: runtime.clone(),
            limit,
            given_up: AtomicBool::new(false),
        };
        peers.iter().map(source).collect()
    }

    async fn fetch(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.peer.address))?
            .connect_timeout(self.limit)
            .timeout(self.limit);
        let mut client = PeersClient::new(endpoint.connect().await?).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let request = v1::ChunkRequest {
            job: id.job.to_string(),
            step: id.checkpoint.step.0,
            generation: id.checkpoint.generation.0,
            rank: id.rank.0,
            chunk: id.chunk,
        };
        match client.fetch_chunk(request).await {
            Ok(reply) => Ok(Some(reply.into_inner().data)),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status.into()),
        }
    }
}

impl ChunkSource for PeerSource {
    fn tier(&self) -> Tier {
        Tier::Peer
    }

    fn name(&self) -> String {
        format!("peer {}", self.peer.node)
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        if self.given_up.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(self.limit, self.fetch(id)).await });
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {:?}", self.limit).into()));
        if answer.is_err() {
            self.given_up.store(true, Ordering::Relaxed);
        }
        answer
    }
}

/// What this agent gives to others. Reads only.
#[derive(Debug, Clone)]
pub(crate) struct PeerService(pub(crate) Arc<Checkpoints>);

#[tonic::async_trait]
impl Peers for PeerService {
    async fn fetch_chunk(&self, request: Request<v1::ChunkRequest>) -> Result<Response<v1::ChunkReply>, Status> {
        let wanted = request.into_inner();
        let checkpoints = self.0.clone();
        let job = JobId(wanted.job);
        let id = CheckpointId {
            step: Step(wanted.step),
            generation: Generation(wanted.generation),
        };
        let find = move || {
            let places = checkpoints.arenas.of(&job);
            let source = ArenaSource::new(places.iter().map(|place| &*place.arena));
            source
                .sealed_chunk(&job, id, Rank(wanted.rank), wanted.chunk)
                .map_err(|problem| problem.to_string())
        };
        let found = tokio::task::spawn_blocking(find)
            .await
            .map_err(|_| Status::internal("the lookup failed"))?;
        match found {
            Ok(Some(data)) => Ok(Response::new(v1::ChunkReply { data })),
            Ok(None) => Err(Status::not_found("no such image in memory here")),
            Err(problem) => Err(Status::data_loss(problem)),
        }
    }
}
