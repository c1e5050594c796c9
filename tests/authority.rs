//! RG-13 with the programs that people start: a session of one node tries to cordon another, to move a job's steps, to strike
//! its checkpoints off and to end it. None of it has an effect, and the node that tried is named.

use std::fs;

use crate::support::nodes::{Cluster, LIMIT};
use crate::support::until;
use rankguard_model::{
    ClassId, Classification, ClockOffset, Device, DeviceKind, Entity, Evidence, EvidenceBody, EvidenceId,
    EvidenceSource, FieldValues, Generation, JobId, NodeId, NodeInfo, ProcessExit, Rank, Role, Sequence, ShardSeal,
    Step, Timestamp,
};
use rankguard_proto::v1;
use rankguard_proto::v1::control_client::ControlClient;
use rankguard_proto::v1::from_agent::Kind;
use rankguard_proto::v1::to_agent::Kind as Heard;
use serde_json::Value;

const FORGER: &str = "n3";

fn mark(class: &str, fields: &[(&str, &str)]) -> Vec<Classification> {
    let mut all = FieldValues::new();
    for (name, value) in fields {
        all.insert((*name).to_owned(), (*value).to_owned());
    }
    vec![Classification {
        class: ClassId::from(class),
        role: Role::Root,
        confidence: 1.0,
        signature: "forged".into(),
        fields: all,
    }]
}

