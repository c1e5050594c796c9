//! Minimal controller: acknowledges what the agent sends, and records when each device and each class was first
//! reported.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use rankguard_model::{Entity, Evidence};
use rankguard_proto::v1;
use rankguard_proto::v1::control_server::{Control, ControlServer};
use rankguard_proto::v1::from_agent::Kind as Up;
use rankguard_proto::v1::to_agent::Kind as Down;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::Stream;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// Capacity of the queue of answers to the agent.
const ANSWERS: usize = 64;

#[derive(Debug, Default)]
struct ReceivedReports {
    joined: bool,
    acknowledged: u64,
    /// Time of the first report, by device, by class, and by both.
    first: BTreeMap<String, Instant>,
}

/// Listening controller; closes with the runtime that it was opened in.
pub(super) struct StubController {
    seen: Arc<Mutex<ReceivedReports>>,
    address: SocketAddr,
}

impl StubController {
    pub(super) fn open() -> io::Result<Self> {
        let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = incoming.local_addr()?;
        let seen = Arc::<Mutex<ReceivedReports>>::default();
        let service = ControlServer::new(StubService(Arc::clone(&seen)));
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        Ok(Self { seen, address })
    }

    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    /// True if an agent has joined.
    pub(super) fn joined(&self) -> bool {
        lock(&self.seen).joined
    }

    /// Returns the time of the first report of `what`: a device, a class, or a device and its class with a space
    /// between them.
    pub(super) fn first_report(&self, what: &str) -> Option<Instant> {
        lock(&self.seen).first.get(what).copied()
    }
}

fn lock(seen: &Mutex<ReceivedReports>) -> MutexGuard<'_, ReceivedReports> {
    seen.lock().expect("no holder of what was seen panics")
}

struct StubService(Arc<Mutex<ReceivedReports>>);

type ReplyStream = Pin<Box<dyn Stream<Item = Result<v1::ToAgent, Status>> + Send>>;

#[tonic::async_trait]
impl Control for StubService {
    type SessionStream = ReplyStream;

    async fn session(&self, request: Request<Streaming<v1::FromAgent>>) -> Result<Response<ReplyStream>, Status> {
        let (answer, answers) = mpsc::channel(ANSWERS);
        let seen = Arc::clone(&self.0);
        let mut incoming = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(message)) = incoming.message().await {
                let reply = message.kind.and_then(|kind| handle_message(&seen, kind));
                if let Some(kind) = reply
                    && answer.send(Ok(v1::ToAgent { kind: Some(kind) })).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

fn handle_message(seen: &Mutex<ReceivedReports>, kind: Up) -> Option<Down> {
    let now = Instant::now();
    match kind {
        Up::Join(_) => {
            let mut seen = lock(seen);
            seen.joined = true;
            Some(Down::Joined(v1::Joined {
                acknowledged: seen.acknowledged,
                silence_limit_ms: 3_000,
                ..v1::Joined::default()
            }))
        }
        Up::Evidence(batch) => {
            let mut seen = lock(seen);
            for one in batch.evidence {
                let Ok(evidence) = Evidence::try_from(one) else {
                    continue;
                };
                seen.acknowledged = seen.acknowledged.max(evidence.id.seq.0);
                let device = match &evidence.entity {
                    Entity::Device { device, .. } => Some(device.address.as_str()),
                    _ => None,
                };
                let mut names: Vec<String> = device.map(str::to_owned).into_iter().collect();
                for mark in &evidence.marks {
                    names.push(mark.class.to_string());
                    names.extend(device.map(|device| format!("{device} {}", mark.class)));
                }
                for name in names {
                    seen.first.entry(name).or_insert(now);
                }
            }
            Some(Down::Ack(v1::EvidenceAck {
                sequence: seen.acknowledged,
                position: 0,
            }))
        }
        Up::Heartbeat(beat) => Some(Down::Echo(v1::HeartbeatEcho {
            sent_ns: beat.sent_ns,
            controller_ns: beat.sent_ns,
        })),
    }
}
