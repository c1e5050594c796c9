//! Controller in this process and a fake agent that connects to it over loopback.

#![allow(dead_code, reason = "each suite uses its part")]

pub(crate) mod process;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rankguard_controller::{ControllerError, Settings, ShutdownReport, read_address, run};
use rankguard_core::Policy;
use rankguard_identity::{CertificateAuthority, ExpectedPeer, IssueRequest, PeerRole, PeerTransport, TlsIdentity};
use rankguard_model::{
    AgentOrder, ClockOffset, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, Generation, JobId, JobSpec,
    NodeId, NodeInfo, NodeRange, OrderId, Rank, Sequence, StatusView, Timestamp,
};
use rankguard_proto::v1;
use rankguard_proto::v1::control_client::ControlClient;
use rankguard_proto::v1::from_agent::Kind as Up;
use rankguard_proto::v1::operator_client::OperatorClient;
use rankguard_proto::v1::to_agent::Kind as Down;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// Time limit of every wait.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Returns a policy with short waits for further nodes and evidence.
pub(crate) fn quick_policy() -> Policy {
    Policy {
        settle_ms: 50,
        gather_ms: 10,
        grow_ms: 50,
        ..Policy::default()
    }
}

pub(crate) fn settings(state_dir: &Path) -> Settings {
    Settings {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        silence_limit: Duration::from_secs(30),
        policy: quick_policy(),
        ..Settings::new(state_dir)
    }
}

/// Creates a connection to a controller.
pub(crate) async fn connect(network: &PeerTransport, address: SocketAddr) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let connector = network.connector(ExpectedPeer::Controller, DEADLINE);
    endpoint.connect_with_connector(connector).await
}

/// Certificate authority and the networks of its certificate holders.
pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
    authority: CertificateAuthority,
}

impl Site {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        CertificateAuthority::create(&dir.path().join("ca"), "test", 9).expect("an authority");
        let authority = CertificateAuthority::open(&dir.path().join("ca")).expect("it was just made");
        Self { dir, authority }
    }

    pub(crate) fn network(&self, role: PeerRole, name: &str) -> PeerTransport {
        let wanted = IssueRequest {
            role,
            name: name.to_owned(),
            hosts: vec!["127.0.0.1".to_owned()],
            days: 5,
        };
        let issued = self
            .authority
            .issue(&wanted, &self.dir.path().join(format!("{role}{name}")));
        PeerTransport::with(TlsIdentity::new(issued.expect("issued").1))
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }
}

/// Controller that runs in this process.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    /// Network of operators.
    network: PeerTransport,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<ShutdownReport, ControllerError>>,
}

impl Running {
    pub(crate) async fn start(settings: Settings) -> Self {
        Self::start_for(settings, PeerTransport::loopback()).await
    }