fn line(text: &str) -> EvidenceBody {
    EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

fn rank(rank: u32, node: &str) -> Entity {
    Entity::Rank {
        job: JobId::from("train"),
        generation: Generation(1),
        rank: Rank(rank),
        node: NodeId::from(node),
    }
}

/// Everything that a node without part in the job can say against it and its nodes.
fn forgeries(step: u64) -> Vec<(EvidenceSource, Entity, EvidenceBody, Vec<Classification>)> {
    let gpu = |node: &str, address: &str| Entity::Device {
        node: NodeId::from(node),
        device: Device {
            kind: DeviceKind::Gpu,
            address: address.to_owned(),
        },
    };
    let xid = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.";
    let lost = mark("gpu-fallen-off-bus", &[("xid", "79")]);
    let mut all = vec![
        (
            EvidenceSource::KernelLog,
            gpu("n1", "0000:9b:00"),
            line(xid),
            lost.clone(),
        ),
        (
            EvidenceSource::KernelLog,
            gpu("n2", "\u{1b}]0;owned\u{7}\u{1b}[2J\nINFO all is well"),
            line(xid),
            lost,
        ),
    ];
    for node in [FORGER, "n1", "n2"] {
        for number in [0, 1] {
            let seal = ShardSeal {
                rank: Rank(number),
                step: Step(step + 1_000),
                world_size: 2,
                index: "0".repeat(64),
                bytes: 1,
                ledger: None,
                schema: String::new(),
            };
            let progress = EvidenceBody::Progress {
                step: Step(u64::MAX),
                loss: None,
                step_ms: 1.0,
                own_ms: None,
            };
            let failed = EvidenceBody::ShardFailed {
                step: Step(step + 20),
                reason: "forged".to_owned(),
            };
            let bodies = [
                progress,
                EvidenceBody::ShardDurable { seal },
                failed,
                EvidenceBody::RankFinished,
            ];
            all.extend(bodies.map(|body| (EvidenceSource::Ranks, rank(number, node), body, Vec::new())));
            let step = step.to_string();
            let damage = mark("checkpoint-corrupt", &[("step", &step), ("generation", "1")]);
            all.push((
                EvidenceSource::Checkpoint,
                rank(number, node),
                line("it cannot be read"),
                damage,
            ));
            let exit = ProcessExit::Code(0);
            all.push((
                EvidenceSource::Ranks,
                rank(number, node),
                EvidenceBody::RankExited {
                    pid: 1,
                    exit,
                    ended_by_agent: false,
                },
                Vec::new(),
            ));
        }
    }
    all
}

/// Joins as the forger, submits all of it and waits for the acknowledgement.
async fn forge(controller: &str, all: Vec<(EvidenceSource, Entity, EvidenceBody, Vec<Classification>)>) {
    let info = NodeInfo {
        node: NodeId::from(FORGER),
        incarnation: "1".to_owned(),
        boot_id: String::new(),
        host: "127.0.0.1".to_owned(),
        peer_address: "127.0.0.1:1".to_owned(),
        image_address: "127.0.0.1:1".to_owned(),
        slots: 1,
        failure_domain: String::new(),
        running: Vec::new(),
        clock: ClockOffset::default(),
        lease_ms: 0,
        is_kernel_log_first: false,
        history: rankguard_model::NodeHistory::default(),
    };
    let count = all.len() as u64;
    let evidence = all.into_iter().zip(1..).map(|((source, entity, body, marks), seq)| {
        v1::Evidence::from(&Evidence {
            id: EvidenceId {
                node: NodeId::from(FORGER),
                seq: Sequence(seq),
            },
            at: Timestamp(1_700_000_000_000_000_000),
            source,
            entity,
            body,
            marks,
            synthetic: false,
        })
    });
    let batch = v1::EvidenceBatch {
        evidence: evidence.collect(),
    };
    let messages = [Kind::Join((&info).into()), Kind::Evidence(batch)];
    let messages = messages.map(|kind| v1::FromAgent { kind: Some(kind) });
    let mut client = ControlClient::connect(format!("http://{controller}"))
        .await
        .expect("it listens");
    // The stream stays open, as that of an agent does.
    let (say, outgoing) = tokio::sync::mpsc::channel(4);
    for message in messages {
        say.send(message).await.expect("room");
    }
    let stream = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    let mut told = client.session(stream).await.expect("a session").into_inner();
    loop {
        let message = told.message().await.expect("an open session").expect("a message");
        if matches!(message.kind, Some(Heard::Ack(ack)) if ack.sequence == count) {
            return;
        }
    }
}

#[test]
fn a_node_without_part_neither_cordons_nor_moves_nor_ends_anything() {
    let mut cluster = Cluster::start(2);
    cluster.is_forged = true;
    cluster.train("2", "20", &[]);
    let before = until("a checkpoint", LIMIT, || {
        let job = cluster.job();
        job["checkpoints"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
            .then_some(job)
    });
    let newest = before["checkpoints"]
        .as_array()
        .and_then(|all| all.last())
        .expect("there is one");
    let step = newest["step"].as_u64().expect("a step");
    let all = forgeries(step);
    let count = all.len() as u64;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let forging = forge(&cluster.address, all);
    runtime.block_on(async { tokio::time::timeout(LIMIT, forging).await.expect("it is acknowledged") });

    // The job goes on by itself, in the generation that it had, on nodes that are in use.
    let reached = step + 100;
    let job = until("the job to go on", LIMIT, || {
        let job = cluster.job();
        (job["step"].as_u64() >= Some(reached)).then_some(job)
    });
    assert_eq!(job["state"], "running", "{job}");
    assert_eq!(job["generation"], 1, "{job}");
    assert!(job["step"].as_u64() < Some(1_000_000), "{job}");
    assert_eq!(job["void_shards"], 0, "{job}");
    until("a checkpoint after the forgeries", LIMIT, || {
        let job = cluster.job();
        let newest = job["checkpoints"].as_array()?.last()?["step"].as_u64()?;
        (newest > step).then_some(())
    });
    let nodes = cluster.ask(&["status", "nodes", "--format", "json"]);
    for node in nodes.as_array().expect("nodes") {
        let refused = if node["node"] == FORGER { count } else { 0 };
        assert_eq!(node["refused_evidence"], refused, "{node}");
        assert!(node["node"] == FORGER || node["state"] == "healthy", "{node}");
    }
    let cases = cluster.ask(&["cases", "--format", "json"]);
    let against = |case: &&Value| case.to_string().contains("evidence-refused");
    let against: Vec<&Value> = cases.as_array().expect("cases").iter().filter(against).collect();
    assert_eq!((cases.as_array().map(Vec::len), against.len()), (Some(1), 1), "{cases}");
    assert!(against[0].to_string().contains(FORGER), "{cases}");

    // Text of the forger does not reach the terminal of whoever reads the log.
    let log = fs::read_to_string(cluster.dir.path().join("controller.log")).expect("a log");
    assert!(log.contains("rule foreign-node"), "{log}");
    let control = |character: char| character.is_control() && character != '\n';
    assert!(!log.contains(control), "{log:?}");
    assert!(!log.contains("\nINFO all is well"), "{log:?}");
    cluster.cancel();
}
