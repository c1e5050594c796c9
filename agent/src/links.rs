//! Network links between nodes, measured pair by pair: the agent's service, and the selection of pairs.

mod contact;
mod plan;
mod survey;
#[cfg(test)]
mod tests;
mod transfer;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use rankguard_identity::{ConnectionPeer, DialError, ExpectedPeer, PeerRole, PeerTransport, RefusalReason};
use rankguard_model::{NodeId, PrintableText};
use rankguard_proto::v1;
use rankguard_proto::v1::links_client::LinksClient;
use rankguard_proto::v1::links_server::Links;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status};

use crate::lease::RankLease;

pub(crate) use contact::ask_contact;
pub use plan::{LinkBlame, LinkMeasurement, LinkSearch, NodePair};
pub(crate) use survey::before_job;
pub use survey::{LinkSurvey, survey};

use crate::membership::{JobMembership, host_of};

/// Longest time for which a port is open or a measurement lasts, whatever the request.
const LONGEST: Duration = Duration::from_secs(60);
/// Most characters of a host name that a refusal repeats.
const HOST_MAX: usize = 260;
/// Time limit beyond the measurement itself, for connecting, pings and a slow answer.
const SLACK: Duration = Duration::from_secs(5);

/// Agent that takes part in measurements: its node, and the address of its peer service (`host:port`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuringAgent {
    /// Node name; with an identity, its agent must answer there.
    pub node: NodeId,
    /// Address at which its agent serves measurements.
    pub address: String,
}

/// Most concurrent measurements, sent and received each. One survey uses a node in one at a time, but several jobs and
/// operators may measure.
const AT_ONCE: usize = 8;

/// Agent's service for measurements, and for agents that lost the controller: it opens a port for one sender and a
/// limited time, sends to such a port, and reports the age of its newest contact with the controller.
///
/// Agents measure only with the nodes that the controller named ([`JobMembership`]); operators, who may start programs on
/// every node, measure between any. Without an identity only loopback addresses are sent to.
#[derive(Debug, Clone)]
pub(crate) struct LinkService {
    /// Address at which ports are opened.
    host: String,
    network: PeerTransport,
    membership: JobMembership,
    /// Source of the age of the newest contact with the controller.
    lease: RankLease,
    sinks: Arc<Semaphore>,
    sends: Arc<Semaphore>,
}

impl LinkService {
    /// Creates a service that opens ports at `host`.
    pub(crate) fn new(host: String, network: PeerTransport, membership: JobMembership, lease: RankLease) -> Self {
        Self {
            host,
            network,
            membership,
            lease,
            sinks: Arc::new(Semaphore::new(AT_ONCE)),
            sends: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Returns the node that calls; `None` for operators, and on loopback, where callers have no names.
    fn calling_node<T>(request: &Request<T>) -> Option<NodeId> {
        let name = ConnectionPeer::of(request)?.name.clone()?;
        (name.role() == PeerRole::Agent).then(|| NodeId::from(name.own()))
    }

    fn refuse<T>(&self, request: &Request<T>, what: &str) -> Status {
        let address = ConnectionPeer::of(request).and_then(|caller| caller.address);
        self.network.refusals().record(RefusalReason::Node, address, what);
        Status::permission_denied(what)
    }

    /// Resolves the address to connect to once, so that the checked address is the one in use.
    fn target(&self, host: &str, port: u16) -> Result<SocketAddr, Status> {
        let mut found = (host, port)
            .to_socket_addrs()
            .map_err(|problem| Status::invalid_argument(format!("cannot resolve {host:?}: {problem}")))?;
        let target = found.next();
        let target = target.ok_or_else(|| Status::invalid_argument(format!("{host:?} has no address")))?;
        match self.network.may_use(target.ip()) {
            Ok(()) => Ok(target),
            Err(problem) => Err(Status::permission_denied(problem.to_string())),
        }
    }
}

fn place(room: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Status> {
    let busy = |_| Status::resource_exhausted(format!("{AT_ONCE} measurements run here already; measure again later"));
    room.clone().try_acquire_owned().map_err(busy)
}

#[tonic::async_trait]
impl Links for LinkService {
    async fn open_sink(&self, request: Request<v1::SinkRequest>) -> Result<Response<v1::SinkReply>, Status> {
        if let Some(node) = Self::calling_node(&request)
            && !self.membership.may_receive_from(&node).await
        {
            let what = format!("agent {node} may not measure with this node: the controller named no such measurement");
            return Err(self.refuse(&request, &what));
        }
        let wanted = request.into_inner();
        let word = word(&wanted.word)?;
        let place = place(&self.sinks)?;
        let deadline = Duration::from_millis(wanted.deadline_ms).min(LONGEST);
        let open = TcpListener::bind((self.host.as_str(), 0));
        // A name that only other nodes resolve to this one cannot be bound.
        let open = open.or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)));
        let listener = open.map_err(|problem| Status::internal(problem.to_string()))?;
        let address = listener
            .local_addr()
            .map_err(|problem| Status::internal(problem.to_string()))?;
        tokio::task::spawn_blocking(move || {
            if let Err(problem) = transfer::receive(&listener, word, deadline) {
                tracing::debug!(%problem, "a measurement was not received to its end");
            }
            drop(place);
        });
        Ok(Response::new(v1::SinkReply {
            port: u32::from(address.port()),
        }))
    }

