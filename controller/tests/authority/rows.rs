//! Rows of the tables: bodies, entities and expected results.

use std::collections::BTreeMap;

use rankguard_model::{
    ClassId, Classification, CopyTier, Device, DeviceKind, Entity, EvidenceBody, EvidenceSource, FailedCheck,
    Generation, ImageLocation, JobId, NodeId, OrderId, ProcessExit, Rank, RestoreBytes, ShardSeal, Step,
};

use super::{NOW, ONE, TWO};

/// Expected result of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Expected {
    /// Journalled as sent.
    Accepted,
    /// Recorded without effect and without a finding against the sender.
    Void,
    /// Recorded without effect and with a finding against the sender.
    Refused,
}

/// Submission of one piece of evidence.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) session: &'static str,
    pub(super) entity: Entity,
    pub(super) source: EvidenceSource,
    pub(super) body: EvidenceBody,
    pub(super) marks: Vec<Classification>,
    pub(super) expected: Expected,
}

pub(super) fn progress(step: u64) -> EvidenceBody {
    EvidenceBody::Progress {
        step: Step(step),
        loss: None,
        step_ms: 3.0,
        own_ms: None,
    }
}

pub(super) fn line() -> EvidenceBody {
    EvidenceBody::Line {
        text: "RuntimeError: x".to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

pub(super) fn mark(class: &str, fields: &[(&'static str, &'static str)]) -> Classification {
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
pub(super) fn own_rank(node: &str) -> u32 {
    u32::from(node == "b")
}

pub(super) const SESSIONS: [&str; 3] = ["a", "b", "d"];

/// Returns the entity of a kind, relative to the node of a session.
pub(super) fn entity(kind: &str, session: &str) -> Entity {
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
pub(super) fn rank_bodies(session: &str, entity: &Entity) -> Vec<(&'static str, EvidenceBody)> {
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
pub(super) fn observations() -> Vec<(&'static str, EvidenceBody)> {
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
pub(super) fn answers(name: &str) -> Vec<(&'static str, EvidenceBody)> {
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
            "prepared",
            EvidenceBody::Prepared {
                job: job.clone(),
                generation,
                waiting: 1,
                problem: None,
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

pub(super) fn mirrored() -> EvidenceBody {
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
pub(super) const OBSERVATIONS: [(&str, &str); 15] = [
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
pub(super) const RANKS: [(&str, &str); 15] = [
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
pub(super) const ANSWERS: [(&str, &str); 15] = [
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
pub(super) const ORDER_FAILED: [(&str, &str); 15] = [
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
pub(super) const MIRRORED: [(&str, &str); 15] = [
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

pub(super) fn row(name: &str, session: &'static str, entity: Entity, body: EvidenceBody, letter: char) -> Row {
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
pub(super) fn table(
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
pub(super) fn contents(order: OrderId) -> Vec<Row> {
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
pub(super) fn marked() -> Vec<Row> {
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
