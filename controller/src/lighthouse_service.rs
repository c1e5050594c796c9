//! gRPC service of the lighthouse, on a listener of its own: torchft has neither TLS nor authentication.

use std::net::SocketAddr;
use std::time::Duration;

use rankguard_model::is_hidden;
use rankguard_proto::{Message as _, torchft};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tracing::warn;

use crate::lighthouse::{ReplicaId, ReplicaMember, ReplicaQuorum};
use crate::lighthouse_task::LighthouseInput;
use crate::session::stopping;

/// Longest wait for a quorum of a client that sets no deadline; torchft's managers set one.
const QUORUM_WAIT_MAX: Duration = Duration::from_secs(86_400);
/// Largest request, bytes.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Longest id and address of a replica, bytes.
const TEXT_BYTES_MAX: usize = 512;
/// Streams of a connection: a manager uses two.
const STREAMS_MAX: u32 = 32;
/// Interval of HTTP/2 pings, and maximum wait for the answer: the connection of a lost node ends.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Server of the lighthouse; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct LighthouseServer {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for LighthouseServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the lighthouse in a task.
pub(crate) fn serve(listener: TcpListener, inputs: mpsc::Sender<LighthouseInput>) -> std::io::Result<LighthouseServer> {
    let address = listener.local_addr()?;
    let service = torchft::lighthouse_service_server::LighthouseServiceServer::new(LighthouseService { inputs })
        .max_decoding_message_size(REQUEST_BYTES_MAX);
    let server = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(service)
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)));
    let task = tokio::spawn(async move {
        if let Err(problem) = server.await {
            warn!(%address, %problem, "the lighthouse for torchft ended");
        }
    });
    Ok(LighthouseServer { address, task })
}

/// gRPC service for torchft's managers.
#[derive(Debug)]
struct LighthouseService {
    inputs: mpsc::Sender<LighthouseInput>,
}

impl LighthouseService {
    async fn ask<T>(
        &self,
        input: impl FnOnce(oneshot::Sender<Result<T, String>>) -> LighthouseInput,
    ) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        self.inputs.send(input(reply)).await.map_err(|_| stopping())?;
        // An answer is dropped when the same replica requests again, and when the controller ends.
        let answer = answer
            .await
            .map_err(|_| Status::aborted("a later request of the same replica replaced this one"))?;
        answer.map_err(Status::resource_exhausted)
    }
}

#[tonic::async_trait]
impl torchft::lighthouse_service_server::LighthouseService for LighthouseService {
    async fn quorum(
        &self,
        request: Request<torchft::LighthouseQuorumRequest>,
    ) -> Result<Response<torchft::LighthouseQuorumResponse>, Status> {
        let content = request.into_inner().requester;
        let member = Box::new(replica_member(content).map_err(Status::invalid_argument)?);
        let wait = self.ask(|reply| LighthouseInput::Request { member, reply });
        let quorum = timeout(QUORUM_WAIT_MAX, wait).await.map_err(|_| {
            let limit = QUORUM_WAIT_MAX.as_secs();
            Status::deadline_exceeded(format!("no quorum began within {limit} s"))
        })??;
        let quorum = Some(quorum_message(&quorum));
        Ok(Response::new(torchft::LighthouseQuorumResponse { quorum }))
    }

    async fn heartbeat(
        &self,
        request: Request<torchft::LighthouseHeartbeatRequest>,
    ) -> Result<Response<torchft::LighthouseHeartbeatResponse>, Status> {
        let id = replica_id(request.into_inner().replica_id).map_err(Status::invalid_argument)?;
        self.ask(|reply| LighthouseInput::Heartbeat { id, reply }).await?;
        Ok(Response::new(torchft::LighthouseHeartbeatResponse {}))
    }
}

fn replica_member(content: Vec<u8>) -> Result<ReplicaMember, String> {
    let message = torchft::QuorumMember::decode(content.as_slice());
    let message = message.map_err(|problem| format!("`requester` is not a QuorumMember: {problem}"))?;
    let torchft::QuorumMember {
        replica_id: id,
        address,
        store_address,
        step,
        shrink_only,
        commit_failures,
    } = message;
    Ok(ReplicaMember {
        id: replica_id(id)?,
        address: checked_text("address", address)?,
        store_address: checked_text("store_address", store_address)?,
        step,
        is_shrink_only: shrink_only,
        commit_failures,
        content,
    })
}

fn replica_id(id: String) -> Result<ReplicaId, String> {
    if id.is_empty() {
        return Err("`replica_id` is empty".to_owned());
    }
    checked_text("replica_id", id).map(ReplicaId)
}

fn checked_text(field: &str, text: String) -> Result<String, String> {
    if text.len() > TEXT_BYTES_MAX || text.chars().any(is_hidden) {
        return Err(format!(
            "`{field}` is longer than {TEXT_BYTES_MAX} bytes or has control characters"
        ));
    }
    Ok(text)
}

fn quorum_message(quorum: &ReplicaQuorum) -> torchft::Quorum {
    let millis = quorum.created_at.as_millis();
    let nanos = millis.rem_euclid(1_000) * 1_000_000;
    torchft::Quorum {
        quorum_id: quorum.id,
        participants: quorum.members.iter().map(|member| member.content.clone()).collect(),
        created: Some(torchft::QuorumCreation {
            seconds: millis.div_euclid(1_000),
            nanos: i32::try_from(nanos).unwrap_or_default(),
        }),
    }
}