    /// Starts a controller whose operators use this network.
    pub(crate) async fn start_for(settings: Settings, network: PeerTransport) -> Self {
        let state_dir = settings.state_dir.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(run(settings, async {
            let _ = stopped.await;
        }));
        let begin = Instant::now();
        loop {
            assert!(!task.is_finished(), "the controller ended: {:?}", task.await);
            // The file may come from an earlier start: only an answer counts.
            if let Ok(address) = read_address(&state_dir)
                && connect(&network, address).await.is_ok()
            {
                return Self {
                    address,
                    network,
                    stop,
                    task,
                };
            }
            assert!(begin.elapsed() < DEADLINE, "the controller does not listen");
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn stop(self) -> ShutdownReport {
        self.stop.send(()).expect("it runs");
        let ended = timeout(DEADLINE, self.task).await.expect("it stops when asked");
        ended.expect("no panic").expect("a clean end")
    }

    pub(crate) async fn operator(&self) -> OperatorClient<Channel> {
        OperatorClient::new(connect(&self.network, self.address).await.expect("it listens"))
    }

    pub(crate) async fn status(&self) -> StatusView {
        let document = self
            .operator()
            .await
            .get_status(v1::Empty {})
            .await
            .expect("an answer")
            .into_inner();
        serde_json::from_str(&document.json).expect("a status")
    }

    /// Polls the status until it meets the condition.
    pub(crate) async fn status_until(&self, wanted: impl Fn(&StatusView) -> bool) -> StatusView {
        let begin = Instant::now();
        loop {
            let status = self.status().await;
            if wanted(&status) {
                return status;
            }
            assert!(begin.elapsed() < DEADLINE, "never as wanted: {status:#?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn submit(&self, spec: &JobSpec) -> Result<(), Status> {
        self.operator()
            .await
            .submit_job(v1::JobSpec::from(spec))
            .await
            .map(drop)
    }
}

pub(crate) fn job(name: &str) -> JobSpec {
    JobSpec {
        id: JobId::from(name),
        command: vec!["train".to_owned()],
        env: std::collections::BTreeMap::new(),
        workdir: None,
        nodes: NodeRange { min: 1, max: 1 },
        ranks_per_node: 1,
        checkpoint: None,
        max_restarts: 3,
        user: None,
        resume_from: None,
        standby: None,
    }
}

/// Agent's end of a session.
pub(crate) struct Agent {
    pub(crate) node: NodeId,
    /// Newest acknowledged sequence number, as reported by the controller.
    pub(crate) acknowledged: u64,
    pub(crate) silence_limit_ms: u64,
    sequence: u64,
    up: mpsc::Sender<v1::FromAgent>,
    down: Streaming<v1::ToAgent>,
}

impl Agent {
    pub(crate) async fn join(address: SocketAddr, node: &str) -> Self {
        Self::join_as(&PeerTransport::loopback(), address, node).await
    }

    /// Joins with an identity.
    pub(crate) async fn join_as(network: &PeerTransport, address: SocketAddr, node: &str) -> Self {
        let info = NodeInfo {
            node: NodeId::from(node),
            incarnation: "first".to_owned(),
            boot_id: String::new(),
            host: "127.0.0.1".to_owned(),
            peer_address: "127.0.0.1:1".to_owned(),
            image_address: "127.0.0.1:1".to_owned(),
            slots: 2,
            failure_domain: String::new(),
            running: Vec::new(),
            clock: ClockOffset::default(),
            lease_ms: 0,
            is_kernel_log_first: false,
            history: rankguard_model::NodeHistory::default(),
        };
        let (up, messages) = mpsc::channel(16);
        let mut client = ControlClient::new(connect(network, address).await.expect("it listens"));
        // The stream is opened before a message is sent in it; the controller must respond nevertheless.
        let down = client
            .session(ReceiverStream::new(messages))
            .await
            .expect("a session")
            .into_inner();
        let mut agent = Self {
            node: info.node.clone(),
            acknowledged: 0,
            silence_limit_ms: 0,
            sequence: 0,
            up,
            down,
        };
        agent.say(Up::Join((&info).into())).await;
        let Down::Joined(joined) = agent.next().await else {
            panic!("`joined` comes first")
        };
        agent.acknowledged = joined.acknowledged;
        agent.silence_limit_ms = joined.silence_limit_ms;
        agent.sequence = joined.acknowledged;
        agent
    }

    pub(crate) async fn say(&self, kind: Up) {
        self.up
            .send(v1::FromAgent { kind: Some(kind) })
            .await
            .expect("an open session");
    }

    pub(crate) async fn message(&mut self) -> Result<Option<v1::ToAgent>, Status> {
        timeout(DEADLINE, self.down.message()).await.expect("a message in time")
    }

    pub(crate) async fn next(&mut self) -> Down {
        self.message()
            .await
            .expect("an open session")
            .expect("a message")
            .kind
            .expect("a known kind")
    }

    /// Sends this body as the next piece of evidence.
    pub(crate) async fn report(&mut self, entity: Entity, body: EvidenceBody) -> u64 {
        self.sequence += 1;
        let evidence = self.evidence(self.sequence, entity, body);
        self.bring([&evidence]).await;
        self.sequence
    }

    pub(crate) fn evidence(&self, seq: u64, entity: Entity, body: EvidenceBody) -> Evidence {
        Evidence {
            id: EvidenceId {
                node: self.node.clone(),
                seq: Sequence(seq),
            },
            at: Timestamp(1_700_000_000_000_000_000),
            source: EvidenceSource::Ranks,
            entity,
            body,
            marks: Vec::new(),
            synthetic: false,
        }
    }

    pub(crate) async fn bring(&self, evidence: impl IntoIterator<Item = &Evidence>) {
        let evidence = evidence.into_iter().map(Into::into).collect();
        self.say(Up::Evidence(v1::EvidenceBatch { evidence })).await;
    }

    /// Reads until exactly this sequence number is acknowledged.
    pub(crate) async fn acknowledged(&mut self, sequence: u64) {
        loop {
            if let Down::Ack(ack) = self.next().await
                && ack.sequence >= sequence
            {
                assert_eq!(ack.sequence, sequence, "more was acknowledged than was sent");
                return;
            }
        }
    }

    /// Reads until this sequence number, or a later one, is acknowledged.
    pub(crate) async fn acknowledged_up_to(&mut self, sequence: u64) {
        loop {
            if let Down::Ack(ack) = self.next().await
                && ack.sequence >= sequence
            {
                return;
            }
        }
    }

    /// Reads until an order arrives.
    pub(crate) async fn order(&mut self) -> AgentOrder {
        self.numbered_order().await.1
    }

    /// Reads until an order arrives; returns its number as well.
    pub(crate) async fn numbered_order(&mut self) -> (OrderId, AgentOrder) {
        loop {
            if let Down::Order(frame) = self.next().await {
                let order = AgentOrder::try_from(frame.order.expect("an order")).expect("an order of this version");
                return (OrderId(frame.id), order);
            }
        }
    }

    /// Sends this piece next, regardless of its sequence number.
    pub(crate) async fn submit(&mut self, evidence: Evidence) -> u64 {
        self.submit_all([evidence]).await
    }

    /// Sends these pieces next, in one message.
    pub(crate) async fn submit_all(&mut self, evidence: impl IntoIterator<Item = Evidence>) -> u64 {
        let mut all = Vec::new();
        for mut one in evidence {
            self.sequence += 1;
            one.id.seq = Sequence(self.sequence);
            all.push(one);
        }
        self.bring(&all).await;
        self.sequence
    }

    /// Confirms a fence with a port.
    pub(crate) async fn fenced(&mut self, job: &JobId, generation: Generation) {
        let entity = Entity::Node {
            node: self.node.clone(),
        };
        let body = EvidenceBody::Fenced {
            job: job.clone(),
            generation,
            master_port: Some(29_500),
            ended: 0,
            left: Vec::new(),
        };
        self.report(entity, body).await;
    }

    pub(crate) fn rank(&self, job: &JobId, generation: Generation, rank: u32) -> Entity {
        Entity::Rank {
            job: job.clone(),
            generation,
            rank: Rank(rank),
            node: self.node.clone(),
        }
    }
}
