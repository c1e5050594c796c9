//! Minimal controller for tests: it journals the agents' evidence, acknowledges it if enabled, and sends orders. The
//! module `agent` provides an agent.

#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test binary uses its part of this"
)]

pub mod agent;
#[path = "../../../tests/support/guard.rs"]
pub mod guard;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rankguard_model::{
    AgentOrder, Evidence, EvidenceBody, Generation, JobId, LaunchOrder, NodeInfo, OrderId, Rank, RankSlot,
};
use rankguard_proto::v1;
use rankguard_proto::v1::control_server::{Control, ControlServer};
use rankguard_proto::v1::from_agent::Kind as Up;
use rankguard_proto::v1::to_agent::Kind as Down;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// Longest wait of any test for anything, on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Address without a listener. A port that was free a moment ago may be in use by another test.
pub const NOBODY: &str = "127.0.0.1:1";

#[derive(Default)]
pub struct Journal {
    /// In order of arrival, repetitions included.
    pub evidence: Vec<Evidence>,
    pub joins: Vec<NodeInfo>,
    pub acknowledge: bool,
    pub acknowledged: u64,
    session: Option<mpsc::Sender<Result<v1::ToAgent, Status>>>,
    next_order: u64,
}

#[derive(Clone)]
pub struct FakeController {
    pub journal: Arc<Mutex<Journal>>,
    pub address: SocketAddr,
}

struct Service(Arc<Mutex<Journal>>);

type Answers = Pin<Box<dyn Stream<Item = Result<v1::ToAgent, Status>> + Send>>;

#[tonic::async_trait]
impl Control for Service {
    type SessionStream = Answers;

    async fn session(&self, request: Request<Streaming<v1::FromAgent>>) -> Result<Response<Answers>, Status> {
        let (answer, answers) = mpsc::channel(64);
        let journal = Arc::clone(&self.0);
        let mut incoming = request.into_inner();
        tokio::spawn(async move {
            while let Some(Ok(message)) = incoming.next().await {
                let reply = match message.kind {
                    Some(Up::Join(info)) => {
                        let mut journal = journal.lock().unwrap();
                        let joined = v1::Joined {
                            acknowledged: journal.acknowledged,
                            silence_limit_ms: 3_000,
                            ..v1::Joined::default()
                        };
                        // Recorded before the session is visible, so that an order does not come first.
                        let _ = answer.try_send(Ok(v1::ToAgent {
                            kind: Some(Down::Joined(joined)),
                        }));
                        journal.joins.push(info.try_into().unwrap());
                        journal.session = Some(answer.clone());
                        None
                    }
                    Some(Up::Evidence(batch)) => {
                        let mut journal = journal.lock().unwrap();
                        for one in batch.evidence {
                            journal.evidence.push(one.try_into().unwrap());
                        }
                        let newest = journal.evidence.last().map_or(0, |evidence| evidence.id.seq.0);
                        journal.acknowledge.then(|| {
                            journal.acknowledged = journal.acknowledged.max(newest);
                            Down::Ack(v1::EvidenceAck {
                                sequence: newest,
                                position: 0,
                            })
                        })
                    }
                    Some(Up::Heartbeat(beat)) => {
                        let controller_ns = beat.sent_ns;
                        Some(Down::Echo(v1::HeartbeatEcho {
                            sent_ns: beat.sent_ns,
                            controller_ns,
                        }))
                    }
                    None => None,
                };
                if let Some(kind) = reply {
                    let _ = answer.send(Ok(v1::ToAgent { kind: Some(kind) })).await;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

impl FakeController {
    pub async fn start(acknowledge: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let journal = Arc::new(Mutex::new(Journal {
            acknowledge,
            ..Journal::default()
        }));
        let service = ControlServer::new(Service(Arc::clone(&journal)));
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { journal, address }
    }

    /// Reports a void checkpoint to the agent.
    pub async fn report_void(&self, void: v1::CheckpointVoid) {
        let session = self.journal.lock().unwrap().session.clone();
        let message = v1::ToAgent {
            kind: Some(Down::Void(void)),
        };
        session.expect("an agent has joined").send(Ok(message)).await.unwrap();
    }

    pub async fn order(&self, order: &AgentOrder) -> OrderId {
        let (session, id) = {
            let mut journal = self.journal.lock().unwrap();
            journal.next_order += 1;
            (
                journal.session.clone().expect("an agent has joined"),
                journal.next_order,
            )
        };
        let frame = v1::OrderFrame {
            id,
            order: Some(order.into()),
            life: 0,
        };
        // As the controller sends them.
        let kind = match order {
            AgentOrder::Prepare(_) => Down::Prepare(frame),
            _ => Down::Order(frame),
        };
        session.send(Ok(v1::ToAgent { kind: Some(kind) })).await.unwrap();
        OrderId(id)
    }

    pub fn all(&self) -> Vec<Evidence> {
        self.journal.lock().unwrap().evidence.clone()
    }

    /// Returns the first value that `pick` finds in the journal.
    pub async fn wait<T>(&self, what: &str, pick: impl Fn(&Journal) -> Option<T>) -> T {
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(found) = pick(&self.journal.lock().unwrap()) {
                return found;
            }
            let seen: Vec<String> = self
                .all()
                .iter()
                .map(|evidence| format!("{:?}", evidence.body))
                .collect();
            assert!(Instant::now() < until, "no {what} within {LIMIT:?}; seen: {seen:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn wait_body<T>(&self, what: &str, pick: impl Fn(&EvidenceBody) -> Option<T>) -> T {
        self.wait(what, |journal| {
            journal.evidence.iter().find_map(|evidence| pick(&evidence.body))
        })
        .await
    }

    pub async fn joined(&self, times: usize) {
        self.wait("join", |journal| (journal.joins.len() >= times).then_some(()))
            .await;
    }
}

pub fn launch(generation: u64, command: &[&str]) -> LaunchOrder {
    LaunchOrder {
        job: JobId::from("train"),
        generation: Generation(generation),
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        env: std::collections::BTreeMap::new(),
        workdir: None,
        world_size: 1,
        group_rank: 0,
        ranks: vec![RankSlot {
            rank: Rank(0),
            local_rank: 0,
        }],
        master_addr: "127.0.0.1".to_owned(),
        master_port: 29_500,
        restart_count: 0,
        max_restarts: 3,
        checkpoint_every: 0,
        checkpoint_store: String::new(),
        restore: None,
        peers: Vec::new(),
        nodes: Vec::new(),
        tiers: rankguard_model::CheckpointTiers::default(),
        user: None,
        standby: None,
    }
}

/// Returns true if a process exists and is not a zombie.
pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

pub async fn gone(pid: u32) -> bool {
    let until = Instant::now() + LIMIT;
    while lives(pid) && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    !lives(pid)
}
