//! RG-13: a session may report only its own node, its devices and the ranks that were placed there. The tables cover
//! every body about every kind of entity from every kind of session, over TLS with certificates of the cluster.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{self, Agent, Running, job, quick_policy, settings};
use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, Dtype, ShardIndex, TensorBox};
use rankguard_controller::{Settings, journal};
use rankguard_core::{Event, Policy};
use rankguard_identity::{CertificateAuthority, IssueRequest, PeerRole, PeerTransport, TlsIdentity};
use rankguard_model::{
    AgentOrder, CheckpointPolicy, ClassId, Classification, CopyTier, Device, DeviceKind, Entity, Evidence,
    EvidenceBody, EvidenceSource, FailedCheck, Generation, ImageLocation, JobId, JobState, NodeId, NodeRange,
    NodeState, OrderId, ProcessExit, Rank, RestoreBytes, ShardSeal, StatusView, Step, Timestamp,
};

const ONE: &str = "one";
const TWO: &str = "two";
/// Running generation of job one; the first generation failed.
const NOW: Generation = Generation(2);

/// Certificate authority and the networks of its certificate holders.
struct Site {
    dir: tempfile::TempDir,
    authority: CertificateAuthority,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        CertificateAuthority::create(&dir.path().join("ca"), "test", 9).expect("an authority");
        let authority = CertificateAuthority::open(&dir.path().join("ca")).expect("it was just made");
        Self { dir, authority }
    }

    fn network(&self, role: PeerRole, name: &str) -> PeerTransport {
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

    fn state(&self) -> std::path::PathBuf {
        self.dir.path().join("state")
    }
}

/// Cluster in which job one runs in its second generation on nodes a and b, job two on c, and d takes part in no job.
struct Cluster {
    site: Site,
    controller: Running,
    agents: BTreeMap<&'static str, Agent>,
    /// Order that was sent to node a.
    order: OrderId,
}

fn write_shard(store: &Store, rank: u32, step: u64) -> ShardSeal {
    let image = [7_u8; 64];
    let (tensors, _) = ShardIndex::lay_out([TensorBox::whole(format!("weight.{rank}"), Dtype::U8, vec![64])]);
    let id = CheckpointId {
        step: Step(step),
        generation: Generation(1),
    };
    let mut index = ShardIndex {
        image_bytes: 64,
        rank: Rank(rank),
        world_size: 2,
        tensors,
        ..ShardIndex::new(&JobId::from(ONE), id)
    };
    index.digest_image(&image);
    store.write_shard(&index, &image.as_slice()).expect("room").seal
}

/// Confirms the next fence.
async fn fenced(agent: &mut Agent) {
    loop {
        if let AgentOrder::Fence { job, generation, .. } = agent.order().await {
            return agent.fenced(&job, generation).await;
        }
    }
}

/// Starts the ranks of the next launch; returns the number of the order.
async fn launched(agent: &mut Agent) -> OrderId {
    loop {
        if let (id, AgentOrder::Launch(launch)) = agent.numbered_order().await {
            for slot in &launch.ranks {
                let rank = agent.rank(&launch.job, launch.generation, slot.rank.0);
                agent
                    .report(
                        rank.clone(),
                        EvidenceBody::RankStarted {
                            pid: 7,
                            from_standby: false,
                        },
                    )
                    .await;
                agent.report(rank, progress(5)).await;
            }
            return id;
        }
    }
}

