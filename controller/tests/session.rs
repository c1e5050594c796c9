//! Agents and the controller over loopback.

use std::time::Duration;

use crate::common::{Agent, Running, job, settings};
use rankguard_controller::{Settings, journal};
use rankguard_core::Event;
use rankguard_model::{Entity, EvidenceBody, NodeId, NodeState};
use rankguard_proto::v1;
use rankguard_proto::v1::from_agent::Kind as Up;
use rankguard_proto::v1::to_agent::Kind as Down;
use tokio::time::Instant;
use tonic::Code;

fn line(text: &str) -> EvidenceBody {
    EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

#[tokio::test]
async fn evidence_is_acknowledged_and_journalled_once_however_often_it_is_sent() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    assert_eq!((agent.acknowledged, agent.silence_limit_ms), (0, 30_000));
    let all: Vec<_> = (1..=5)
        .map(|seq| agent.evidence(seq, Entity::Unknown, line("a")))
        .collect();
    agent.bring(&all[..3]).await;
    agent.acknowledged(3).await;
    // An acknowledgement may have been lost: all evidence may be resent.
    agent.bring(&all[..2]).await;
    agent.acknowledged(3).await;
    agent.bring(&all).await;
    agent.acknowledged(5).await;
    drop(agent);
    let agent = Agent::join(controller.address, "n1").await;
    assert_eq!(agent.acknowledged, 5, "the number is the node's, not the session's");
    let ended = controller.stop().await;

    let recording = journal::read(dir.path()).expect("a closed journal");
    assert_eq!(recording.events.len() as u64, ended.events);
    let sequences: Vec<u64> = recording
        .events
        .iter()
        .filter_map(|stamped| match &stamped.event {
            Event::EvidenceArrived { evidence } => Some(evidence.id.seq.0),
            _ => None,
        })
        .collect();
    assert_eq!(sequences, [1, 2, 3, 4, 5]);
    assert!(recording.events.is_sorted_by_key(|stamped| stamped.at));
}

#[tokio::test]
async fn heartbeats_come_back_with_the_controllers_time() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    let heartbeat = v1::Heartbeat {
        sent_ns: 42,
        clock: None,
    };
    agent.say(Up::Heartbeat(heartbeat)).await;
    let Down::Echo(echo) = agent.next().await else {
        panic!("an echo")
    };
    assert_eq!(echo.sent_ns, 42);
    assert!(echo.controller_ns > 1_700_000_000_000_000_000);
    controller.stop().await;
}

#[tokio::test]
async fn a_silent_node_is_lost_until_it_joins_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(Settings {
        silence_limit: Duration::from_secs(1),
        ..settings(dir.path())
    })
    .await;
    let mut agent = Agent::join(controller.address, "n1").await;
    let state = |wanted| move |status: &rankguard_model::StatusView| status.nodes.iter().any(|n| n.state == wanted);
    controller.status_until(state(NodeState::Lost)).await;
    // A message in the old session cannot revive the node: the session is closed.
    let status = agent.message().await.expect_err("a closed session");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    controller.stop().await;
    // The node does not exceed this silence limit again before the check.
    let controller = Running::start(settings(dir.path())).await;
    controller.status_until(state(NodeState::Lost)).await;
    let _again = Agent::join(controller.address, "n1").await;
    controller.status_until(state(NodeState::Healthy)).await;
    controller.stop().await;
}

#[tokio::test]
async fn a_second_session_of_a_node_ends_the_first() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut first = Agent::join(controller.address, "n1").await;
    let mut second = Agent::join(controller.address, "n1").await;
    assert_eq!(first.message().await.expect_err("closed").code(), Code::Aborted);
    let sequence = second.report(Entity::Unknown, line("b")).await;
    second.acknowledged(sequence).await;
    controller.stop().await;
}

#[tokio::test]
async fn a_session_that_speaks_for_another_node_is_closed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    let mut foreign = agent.evidence(1, Entity::Unknown, line("c"));
    foreign.id.node = NodeId::from("n2");
    agent.bring([&foreign]).await;
    assert_eq!(agent.message().await.expect_err("closed").code(), Code::InvalidArgument);
    controller.stop().await;
}

#[tokio::test]
async fn orders_for_a_node_that_is_away_are_kept_by_the_brain() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let agent = Agent::join(controller.address, "n1").await;
    controller.submit(&job("digits")).await.expect("a sound job");
    controller
        .status_until(|status| status.jobs.iter().any(|job| job.generation.0 == 1))
        .await;
    drop(agent);
    let mut agent = Agent::join(controller.address, "n1").await;
    let order = agent.order().await;
    let (id, generation) = order.fence();
    assert_eq!((id.as_str(), generation.0), ("digits", 1));
    controller.stop().await;
}

/// A copy of the file at the time of an acknowledgement equals the file after a power failure.
#[tokio::test]
async fn rg_4_whatever_is_acknowledged_is_already_in_the_journal() {
    let dir = tempfile::tempdir().expect("a directory");
    let after = tempfile::tempdir().expect("a directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    for _ in 0..20 {
        let sequence = agent.report(Entity::Unknown, line("f")).await;
        agent.acknowledged(sequence).await;
        let copy = after.path().join(format!("{sequence}.redb"));
        std::fs::copy(dir.path().join(journal::JOURNAL_FILE), &copy).expect("room");
        let recording = journal::read(&copy).expect("a repairable journal");
        let last = recording.events.last().map(|stamped| &stamped.event);
        let Some(Event::EvidenceArrived { evidence }) = last else {
            panic!("{last:?}")
        };
        assert_eq!(evidence.id.seq.0, sequence);
    }
    controller.stop().await;
}

/// Measures the promise: time from sending to acknowledgement, which includes the synced commit and the decision step.
#[tokio::test]
async fn evidence_is_acknowledged_within_milliseconds() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let controller = Running::start(settings(dir.path())).await;
    let mut agent = Agent::join(controller.address, "n1").await;
    let mut took = Vec::new();
    for _ in 0..100 {
        let begin = Instant::now();
        let sequence = agent.report(Entity::Unknown, line("d")).await;
        agent.acknowledged(sequence).await;
        took.push(begin.elapsed());
    }
    took.sort();
    let begin = Instant::now();
    let burst: Vec<_> = (101..=2_100)
        .map(|seq| agent.evidence(seq, Entity::Unknown, line("e")))
        .collect();
    for part in burst.chunks(100) {
        agent.bring(part).await;
    }
    agent.acknowledged(2_100).await;
    let rate = 2_000.0 / begin.elapsed().as_secs_f64();
    #[allow(clippy::print_stderr, reason = "the figure is for people")]
    {
        eprintln!(
            "evidence to acknowledgement: median {:?}, p99 {:?}; burst {rate:.0}/s",
            took[50], took[99]
        );
    }
    // A missed wake-up is delayed until the next liveness check: the bound detects that, but no slow machine.
    let look = settings(dir.path()).silence_limit / 4;
    assert!(took[50] < look / 2, "median {:?}", took[50]);
    controller.stop().await;
}
