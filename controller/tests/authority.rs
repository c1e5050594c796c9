//! RG-13: a session may report only its own node, its devices and the ranks that were placed there. The tables cover
//! every body about every kind of entity from every kind of session, over TLS with certificates of the cluster.

mod rows;

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{self, Agent, Running, Site, job, quick_policy, settings};
use rankguard_checkpoint::Store;
use rankguard_checkpoint::format::{CheckpointId, Dtype, ShardIndex, TensorBox};
use rankguard_controller::{Settings, journal};
use rankguard_core::{Event, Policy};
use rankguard_identity::{PeerRole, PeerTransport};
use rankguard_model::{
    AgentOrder, CheckpointPolicy, Classification, Entity, Evidence, EvidenceBody, EvidenceSource, Generation, JobId,
    JobState, NodeId, NodeRange, NodeState, OrderId, ProcessExit, Rank, ShardSeal, StatusView, Step, Timestamp,
};

use rows::*;

const ONE: &str = "one";
const TWO: &str = "two";
/// Running generation of job one; the first generation failed.
const NOW: Generation = Generation(2);

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