impl Cluster {
    async fn start() -> Self {
        let site = Site::new();
        let settings = Settings {
            network: site.network(PeerRole::Controller, ""),
            policy: Policy {
                grow_ms: 3_600_000,
                ..quick_policy()
            },
            ..settings(&site.state())
        };
        let controller = Running::start_for(settings, site.network(PeerRole::Operator, "ada")).await;
        let mut agents = BTreeMap::new();
        // Nodes are chosen by name, so each job is submitted when its nodes are the free ones.
        for node in ["a", "b"] {
            let network = site.network(PeerRole::Agent, node);
            agents.insert(node, Agent::join_as(&network, controller.address, node).await);
        }
        let store = Store::open(site.dir.path().join("store")).expect("a store");
        let mut one = job(ONE);
        one.nodes = NodeRange { min: 2, max: 2 };
        one.checkpoint = Some(CheckpointPolicy {
            every_steps: 10,
            store: site.dir.path().join("store").display().to_string(),
            keep: 2,
            retention: rankguard_model::RetentionPolicy::default(),
            tiers: rankguard_model::CheckpointTiers::default(),
        });
        controller.submit(&one).await.expect("a sound job");
        for agent in agents.values_mut() {
            fenced(agent).await;
        }
        for agent in agents.values_mut() {
            launched(agent).await;
        }
        for (rank, agent) in agents.values_mut().enumerate() {
            let rank = u32::try_from(rank).expect("few");
            let seal = write_shard(&store, rank, 10);
            let entity = agent.rank(&JobId::from(ONE), Generation(1), rank);
            agent.report(entity, EvidenceBody::ShardDurable { seal }).await;
        }
        let committed = |status: &StatusView| status.jobs[0].checkpoints.len() == 1;
        controller.status_until(committed).await;
        let first = agents.get_mut("a").expect("it joined");
        let entity = first.rank(&JobId::from(ONE), Generation(1), 0);
        let exit = ProcessExit::Code(3);
        first
            .report(
                entity,
                EvidenceBody::RankExited {
                    pid: 7,
                    exit,
                    ended_by_agent: false,
                },
            )
            .await;
        for agent in agents.values_mut() {
            fenced(agent).await;
        }
        let mut orders = Vec::new();
        for agent in agents.values_mut() {
            orders.push(launched(agent).await);
        }
        for node in ["c", "d"] {
            let network = site.network(PeerRole::Agent, node);
            agents.insert(node, Agent::join_as(&network, controller.address, node).await);
            if node == "c" {
                controller.submit(&job(TWO)).await.expect("a sound job");
                let agent = agents.get_mut(node).expect("it joined");
                fenced(agent).await;
                launched(agent).await;
            }
        }
        let runs = |status: &StatusView| {
            let running = status.jobs.iter().filter(|job| job.state == JobState::Running);
            running.count() == 2 && status.jobs[0].generation == NOW && status.open_cases.is_empty()
        };
        controller.status_until(runs).await;
        Self {
            site,
            controller,
            agents,
            order: orders[0],
        }
    }

    fn agent(&mut self, node: &str) -> &mut Agent {
        self.agents.get_mut(node).expect("it joined")
    }

    /// Submits evidence and waits for its acknowledgement.
    async fn submit(&mut self, row: &Row) -> u64 {
        let agent = self.agent(row.session);
        let mut evidence = agent.evidence(1, row.entity.clone(), row.body.clone());
        evidence.source = row.source;
        evidence.marks.clone_from(&row.marks);
        let sequence = agent.submit(evidence).await;
        agent.acknowledged(sequence).await;
        sequence
    }

    async fn effects(&self) -> String {
        effects(&self.controller.status().await)
    }
}

/// Returns the state on which evidence could have had an effect: nodes, jobs and their checkpoints. Excludes the time,
/// the count of refusals, and the cases against the senders.
fn effects(status: &StatusView) -> String {
    let mut status = status.clone();
    status.at = Timestamp(0);
    status.open_cases.clear();
    for node in &mut status.nodes {
        node.refused_evidence = 0;
    }
    serde_json::to_string_pretty(&status).expect("JSON")
}

/// Expected result of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Expected {
    /// Journalled as sent.
    Accepted,
    /// Recorded without effect and without a finding against the sender.
    Void,
    /// Recorded without effect and with a finding against the sender.
    Refused,
}

/// Submission of one piece of evidence.
#[derive(Debug)]
struct Row {
    name: String,
    session: &'static str,
    entity: Entity,
    source: EvidenceSource,
    body: EvidenceBody,
    marks: Vec<Classification>,
    expected: Expected,
}

fn progress(step: u64) -> EvidenceBody {
    EvidenceBody::Progress {
        step: Step(step),
        loss: None,
        step_ms: 3.0,
        own_ms: None,
    }
}

