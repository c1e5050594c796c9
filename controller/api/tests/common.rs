//! A state with nodes, jobs and cases, made from events as a controller receives them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{HeaderMap, Request, StatusCode};
use rankguard_access::{AccessRole, AuditLog, NewToken, TokenScope, TokenStore};
use rankguard_api::{
    ApiAccess, ApiService, Change, ChangeExecutor, ChangeFuture, ChangeRefusal, ChangeRequest, ControllerHealth,
    StateFeed, StateReader,
};
use rankguard_core::{DecisionState, Event, Policy, StampedEvent, step};
use rankguard_faults::Catalogue;
use rankguard_identity::{ConnectionPeer, RefusalCounters};
use rankguard_model::{
    CaseId, CaseNote, CaseNoteKind, CheckpointPolicy, CheckpointTiers, CheckpointView, Classification, ClockOffset,
    Device, DeviceKind, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, FieldValues, Generation, JobId,
    JobSpec, NodeHistory, NodeId, NodeInfo, NodeRange, RetentionPolicy, Role, RunId, RunStart, Sequence, Step,
    StoreClaim, Timestamp,
};

/// Names of nodes and jobs that are hard to write in paths.
pub(crate) const ODD_NAMES: [&str; 4] = ["näme 中", "a/b", "x%00y", "q?a=b&c"];

/// Cluster as the decision core sees it.
pub(crate) struct SampleCluster {
    pub(crate) state: DecisionState,
    pub(crate) events: Vec<StampedEvent>,
    pub(crate) now: Timestamp,
    sequence: u64,
    /// Tokens and audit log.
    pub(crate) dir: tempfile::TempDir,
    /// Changes that the service has carried out.
    pub(crate) changes: Arc<RecordedChanges>,
}

/// Executor that records changes, and refuses those of a node `absent`.
#[derive(Default)]
pub(crate) struct RecordedChanges(Mutex<Vec<Change>>);

impl RecordedChanges {
    pub(crate) fn count(&self) -> usize {
        self.0.lock().expect("sound").len()
    }
}

struct SharedChanges(Arc<RecordedChanges>);

impl ChangeExecutor for SharedChanges {
    fn execute(&self, request: ChangeRequest) -> ChangeFuture {
        let recorded = Arc::clone(&self.0);
        Box::pin(async move {
            if request.change.target() == "absent" {
                return Err(ChangeRefusal::Absent("there is no node absent".to_owned()));
            }
            let mut changes = recorded.0.lock().expect("sound");
            changes.push(request.change);
            Ok(changes.len() as u64)
        })
    }
}

impl SampleCluster {
    /// Creates a cluster without nodes.
    pub(crate) fn empty() -> Self {
        Self {
            state: DecisionState::new(Policy::default(), Catalogue::builtin()),
            events: Vec::new(),
            now: Timestamp::from_millis(1_764_000_000_000),
            sequence: 0,
            dir: tempfile::tempdir().expect("a folder"),
            changes: Arc::default(),
        }
    }

    /// Creates a cluster with `nodes` nodes, a running job on half of them, and `cases` cases of broken GPUs.
    pub(crate) fn new(nodes: u32, cases: u32) -> Self {
        let mut cluster = Self::empty();
        cluster.apply(Event::ControllerStarted);
        for number in 0..nodes {
            cluster.join(&node_name(number));
        }
        for name in ODD_NAMES {
            cluster.join(name);
        }
        cluster.submit("train", nodes / 2);
        cluster.submit("waits", nodes * 10);
        cluster.submit("näme-中", 1);
        cluster.apply(Event::NodeCordoned {
            node: node_name(nodes - 1).into(),
            reason: "a new fan\u{0}\u{202e}".to_owned(),
        });
        for number in 0..cases {
            cluster.break_gpu(&node_name(number % nodes), number);
        }
        cluster.settle();
        cluster
    }

    /// Applies an event a millisecond later.
    pub(crate) fn apply(&mut self, event: Event) {
        self.now = Timestamp(self.now.0 + 1_000_000);
        let stamped = StampedEvent { at: self.now, event };
        let _ = step(&mut self.state, &stamped);
        self.events.push(stamped);
    }

