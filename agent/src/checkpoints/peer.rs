//! Chunks from other nodes' memory.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use rankguard_checkpoint::source::{ChunkError, ChunkId, ChunkSource, Tier};
use rankguard_model::{Peer, Rank};
use rankguard_proto::v1::ChunkRequest;
use rankguard_proto::v1::peers_client::PeersClient;
use tokio::runtime::Handle;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

/// One peer, for one restore. Used from a blocking thread.
pub(super) struct PeerSource {
    peer: Peer,
    handle: Handle,
    deadline: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    client: Option<PeersClient<Channel>>,
    /// It did not answer once; asking it for every chunk would only add deadlines up (RG-9).
    silent: bool,
    /// Ranks whose shard it does not hold.
    without: BTreeSet<Rank>,
}

impl PeerSource {
    pub(super) fn new(peer: Peer, handle: Handle, deadline: Duration) -> Self {
        Self {
            peer,
            handle,
            deadline,
            state: Mutex::default(),
        }
    }

    async fn fetch(&self, client: Option<PeersClient<Channel>>, id: &ChunkId) -> Result<Fetched, ChunkError> {
        let mut client = match client {
            Some(client) => client,
            None => {
                let endpoint = Endpoint::from_shared(format!("http://{}", self.peer.address))?;
                let channel = endpoint.connect_timeout(self.deadline).connect().await?;
                PeersClient::new(channel).max_decoding_message_size(rankguard_proto::MESSAGE_BYTES_MAX)
            }
        };
        let request = ChunkRequest {
            job: id.job.0.clone(),
            step: id.checkpoint.step.0,
            generation: id.checkpoint.generation.0,
            rank: id.rank.0,
            chunk: id.chunk,
        };
        let data = match client.fetch_chunk(request).await {
            Ok(reply) => Some(reply.into_inner().data),
            Err(status) if status.code() == Code::NotFound => None,
            Err(status) => return Err(status.into()),
        };
        Ok(Fetched { client, data })
    }
}

struct Fetched {
    client: PeersClient<Channel>,
    data: Option<Vec<u8>>,
}

impl ChunkSource for PeerSource {
    fn tier(&self) -> Tier {
        Tier::Peer
    }

    fn name(&self) -> String {
        format!("peer {}", self.peer.node)
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        let mut state = self.state.lock().expect("no holder of a peer's state panics");
        if state.silent || state.without.contains(&id.rank) {
            return Ok(None);
        }
        let fetch = tokio::time::timeout(self.deadline, self.fetch(state.client.take(), id));
        match self.handle.block_on(async { fetch.await }) {
            Ok(Ok(Fetched { client, data })) => {
                state.client = Some(client);
                if data.is_none() {
                    state.without.insert(id.rank);
                }
                Ok(data)
            }
            Ok(Err(error)) => {
                state.silent = true;
                Err(error)
            }
            Err(_) => {
                state.silent = true;
                Err(format!("no answer within {:?}", self.deadline).into())
            }
        }
    }
}