fn line() -> EvidenceBody {
    EvidenceBody::Line {
        text: "RuntimeError: x".to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

fn mark(class: &str, fields: &[(&'static str, &'static str)]) -> Classification {
    Classification {
        class: ClassId::from(class),
        role: rankguard_model::Role::Root,
        confidence: 0.9,
        signature: "test".into(),
        fields: fields
            .iter()
            .copied()
            .collect::<BTreeMap<_, _>>()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    }
}

/// Returns the rank of job one on a node; the first rank if the node has none.
fn own_rank(node: &str) -> u32 {
    u32::from(node == "b")
}

const SESSIONS: [&str; 3] = ["a", "b", "d"];

/// Returns the entity of a kind, relative to the node of a session.
fn entity(kind: &str, session: &str) -> Entity {
    let own = NodeId::from(session);
    let other = NodeId::from(if session == "a" { "b" } else { "a" });
    let mine = own_rank(session);
    let theirs = 1 - own_rank(session);
    let rank = |generation, rank, node: &NodeId| Entity::Rank {
        job: JobId::from(ONE),
        generation,
        rank: Rank(rank),
        node: node.clone(),
    };
    let device = |node| Entity::Device {
        node,
        device: Device {
            kind: DeviceKind::Gpu,
            address: "0000:9b:00".to_owned(),
        },
    };
    let of_job = |name: &str| Entity::Job { job: JobId::from(name) };
    match kind {
        "unknown" => Entity::Unknown,
        "own-node" => Entity::Node { node: own },
        "other-node" => Entity::Node { node: other },
        "own-device" => device(own),
        "other-device" => device(other),
        "own-rank" => rank(NOW, mine, &own),
        "other-rank" => rank(NOW, theirs, &own),
        "other-rank-there" => rank(NOW, theirs, &other),
        "no-such-rank" => rank(NOW, 99, &own),
        "own-job" => of_job(ONE),
        "foreign-job" => of_job(TWO),
        "foreign-rank" => Entity::Rank {
            job: JobId::from(TWO),
            generation: Generation(1),
            rank: Rank(0),
            node: own,
        },
        "stale-rank" => rank(Generation(1), mine, &own),
        "future-rank" => rank(Generation(9), mine, &own),
        "absent-job" => of_job("ghost"),
        other => panic!("no kind of entity: {other}"),
    }
}

/// Returns the bodies that contain a rank, with the generation and rank that they contain.
fn rank_bodies(session: &str, entity: &Entity) -> Vec<(&'static str, EvidenceBody)> {
    let (rank, generation) = match entity {
        Entity::Rank { rank, generation, .. } => (*rank, *generation),
        _ => (Rank(own_rank(session)), NOW),
    };
    let seal = ShardSeal {
        // A rank outside its world is unreadable, which another test covers.
        rank: rank.min(Rank(1)),
        step: Step(20),
        world_size: 2,
        index: "0".repeat(64),
        bytes: 64,
        ledger: None,
        schema: String::new(),
    };
    let dump = "{}".to_owned();
    let reason = "no space left on device".to_owned();
    let copied = EvidenceBody::Copied {
        generation,
        step: Step(10),
        tier: CopyTier::Peer,
        to: "b".to_owned(),
        bytes: 1,
        took_ms: 1.0,
        failed: None,
    };
    vec![
        ("flight-dump", EvidenceBody::FlightDump { dump, left_out: 0 }),
        (
            "restored",
            EvidenceBody::Restored {
                step: Step(10),
                from: RestoreBytes::default(),
                took_ms: 1.0,
            },
        ),
        ("copied", copied),
        (
            "shard-sealed",
            EvidenceBody::ShardSealed {
                step: Step(20),
                stall_ms: 1.0,
                bytes: 64,
            },
        ),
        ("shard-durable", EvidenceBody::ShardDurable { seal }),
        ("shard-failed", EvidenceBody::ShardFailed { step: Step(30), reason }),
        ("progress", progress(6)),
        (
            "rank-started",
            EvidenceBody::RankStarted {
                pid: 7,
                from_standby: false,
            },
        ),
        ("rank-finished", EvidenceBody::RankFinished),
        (
            "rank-exited",
            EvidenceBody::RankExited {
                pid: 7,
                exit: ProcessExit::Code(0),
                ended_by_agent: false,
            },
        ),
    ]
}

/// Returns the bodies that every session may report about its own entities.
fn observations() -> Vec<(&'static str, EvidenceBody)> {
    let sample = EvidenceBody::Sample {
        metric: "gpu.temperature".to_owned(),
        value: 99.0,
        unit: "celsius".to_owned(),
    };
    let what = "lines".to_owned();
    let lost = Some(3);
    vec![
        ("line", line()),
        ("sample", sample),
        ("gap", EvidenceBody::Gap { what, lost }),
    ]
}

/// Returns the answers of a node to orders about a job.
fn answers(name: &str) -> Vec<(&'static str, EvidenceBody)> {
    let job = JobId::from(name);
    let generation = if name == ONE { NOW } else { Generation(1) };
    vec![
        (
            "fenced",
            EvidenceBody::Fenced {
                job: job.clone(),
                generation,
                master_port: Some(1),
                ended: 0,
                left: Vec::new(),
            },
        ),
        (
            "stopped",
            EvidenceBody::Stopped {
                job: job.clone(),
                generation,
                ended: 1,
                left: Vec::new(),
            },
        ),
        (
            "shards-finished",
            EvidenceBody::ShardsFinished {
                job: job.clone(),
                generation,
                from: ImageLocation::Arenas,
                shards: 1,
                failed: None,
            },
        ),
        (
            "preflighted",
            EvidenceBody::Preflighted {
                job,
                generation,
                failed: Vec::new(),
                environment: BTreeMap::new(),
            },
        ),
    ]
}

fn mirrored() -> EvidenceBody {
    EvidenceBody::Copied {
        generation: Generation(1),
        step: Step(10),
        tier: CopyTier::Mirror,
        to: "s3://b".to_owned(),
        bytes: 1,
        took_ms: 1.0,
        failed: None,
    }
}

/// Expected results: one letter a session, in the order of [`SESSIONS`]: A accepted, V without effect, R refused.
#[rustfmt::skip]
const OBSERVATIONS: [(&str, &str); 15] = [
    ("unknown",          "AAA"),
    ("own-node",         "AAA"),
    ("own-device",       "AAA"),
    ("own-rank",         "AAR"),
    ("own-job",          "AAR"),
    ("stale-rank",       "AAR"),
    ("other-node",       "RRR"),
    ("other-device",     "RRR"),
    ("other-rank",       "RRR"),
    ("other-rank-there", "RRR"),
    ("no-such-rank",     "RRR"),
    ("foreign-job",      "RRR"),
    ("foreign-rank",     "RRR"),
    ("future-rank",      "VVV"),
    ("absent-job",       "VVV"),
];

/// Expected results for bodies that contain a rank.
#[rustfmt::skip]
const RANKS: [(&str, &str); 15] = [
    ("stale-rank",       "AAR"),
    ("own-rank",         "AAR"),
    ("unknown",          "RRR"),
    ("own-node",         "RRR"),
    ("own-device",       "RRR"),
    ("own-job",          "RRR"),
    ("other-node",       "RRR"),
    ("other-device",     "RRR"),
    ("other-rank",       "RRR"),
    ("other-rank-there", "RRR"),
    ("no-such-rank",     "RRR"),
    ("foreign-job",      "RRR"),
    ("foreign-rank",     "RRR"),
    ("future-rank",      "VVV"),
    ("absent-job",       "VVV"),
];

/// Expected results for answers to orders about job one.
#[rustfmt::skip]
const ANSWERS: [(&str, &str); 15] = [
    ("own-node",         "AAR"),
    ("own-device",       "RRR"),
    ("unknown",          "RRR"),
    ("own-rank",         "RRR"),
    ("own-job",          "RRR"),
    ("stale-rank",       "RRR"),
    ("other-node",       "RRR"),
    ("other-device",     "RRR"),
    ("other-rank",       "RRR"),
    ("other-rank-there", "RRR"),
    ("no-such-rank",     "RRR"),
    ("foreign-job",      "RRR"),
    ("foreign-rank",     "RRR"),
    ("future-rank",      "VVV"),
    ("absent-job",       "VVV"),
];

/// Expected results for a failure of an order that was sent to node a.
#[rustfmt::skip]
const ORDER_FAILED: [(&str, &str); 15] = [
    ("own-job",          "ARR"),
    ("own-node",         "RRR"),
    ("own-device",       "RRR"),
    ("unknown",          "RRR"),
    ("own-rank",         "ARR"),
    ("stale-rank",       "ARR"),
    ("other-node",       "RRR"),
    ("other-device",     "RRR"),
    ("other-rank",       "RRR"),
    ("other-rank-there", "RRR"),
    ("no-such-rank",     "RRR"),
    ("foreign-job",      "RRR"),
    ("foreign-rank",     "RRR"),
    ("future-rank",      "VVV"),
    ("absent-job",       "VVV"),
];

/// Expected results for a copy in an object store.
#[rustfmt::skip]
const MIRRORED: [(&str, &str); 15] = [
    ("own-job",          "AAR"),
    ("own-node",         "RRR"),
    ("own-device",       "RRR"),
    ("unknown",          "RRR"),
    ("own-rank",         "RRR"),
    ("stale-rank",       "RRR"),
    ("other-node",       "RRR"),
    ("other-device",     "RRR"),
    ("other-rank",       "RRR"),
    ("other-rank-there", "RRR"),
    ("no-such-rank",     "RRR"),
    ("foreign-job",      "RRR"),
    ("foreign-rank",     "RRR"),
    ("future-rank",      "VVV"),
    ("absent-job",       "VVV"),
];

fn row(name: &str, session: &'static str, entity: Entity, body: EvidenceBody, letter: char) -> Row {
    Row {
        name: format!("{session}: {name} about {entity}"),
        session,
        entity,
        source: EvidenceSource::Ranks,
        body,
        marks: Vec::new(),
        expected: match letter {
            'A' => Expected::Accepted,
            'V' => Expected::Void,
            'R' => Expected::Refused,
            other => panic!("no outcome: {other}"),
        },
    }
}

/// Returns all rows of a table.
fn table(
    rows: &[(&str, &str)],
    bodies: impl Fn(&'static str, &Entity) -> Vec<(&'static str, EvidenceBody)>,
) -> Vec<Row> {
    let mut all = Vec::new();
    for (kind, letters) in rows {
        for (session, letter) in SESSIONS.into_iter().zip(letters.chars()) {
            let entity = entity(kind, session);
            for (name, body) in bodies(session, &entity) {
                all.push(row(name, session, entity.clone(), body, letter));
            }
        }
    }
    all
}

/// Returns submissions of node a with a permitted subject and a forbidden content.
fn contents(order: OrderId) -> Vec<Row> {
    let rank = || entity("own-rank", "a");
    let refused = |name: &str, entity: Entity, body: EvidenceBody| row(name, "a", entity, body, 'R');
    let seal = |rank: u32, world_size: u32| ShardSeal {
        rank: Rank(rank),
        step: Step(20),
        world_size,
        index: "0".repeat(64),
        bytes: 64,
        ledger: None,
        schema: String::new(),
    };
    let order_failed = |order: u64, job: &str, generation: u64| EvidenceBody::OrderFailed {
        order: OrderId(order),
        job: JobId::from(job),
        generation: Generation(generation),
        reason: "it cannot".to_owned(),
        newest: None,
    };
    let sealed = |stall_ms: f64| EvidenceBody::ShardSealed {
        step: Step(20),
        stall_ms,
        bytes: 64,
    };
    let exit = |pid: u32| EvidenceBody::RankExited {
        pid,
        exit: ProcessExit::Code(0),
        ended_by_agent: false,
    };
    let copied = EvidenceBody::Copied {
        generation: Generation(1),
        step: Step(10),
        tier: CopyTier::Peer,
        to: "b".to_owned(),
        bytes: 1,
        took_ms: 1.0,
        failed: None,
    };
    let between = EvidenceBody::Preflighted {
        job: JobId::from(ONE),
        generation: NOW,
        failed: vec![FailedCheck {
            check: "between".to_owned(),
            subject: "a".to_owned(),
            class: ClassId::from("network-slow"),
            found: String::new(),
            advice: String::new(),
        }],
        environment: BTreeMap::new(),
    };
    let mut rows = vec![
        refused("the largest step", rank(), progress(u64::MAX)),
        refused("a step beyond belief", rank(), progress(1 << 40)),
        refused(
            "the largest step of a shard",
            rank(),
            EvidenceBody::ShardFailed {
                step: Step(u64::MAX),
                reason: String::new(),
            },
        ),
        refused("a negative time", rank(), sealed(-1.0)),
        refused(
            "a shard of another rank",
            rank(),
            EvidenceBody::ShardDurable { seal: seal(1, 2) },
        ),
        refused(
            "a shard of another world",
            rank(),
            EvidenceBody::ShardDurable { seal: seal(0, 1) },
        ),
        refused("an exit of another process", rank(), exit(8)),
        refused("a copy of another generation", rank(), copied),
        refused(
            "an order of another job",
            entity("own-job", "a"),
            order_failed(order.0, ONE, 1),
        ),
        refused("an order of nobody", entity("own-job", "a"), order_failed(0, ONE, 2)),
        row(
            "an order that was never given",
            "a",
            entity("own-job", "a"),
            order_failed(u64::MAX, ONE, 2),
            'V',
        ),
        row(
            "a measurement of others that was not asked for",
            "b",
            entity("own-node", "b"),
            between,
            'R',
        ),
    ];
    for name in [TWO, "ghost"] {
        let letter = if name == TWO { 'R' } else { 'V' };
        for (body_name, body) in answers(name) {
            rows.push(row(body_name, "a", entity("own-node", "a"), body, letter));
        }
    }
    rows.extend(marked());
    rows
}

/// Returns submissions with classifications.
fn marked() -> Vec<Row> {
    let marked = |name: &str, session, entity, marks, letter| Row {
        marks,
        source: EvidenceSource::Checkpoint,
        ..row(name, session, entity, line(), letter)
    };
    let damage = |generation: &'static str, step: &'static str| {
        vec![mark(
            "checkpoint-corrupt",
            &[("generation", generation), ("step", step)],
        )]
    };
    let sure = |confidence: f64| {
        vec![Classification {
            confidence,
            ..mark("gpu-fallen-off-bus", &[])
        }]
    };
    vec![
        marked(
            "damage by a node without part",
            "d",
            entity("own-rank", "d"),
            damage("1", "10"),
            'R',
        ),
        marked(
            "damage of what was not loaded",
            "a",
            entity("own-rank", "a"),
            damage("1", "20"),
            'R',
        ),
        marked(
            "damage of another generation",
            "a",
            entity("own-rank", "a"),
            damage("2", "10"),
            'R',
        ),
        marked(
            "damage by a generation that loaded nothing",
            "a",
            entity("stale-rank", "a"),
            damage("1", "10"),
            'V',
        ),
        marked("a confidence above 1", "a", entity("own-node", "a"), sure(1.5), 'R'),
        marked("a confidence below 0", "a", entity("own-node", "a"), sure(-0.5), 'R'),
        marked(
            "a class of nobody",
            "a",
            entity("own-rank", "a"),
            vec![mark("no-such-class", &[])],
            'V',
        ),
        marked(
            "a fault of another node",
            "a",
            entity("other-node", "a"),
            sure(1.0),
            'R',
        ),
        marked(
            "a fault of another device",
            "d",
            entity("other-device", "d"),
            sure(1.0),
            'R',
        ),
        marked(
            "a fault of a job without part",
            "d",
            entity("own-job", "d"),
            sure(1.0),
            'R',
        ),
    ]
}

/// Returns the journalled evidence of each node, by sequence number.
fn recorded(state: &Path) -> BTreeMap<(NodeId, u64), Evidence> {
    let events = journal::read(state).expect("a closed journal").events;
    let evidence = events.into_iter().filter_map(|stamped| match stamped.event {
        Event::EvidenceArrived { evidence } => Some(((evidence.id.node.clone(), evidence.id.seq.0), evidence)),
        _ => None,
    });
    evidence.collect()
}

fn outcome(row: &Row, recorded: &Evidence) -> Expected {
    let own = Entity::Node {
        node: NodeId::from(row.session),
    };
    let accuses =
        |mark: &Classification| mark.class.as_str() == "evidence-refused" && mark.signature.starts_with("authority.");
    if recorded.marks.iter().any(accuses) && matches!(recorded.body, EvidenceBody::Gap { .. }) && recorded.entity == own
    {
        return Expected::Refused;
    }
    if (&recorded.body, &recorded.entity, &recorded.marks) == (&row.body, &row.entity, &row.marks) {
        return Expected::Accepted;
    }
    assert!(
        recorded.marks.is_empty() && recorded.entity == own,
        "{}: {recorded:?}",
        row.name
    );
    Expected::Void
}

#[tokio::test(flavor = "multi_thread")]
async fn rg_13_every_body_about_every_entity_by_every_session() {
    let mut cluster = Cluster::start().await;
    let order = cluster.order;
    let order_failed = EvidenceBody::OrderFailed {
        order,
        job: JobId::from(ONE),
        generation: NOW,
        reason: "it cannot".to_owned(),
        newest: None,
    };
    let mut rows = table(&OBSERVATIONS, |_, _| observations());
    rows.extend(table(&MIRRORED, |_, _| vec![("mirrored", mirrored())]));
    rows.extend(table(&RANKS, rank_bodies));
    rows.extend(table(&ANSWERS, |_, _| answers(ONE)));
    rows.extend(table(&ORDER_FAILED, |_, _| {
        vec![("order-failed", order_failed.clone())]
    }));
    rows.extend(contents(order));
    let (accepted, mut others): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| row.expected == Expected::Accepted);

    // Evidence that is not accepted has no effect.
    let before = cluster.effects().await;
    let mut sent = Vec::new();
    for row in others.drain(..) {
        let sequence = cluster.submit(&row).await;
        assert_eq!(cluster.effects().await, before, "{}", row.name);
        sent.push((row, sequence));
    }
    let refused = |sent: &[(Row, u64)], session: &str| {
        let of = sent.iter().filter(|(row, _)| row.session == session);
        of.filter(|(row, _)| row.expected == Expected::Refused).count() as u64
    };
    let status = cluster.controller.status().await;
    for node in &status.nodes {
        assert_eq!(
            node.refused_evidence,
            refused(&sent, node.node.as_str()),
            "{}",
            node.node
        );
        assert_eq!(
            node.state,
            NodeState::Healthy,
            "only a person takes {} out of use",
            node.node
        );
    }
    // There is one case against each sender, and none against any other node.
    let cases: Vec<rankguard_model::Case> = {
        let document = cluster
            .controller
            .operator()
            .await
            .list_cases(rankguard_proto::v1::Empty {})
            .await;
        serde_json::from_str(&document.expect("an answer").into_inner().json).expect("cases")
    };
    let against: Vec<String> = cases
        .iter()
        .filter(|case| case.verdict.class.as_str() == "evidence-refused")
        .map(|case| case.verdict.blamed.to_string())
        .collect();
    assert_eq!(against.len(), 3, "{against:?}");
    assert!(
        SESSIONS.iter().all(|node| against.contains(&format!("node {node}"))),
        "{against:?}"
    );
    assert!(cases.iter().all(|case| !case.clears.is_empty()));

    // Accepted evidence is journalled as sent; exits come last.
    for row in accepted {
        let sequence = cluster.submit(&row).await;
        sent.push((row, sequence));
    }
    let one = JobId::from(ONE);
    let finished = |status: &StatusView| {
        status
            .jobs
            .iter()
            .any(|job| job.spec.id == one && job.state == JobState::Finished)
    };
    cluster.controller.status_until(finished).await;
    let state = cluster.site.state();
    cluster.agents.clear();
    cluster.controller.stop().await;
    let recorded = recorded(&state);
    assert!(sent.len() > 700, "{} rows", sent.len());
    for (row, sequence) in &sent {
        let found = &recorded[&(NodeId::from(row.session), *sequence)];
        assert_eq!(outcome(row, found), row.expected, "{}: {found:?}", row.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rg_2_a_report_of_damage_is_taken_and_strikes_nothing_off_by_itself() {
    let mut cluster = Cluster::start().await;
    let row = Row {
        marks: vec![mark("checkpoint-corrupt", &[("generation", "1"), ("step", "10")])],
        source: EvidenceSource::Checkpoint,
        ..row("damage", "a", entity("own-rank", "a"), line(), 'A')
    };
    cluster.submit(&row).await;
    let status = cluster.controller.status().await;
    let accused: Vec<u64> = status.nodes.iter().map(|node| node.refused_evidence).collect();
    assert!(accused.iter().all(|count| *count == 0), "{accused:?}");
    let steps: Vec<_> = status.jobs[0].checkpoints.iter().map(|view| view.step).collect();
    assert_eq!(steps, [Step(10)], "one node's word confirms no damage");
    cluster.controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_is_started_anew_may_end_in_the_same_breath() {
    let mut cluster = Cluster::start().await;
    let agent = cluster.agent("a");
    let rank = agent.rank(&JobId::from(ONE), NOW, 0);
    let exit = ProcessExit::Code(0);
    let bodies = [
        EvidenceBody::RankStarted {
            pid: 8,
            from_standby: false,
        },
        EvidenceBody::RankExited {
            pid: 8,
            exit,
            ended_by_agent: false,
        },
    ];
    let both = bodies.map(|body| agent.evidence(0, rank.clone(), body));
    let sequence = agent.submit_all(both).await;
    agent.acknowledged(sequence).await;
    let status = cluster.controller.status().await;
    assert!(
        status.nodes.iter().all(|node| node.refused_evidence == 0),
        "{:?}",
        status.nodes
    );
    cluster.controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generation_that_is_being_fenced_has_no_ranks() {
    let site = Site::new();
    let settings = Settings {
        network: site.network(PeerRole::Controller, ""),
        ..settings(&site.state())
    };
    let controller = Running::start_for(settings, site.network(PeerRole::Operator, "ada")).await;
    let mut agent = Agent::join_as(&site.network(PeerRole::Agent, "n1"), controller.address, "n1").await;
    controller.submit(&job(ONE)).await.expect("a sound job");
    let AgentOrder::Fence { job, generation, .. } = agent.order().await else {
        panic!("a fence comes first");
    };
    // The rank reports its completion before it was launched: the job is not finished.
    let rank = agent.rank(&job, generation, 0);
    let exit = ProcessExit::Code(0);
    agent
        .report(
            rank.clone(),
            EvidenceBody::RankStarted {
                pid: 7,
                from_standby: false,
            },
        )
        .await;
    let sequence = agent
        .report(
            rank,
            EvidenceBody::RankExited {
                pid: 7,
                exit,
                ended_by_agent: false,
            },
        )
        .await;
    agent.acknowledged(sequence).await;
    let status = controller.status().await;
    assert_eq!(status.jobs[0].state, JobState::Starting);
    assert_eq!(status.nodes[0].refused_evidence, 2);
    agent.fenced(&job, generation).await;
    assert!(matches!(agent.order().await, AgentOrder::Launch(_)));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_in_the_future_is_replaced_and_a_name_with_control_characters_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    let past = agent.evidence(1, Entity::Unknown, line());
    let mut ahead = past.clone();
    ahead.at = Timestamp(i64::MAX);
    let mut before_1970 = past.clone();
    before_1970.at = Timestamp(i64::MIN);
    for evidence in [past, ahead, before_1970] {
        let sequence = agent.submit(evidence).await;
        agent.acknowledged(sequence).await;
    }
    let mut client = rankguard_proto::v1::control_client::ControlClient::new(
        common::connect(&PeerTransport::loopback(), controller.address)
            .await
            .expect("it listens"),
    );
    let info = rankguard_proto::v1::NodeInfo {
        node: "n1\u{1b}[2J".to_owned(),
        incarnation: "1".to_owned(),
        boot_id: String::new(),
        clock: Some(rankguard_proto::v1::ClockOffset::default()),
        ..rankguard_proto::v1::NodeInfo::default()
    };
    let join = rankguard_proto::v1::FromAgent {
        kind: Some(rankguard_proto::v1::from_agent::Kind::Join(info)),
    };
    let session = client.session(tokio_stream::iter([join])).await.expect("a session");
    let status = session.into_inner().message().await.expect_err("no name of a node");
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(!status.message().contains('\u{1b}'), "{:?}", status.message());
    drop(agent);
    controller.stop().await;
    let recorded = recorded(dir.path());
    let at = |seq| recorded[&(NodeId::from("n1"), seq)].at;
    assert_eq!(at(1), Timestamp(1_700_000_000_000_000_000), "evidence may be late");
    assert!(
        at(2) < Timestamp(i64::MAX) && at(2) > at(1) && at(3) > at(1),
        "{} {}",
        at(2),
        at(3)
    );
}