    /// Fires the timers of the next 30 s.
    pub(crate) fn settle(&mut self) {
        let until = Timestamp(self.now.0 + 30_000_000_000);
        for _ in 0..1_000 {
            let timers = self.state.timers().iter();
            let Some((timer, at)) = timers
                .min_by_key(|(_, at)| **at)
                .map(|(timer, at)| (timer.clone(), *at))
            else {
                break;
            };
            if at > until {
                break;
            }
            self.now = self.now.max(at);
            self.apply(Event::TimerFired { timer });
        }
        self.now = self.now.max(until);
    }

    pub(crate) fn join(&mut self, name: &str) {
        self.join_in(name, "rack1");
    }

    /// Adds a node of a failure domain.
    pub(crate) fn join_in(&mut self, name: &str, failure_domain: &str) {
        let info = NodeInfo {
            node: name.into(),
            incarnation: "1".to_owned(),
            boot_id: "boot".to_owned(),
            host: "127.0.0.1".to_owned(),
            peer_address: "127.0.0.1:1".to_owned(),
            image_address: String::new(),
            slots: 8,
            failure_domain: failure_domain.to_owned(),
            running: Vec::new(),
            clock: ClockOffset::default(),
            lease_ms: 30_000,
            is_kernel_log_first: true,
            history: NodeHistory::default(),
        };
        self.apply(Event::NodeJoined { info });
    }

    pub(crate) fn submit(&mut self, name: &str, nodes: u32) {
        self.submit_command(name, nodes, &["train", "--secret"]);
    }

    /// Submits a job with this command.
    pub(crate) fn submit_command(&mut self, name: &str, nodes: u32, command: &[&str]) {
        let spec = JobSpec {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            ..spec(name, nodes)
        };
        self.apply(Event::JobSubmitted { spec, claim: None });
    }

    /// Submits a job that starts from the newest of the checkpoints of these steps, of which its rules retain `keep`.
    pub(crate) fn resume(&mut self, name: &str, keep: u32, steps: &[u64]) {
        let view = |step: u64| CheckpointView {
            step: Step(step),
            generation: Generation(1),
            world_size: 8,
            bytes: 1,
            committed_at: self.now,
            stall_ms: Vec::new(),
            copied: 0,
            in_parity: 0,
            mirrored_at: None,
        };
        let checkpoints: Vec<CheckpointView> = steps.iter().copied().map(view).collect();
        let start = checkpoints.last().map(|newest| RunStart {
            job: name.into(),
            store: None,
            run: None,
            step: newest.step,
            generation: newest.generation,
        });
        let claim = StoreClaim {
            run: RunId::from("a"),
            first: Generation(2),
            start,
            checkpoints,
            same_size: Vec::new(),
            passed_over: Vec::new(),
        };
        let spec = JobSpec {
            checkpoint: Some(CheckpointPolicy {
                every_steps: 10,
                store: "/store".to_owned(),
                keep,
                retention: RetentionPolicy::default(),
                tiers: CheckpointTiers::default(),
            }),
            ..spec(name, 1)
        };
        self.apply(Event::JobSubmitted {
            spec,
            claim: Some(Box::new(claim)),
        });
    }

    /// Reports a GPU that has fallen off the bus, with 32 KiB of text.
    pub(crate) fn break_gpu(&mut self, node: &str, number: u32) {
        let text = format!("NVRM: Xid 79 <script>\u{202e} {}", "ü".repeat(16 << 10));
        self.report_gpu(node, &format!("0000:{:02x}:00", number % 8), text);
    }

    /// Reports a GPU that has fallen off the bus, with the line of its driver.
    pub(crate) fn report_gpu(&mut self, node: &str, address: &str, text: String) {
        let device = Device {
            kind: DeviceKind::Gpu,
            address: address.to_owned(),
        };
        self.report_device(node, device, text, ("gpu-fallen-off-bus", Role::Root, "xid-79"));
    }

    /// Reports that a link is up, which is no sign of a failure.
    pub(crate) fn report_link_up(&mut self, node: &str, address: &str) {
        let device = Device {
            kind: DeviceKind::Nic,
            address: address.to_owned(),
        };
        let text = format!("infiniband {address}: Port: 1 Link ACTIVE");
        self.report_device(node, device, text, ("none", Role::Noise, "nic-link-up"));
    }

