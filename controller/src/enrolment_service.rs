//! Connections of nodes without a certificate, one request each, and the renewal of certificates.
//!
//! The client is not authenticated before its request is checked. So a connection has a deadline, a bounded request, and a
//! place among few.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rankguard_identity::{ConnectionPeer, EnrolmentListener, PeerStream};
use rankguard_proto::frame::{self, FrameReader};
use rankguard_proto::v1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::{Request, Response, Status};
use tracing::debug;

use crate::enrolment::Enrolment;

/// Connections at a time; further ones are closed.
const CONNECTIONS_MAX: usize = 64;
/// Time limit of a connection.
const EXCHANGE_DEADLINE: Duration = Duration::from_secs(10);
/// Largest request, bytes.
const REQUEST_BYTES_MAX: usize = 16 << 10;

/// Serves the connections of nodes without a certificate. Dropping the future ends them.
pub(crate) async fn serve_enrolment(mut listener: EnrolmentListener, enrolment: Enrolment) -> Infallible {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut exchanges = JoinSet::new();
    loop {
        while exchanges.try_join_next().is_some() {}
        let Some(stream) = listener.next().await else {
            return std::future::pending().await;
        };
        let Ok(place) = room.clone().try_acquire_owned() else {
            continue;
        };
        let enrolment = enrolment.clone();
        exchanges.spawn(async move {
            match timeout(EXCHANGE_DEADLINE, exchange(stream, enrolment)).await {
                Ok(Ok(())) => {}
                Ok(Err(problem)) => debug!(%problem, "a node without a certificate ended its connection"),
                Err(_) => debug!("a node without a certificate sent no request in time"),
            }
            drop(place);
        });
    }
}

/// Reads one request and answers it.
async fn exchange(mut stream: PeerStream, enrolment: Enrolment) -> std::io::Result<()> {
    let mut reader = FrameReader::new();
    reader.limit(REQUEST_BYTES_MAX, None);
    let mut bytes = [0; 4 << 10];
    let request = loop {
        let next = reader.next::<v1::EnrolRequest>();
        if let Some(request) = next.map_err(std::io::Error::other)? {
            break request;
        }
        match stream.read(&mut bytes).await? {
            0 => return Ok(()),
            count => reader.push(&bytes[..count]),
        }
    };
    let address = stream.caller().address;
    let result = match enrolment.enrol(address, request).await {
        Ok(certificate) => v1::enrol_reply::Result::Certificate(certificate),
        Err(refusal) => v1::enrol_reply::Result::Refusal(v1::EnrolRefusal {
            reason: refusal.reason,
            hint: refusal.hint.to_owned(),
        }),
    };
    let reply = v1::EnrolReply { result: Some(result) };
    stream.write_all(&frame::encode(&reply)).await?;
    stream.flush().await?;
    stream.shutdown().await
}

/// gRPC service for agents that renew their certificates.
#[derive(Debug)]
pub(crate) struct RenewalService {
    enrolment: Enrolment,
}

impl RenewalService {
    pub(crate) fn new(enrolment: Enrolment) -> Self {
        Self { enrolment }
    }
}

#[tonic::async_trait]
impl v1::certificate_renewal_server::CertificateRenewal for RenewalService {
    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::AgentCertificate>, Status> {
        let peer = ConnectionPeer::of(&request).cloned();
        let peer = peer.ok_or_else(|| Status::internal("the caller of this request is unknown"))?;
        let v1::RenewRequest { request } = request.into_inner();
        Ok(Response::new(self.enrolment.renew(peer, request).await?))
    }
}
