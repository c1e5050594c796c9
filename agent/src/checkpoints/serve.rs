//! What other agents may ask of this one.

use rankguard_checkpoint::format::CheckpointId;
use rankguard_checkpoint::source::ArenaSource;
use rankguard_model::{Generation, JobId, Rank, Step};
use rankguard_proto::v1::peers_server::Peers;
use rankguard_proto::v1::{ChunkReply, ChunkRequest};
use tonic::{Request, Response, Status};

use super::{Checkpoints, chain};

/// The Peers service.
#[derive(Debug)]
pub(crate) struct PeerService {
    pub(crate) checkpoints: Checkpoints,
}

#[tonic::async_trait]
impl Peers for PeerService {
    async fn fetch_chunk(&self, request: Request<ChunkRequest>) -> Result<Response<ChunkReply>, Status> {
        let wanted = request.into_inner();
        let arenas = self.checkpoints.shared.arenas.all(&JobId(wanted.job.clone()));
        // Copying and checking a chunk takes a millisecond or so, and other requests should not wait for it.
        let look = tokio::task::spawn_blocking(move || {
            let id = CheckpointId {
                step: Step(wanted.step),
                generation: Generation(wanted.generation),
            };
            let source = ArenaSource::new(arenas.iter().map(AsRef::as_ref));
            source.sealed_chunk(&JobId(wanted.job), id, Rank(wanted.rank), wanted.chunk)
        });
        match look.await {
            Ok(Ok(Some(data))) => Ok(Response::new(ChunkReply { data })),
            Ok(Ok(None)) => Err(Status::not_found("no such chunk in this node's memory")),
            Ok(Err(error)) => Err(Status::data_loss(chain(&error))),
            Err(error) => Err(Status::internal(format!("the checkpoint service failed: {error}"))),
        }
    }
}