    async fn measure(&self, request: Request<v1::MeasureRequest>) -> Result<Response<v1::MeasureReply>, Status> {
        if let Some(node) = Self::calling_node(&request) {
            let host = &request.get_ref().host;
            if !self.membership.may_send_to(&node, host).await {
                let what = format!(
                    "agent {node} may not have this node send to {}: the controller named no such measurement",
                    PrintableText::first(host, HOST_MAX)
                );
                return Err(self.refuse(&request, &what));
            }
        }
        let wanted = request.into_inner();
        let word = word(&wanted.word)?;
        let port = u16::try_from(wanted.port).map_err(|_| Status::invalid_argument("no TCP port"))?;
        let place = place(&self.sends)?;
        let lasts = Duration::from_millis(wanted.duration_ms).min(LONGEST);
        let deadline = Duration::from_millis(wanted.deadline_ms).min(LONGEST);
        let service = self.clone();
        let send = move || {
            let target = service.target(&wanted.host, port)?;
            let measured = transfer::send(target, word, lasts, deadline);
            drop(place);
            measured.map_err(|problem| Status::unavailable(problem.to_string()))
        };
        let measured = tokio::task::spawn_blocking(send)
            .await
            .map_err(|_| Status::internal("the sender failed"))??;
        Ok(Response::new(v1::MeasureReply {
            bytes_per_s: measured.bandwidth,
            latency_s: measured.latency,
        }))
    }

    async fn controller_contact(&self, _: Request<v1::ContactRequest>) -> Result<Response<v1::ContactReply>, Status> {
        let age = self.lease.contact_age();
        Ok(Response::new(v1::ContactReply {
            has_contact: age.is_some(),
            age_ms: age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        }))
    }
}

fn word(bytes: &[u8]) -> Result<[u8; transfer::WORD], Status> {
    bytes
        .try_into()
        .map_err(|_| Status::invalid_argument(format!("a word has {} bytes", transfer::WORD)))
}

/// Measures one agent sending to another for a while.
///
/// The bytes are sent in the clear, over a port that was agreed on through `network` and that accepts one sender with a
/// secret which was agreed on there too. A cipher would be measured along, and the bytes are not confidential.
///
/// # Errors
///
/// A message for people, with the side that failed.
pub async fn measure(
    network: &PeerTransport,
    from: &MeasuringAgent,
    to: &MeasuringAgent,
    lasts: Duration,
) -> Result<LinkMeasurement, String> {
    let deadline = lasts + SLACK;
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    // Secret of this one measurement, so that no other process sends or receives its bytes.
    let word: [u8; transfer::WORD] = rankguard_identity::secret().ok_or("the system gives no random numbers")?;
    let mut receiver = client(network, to, deadline + SLACK).await?;
    let from_address = &from.address;
    let to_address = &to.address;
    let sink = v1::SinkRequest {
        word: word.to_vec(),
        deadline_ms: millis(deadline),
    };
    let port = receiver
        .open_sink(sink)
        .await
        .map_err(|status| format!("{to_address}: {}", status.message()))?;
    let host = host_of(to_address).to_owned();
    let wanted = v1::MeasureRequest {
        host,
        port: port.into_inner().port,
        word: word.to_vec(),
        duration_ms: millis(lasts),
        deadline_ms: millis(deadline),
    };
    let mut sender = client(network, from, deadline + SLACK).await?;
    let told = sender
        .measure(wanted)
        .await
        .map_err(|status| format!("{from_address} to {to_address}: {}", status.message()))?;
    let told = told.into_inner();
    Ok(LinkMeasurement {
        bandwidth: told.bytes_per_s,
        latency: told.latency_s,
    })
}

async fn client(
    network: &PeerTransport,
    station: &MeasuringAgent,
    limit: Duration,
) -> Result<LinksClient<tonic::transport::Channel>, String> {
    client_within(network, station, SLACK, limit).await
}

async fn client_within(
    network: &PeerTransport,
    station: &MeasuringAgent,
    connect_limit: Duration,
    limit: Duration,
) -> Result<LinksClient<tonic::transport::Channel>, String> {
    let MeasuringAgent { node, address } = station;
    let endpoint =
        Endpoint::from_shared(format!("http://{address}")).map_err(|problem| format!("{address}: {problem}"))?;
    let connector = network.connector(ExpectedPeer::Agent(node.clone()), connect_limit);
    let channel = endpoint.timeout(limit).connect_with_connector(connector).await;
    let channel = channel.map_err(|problem| {
        // Certificate errors are the cause that an operator must see.
        match DialError::within(&problem) {
            Some(dial) if dial.is_about_identity() => dial.to_string(),
            _ => format!("no agent answers at {address}"),
        }
    })?;
    Ok(LinksClient::new(channel))
}
