//! The ways between nodes, measured pair by pair: what each agent does for it, and who measures with whom.

mod plan;
mod survey;
mod transfer;

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use rankguard_identity::{DialError, Expected, Network};
use rankguard_model::NodeId;
use rankguard_proto::v1;
use rankguard_proto::v1::links_client::LinksClient;
use rankguard_proto::v1::links_server::Links;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status};

pub use plan::{Blame, Measured, Pair, Search};
pub(crate) use survey::before_job;
pub use survey::{Survey, survey};

/// Longest a port is open, or a measurement lasts, whatever was asked for.
const LONGEST: Duration = Duration::from_secs(60);
/// Beside the measurement itself: connecting, the pings, a slow answer.
const SLACK: Duration = Duration::from_secs(5);

/// An agent that measures: its node, and the address of its peer service (`host:port`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Station {
    /// The node; with an identity, its agent must answer there.
    pub node: NodeId,
    /// Where its agent answers those who measure.
    pub address: String,
}

/// What an agent does for those who measure. Holds nothing; a port is open for one sender and one moment.
#[derive(Debug, Clone)]
pub(crate) struct LinkService {
    /// The address that ports are opened at.
    pub(crate) host: String,
}

#[tonic::async_trait]
impl Links for LinkService {
    async fn open_sink(&self, request: Request<v1::SinkRequest>) -> Result<Response<v1::SinkReply>, Status> {
        let wanted = request.into_inner();
        let word = word(&wanted.word)?;
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
        });
        Ok(Response::new(v1::SinkReply {
            port: u32::from(address.port()),
        }))
    }

    async fn measure(&self, request: Request<v1::MeasureRequest>) -> Result<Response<v1::MeasureReply>, Status> {
        let wanted = request.into_inner();
        let word = word(&wanted.word)?;
        let port = u16::try_from(wanted.port).map_err(|_| Status::invalid_argument("no TCP port"))?;
        let lasts = Duration::from_millis(wanted.duration_ms).min(LONGEST);
        let deadline = Duration::from_millis(wanted.deadline_ms).min(LONGEST);
        let send = move || transfer::send(&wanted.host, port, word, lasts, deadline);
        let measured = tokio::task::spawn_blocking(send)
            .await
            .map_err(|_| Status::internal("the sender failed"))?;
        let measured = measured.map_err(|problem| Status::unavailable(problem.to_string()))?;
        Ok(Response::new(v1::MeasureReply {
            bytes_per_s: measured.bandwidth,
            latency_s: measured.latency,
        }))
    }
}

fn word(bytes: &[u8]) -> Result<[u8; transfer::WORD], Status> {
    bytes
        .try_into()
        .map_err(|_| Status::invalid_argument(format!("a word has {} bytes", transfer::WORD)))
}

/// Has one agent send to another for a while.
///
/// What is measured goes in the clear, over a port that was agreed on through `network` and takes one sender who knows a word
/// that was agreed on there too: a cipher would be measured otherwise, and the bytes say nothing.
///
/// # Errors
///
/// In words for a person, with the side that failed.
pub async fn measure(network: &Network, from: &Station, to: &Station, lasts: Duration) -> Result<Measured, String> {
    let deadline = lasts + SLACK;
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    // A word for this one measurement, so that nobody else takes or gives its bytes.
    let word: [u8; transfer::WORD] = rankguard_identity::secret().ok_or("the system gives no random numbers")?;
    let mut receiver = client(network, to, deadline + SLACK).await?;
    let (from_address, to_address) = (&from.address, &to.address);
    let sink = v1::SinkRequest {
        word: word.to_vec(),
        deadline_ms: millis(deadline),
    };
    let port = receiver
        .open_sink(sink)
        .await
        .map_err(|status| format!("{to_address}: {}", status.message()))?;
    let host = to_address
        .rsplit_once(':')
        .map_or(to_address.as_str(), |(host, _)| host)
        .trim_matches(['[', ']'])
        .to_owned();
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
    Ok(Measured {
        bandwidth: told.bytes_per_s,
        latency: told.latency_s,
    })
}

async fn client(
    network: &Network,
    station: &Station,
    limit: Duration,
) -> Result<LinksClient<tonic::transport::Channel>, String> {
    let Station { node, address } = station;
    let endpoint =
        Endpoint::from_shared(format!("http://{address}")).map_err(|problem| format!("{address}: {problem}"))?;
    let connector = network.connector(Expected::Agent(node.clone()), SLACK);
    let channel = endpoint.timeout(limit).connect_with_connector(connector).await;
    let channel = channel.map_err(|problem| {
        // Where certificates are the matter, they are what a person must know of.
        match DialError::within(&problem) {
            Some(dial) if dial.is_about_identity() => dial.to_string(),
            _ => format!("no agent answers at {address}"),
        }
    })?;
    Ok(LinksClient::new(channel))
}