    fn report_device(&mut self, node: &str, device: Device, text: String, mark: (&str, Role, &'static str)) {
        self.sequence += 1;
        let (class, role, signature) = mark;
        let mark = Classification {
            class: class.into(),
            role,
            confidence: 0.9,
            signature: signature.into(),
            fields: FieldValues::new(),
        };
        let evidence = Evidence {
            id: EvidenceId {
                node: node.into(),
                seq: Sequence(self.sequence),
            },
            at: self.now,
            source: EvidenceSource::KernelLog,
            entity: Entity::Device {
                node: node.into(),
                device,
            },
            body: EvidenceBody::Line {
                text,
                context: Vec::new(),
                repeats: 1,
            },
            marks: vec![mark],
            synthetic: false,
        };
        self.apply(Event::EvidenceArrived { evidence });
    }

    /// Adds a note to each case.
    pub(crate) fn note_cases(&mut self, text: &str) {
        let ids: Vec<CaseId> = self.state.cases().keys().copied().collect();
        for case in ids {
            self.note_case(case, "ada", CaseNoteKind::Comment, text);
        }
    }

    /// Adds a note to a case.
    pub(crate) fn note_case(&mut self, case: CaseId, by: &str, kind: CaseNoteKind, text: &str) {
        let note = CaseNote {
            at: Timestamp::default(),
            by: by.to_owned(),
            kind,
            text: text.to_owned(),
        };
        self.apply(Event::CaseNoted { case, note });
    }

    /// Creates a token; it must precede the service, which reads the file once.
    pub(crate) fn token(&self, role: AccessRole, scope: TokenScope) -> String {
        let store = TokenStore::open(self.dir.path()).expect("sound");
        let request = NewToken {
            name: format!("{role}-{}", store.list(self.now).len()),
            role,
            scope,
            valid: Duration::from_secs(3_600),
        };
        let (_, secret) = store.create(&request, "local", self.now).expect("created");
        secret.expose().to_owned()
    }

    /// Serves the state.
    pub(crate) fn service(&self) -> (ApiService, StateFeed, StateReader) {
        let (feed, reader) = StateFeed::start(self.state.clone(), self.now, 7).expect("a thread");
        let health = Arc::new(Healthy(self.now));
        let access = ApiAccess {
            tokens: TokenStore::open(self.dir.path()).expect("sound"),
            audit: AuditLog::open(self.dir.path(), self.now).expect("opened"),
            changes: Arc::new(SharedChanges(Arc::clone(&self.changes))),
        };
        let service = ApiService::new(reader.clone(), health, RefusalCounters::default(), access);
        (service, feed, reader)
    }
}

fn spec(name: &str, nodes: u32) -> JobSpec {
    JobSpec {
        id: name.into(),
        command: vec!["train".to_owned(), "--secret".to_owned()],
        env: BTreeMap::from([("TOKEN".to_owned(), "hidden-credential".to_owned())]),
        workdir: None,
        nodes: NodeRange { min: nodes, max: nodes },
        ranks_per_node: 8,
        checkpoint: None,
        max_restarts: 3,
        user: None,
        resume_from: None,
        standby: None,
    }
}

struct Healthy(Timestamp);

impl ControllerHealth for Healthy {
    fn live(&self) -> Result<(), String> {
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        Err("the journal cannot be written".to_owned())
    }

    fn now(&self) -> Timestamp {
        self.0
    }
}

pub(crate) fn node_name(number: u32) -> String {
    format!("n{number:05}")
}

/// Local client without a certificate.
pub(crate) fn local() -> ConnectionPeer {
    ConnectionPeer::plain(None)
}

/// Answer to a request.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|problem| panic!("{problem}: {:?}", self.body))
    }
}

/// Sends GET with headers; `None` if the URI cannot be written.
pub(crate) async fn get_with(service: &ApiService, uri: &str, headers: &[(&str, &str)]) -> Option<Answer> {
    let mut request = Request::builder().uri(uri).header("host", "127.0.0.1:1");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).ok()?;
    let response = service.handle(request, &local()).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    Some(Answer {
        status: parts.status,
        headers: parts.headers,
        body,
    })
}

pub(crate) async fn get(service: &ApiService, uri: &str) -> Answer {
    get_with(service, uri, &[]).await.expect("a URI")
}

/// Returns the names of all jobs of a sample.
pub(crate) fn job_names(state: &DecisionState) -> Vec<JobId> {
    state.jobs().keys().cloned().collect()
}

/// Returns the names of all nodes of a sample.
pub(crate) fn node_names(state: &DecisionState) -> Vec<NodeId> {
    state.fleet().iter().map(|(name, _)| name.clone()).collect()
}
