//! Machines that are about to be taken away: their nodes are drained for as long as their agents report it.

use std::time::Duration;

use rankguard_core::{Event, Policy};
use rankguard_model::{
    CaseState, CheckpointTiers, ClassId, Classification, Entity, EvidenceBody, EvidenceSource, FieldValues, NodeInfo,
    NodeState, REMOVAL_NOTICE, REMOVAL_NOTICE_WITHDRAWN, Role, SmolStr,
};

use crate::cluster::{Cluster, node};

const NOTICE: &str = "removal notice: AWS terminates this spot instance at 2026-12-01T08:22:00.000Z";

fn policy() -> Policy {
    Policy {
        first_step_ms: 1_000_000,
        stall_ms: 2_000_000,
        ..Policy::default()
    }
}

/// The agent of one node reports something about a machine.
fn reports(cluster: &mut Cluster, by: u32, about: u32, signature: &'static str, role: Role) {
    let class = if role == Role::Noise { "none" } else { "preempted" };
    let mark = Classification {
        class: ClassId::from(class),
        role,
        confidence: 0.9,
        signature: SmolStr::new_static(signature),
        fields: FieldValues::default(),
    };
    let body = EvidenceBody::Line {
        text: NOTICE.to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    let entity = Entity::Node { node: node(about) };
    cluster.report(node(by), EvidenceSource::Host, entity, body, vec![mark]);
}

fn notice(cluster: &mut Cluster, number: u32) {
    reports(cluster, number, number, REMOVAL_NOTICE, Role::Root);
}

fn withdraws(cluster: &mut Cluster, number: u32) {
    reports(cluster, number, number, REMOVAL_NOTICE_WITHDRAWN, Role::Noise);
}

fn reason(cluster: &Cluster, number: u32) -> Option<String> {
    let nodes = cluster.state.status(cluster.now).nodes;
    let view = nodes.into_iter().find(|view| view.node == node(number));
    view.expect("it is known").reason
}

#[test]
fn the_job_saves_at_once_and_leaves_the_machine() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    cluster.progress(0, 51);
    cluster.orders.clear();
    notice(&mut cluster, 1);
    assert!(cluster.is_called(), "{:?}", cluster.orders);
    assert_eq!(reason(&cluster, 1).as_deref(), Some(&*format!("draining: {NOTICE}")));
    let view = cluster.state.status(cluster.now).jobs.remove(0);
    let wanted = "it leaves node-1, whose machine is about to be taken away, after its next checkpoint";
    assert_eq!(view.drain.as_deref(), Some(wanted));
    cluster.progress(0, 60);
    cluster.checkpoint(60);
    let view = cluster.state.status(cluster.now).jobs.remove(0);
    assert_eq!(
        view.reason.as_deref(),
        Some("the machine of node-1 is about to be taken away")
    );
    assert!(!cluster.job().nodes().contains(&node(1)));
}

/// A save for another risk a moment ago does not hold back the save before the end of a machine.
#[test]
fn the_job_saves_again_after_a_save_for_another_risk() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    cluster.progress(0, 51);
    cluster.tell(Event::NodeCordoned {
        node: node(2),
        reason: "fan".to_owned(),
    });
    cluster.checkpoint_called();
    cluster.progress(0, 62);
    cluster.orders.clear();
    notice(&mut cluster, 1);
    assert!(cluster.is_called(), "{:?}", cluster.orders);
}

#[test]
fn a_withdrawn_notice_returns_the_node_unless_it_has_another_reason() {
    let mut cluster = Cluster::new(policy());
    notice(&mut cluster, 1);
    assert_eq!(cluster.node_state(1), NodeState::Cordoned);
    withdraws(&mut cluster, 1);
    assert_eq!((cluster.node_state(1), reason(&cluster, 1)), (NodeState::Healthy, None));

    notice(&mut cluster, 1);
    cluster.tell(Event::NodeDrained {
        node: node(1),
        reason: "new fan".to_owned(),
    });
    withdraws(&mut cluster, 1);
    assert_eq!(reason(&cluster, 1).as_deref(), Some("drained: new fan"));

    cluster.tell(Event::NodeCordoned {
        node: node(2),
        reason: "noisy".to_owned(),
    });
    notice(&mut cluster, 2);
    assert_eq!(reason(&cluster, 2), Some(format!("drained: {NOTICE}; noisy")));
    withdraws(&mut cluster, 2);
    assert_eq!(
        reason(&cluster, 2).as_deref(),
        Some("noisy"),
        "it is cordoned, not drained"
    );
}

/// The agent reports it again if it is still so.
#[test]
fn a_machine_that_returns_is_used_again() {
    let mut cluster = Cluster::new(policy());
    notice(&mut cluster, 1);
    let known = cluster.state.fleet().get(&node(1)).expect("it is known").info.clone();
    cluster.falls_silent(1);
    assert_eq!(cluster.node_state(1), NodeState::Lost);
    cluster.tell(Event::NodeJoined {
        info: NodeInfo {
            incarnation: "second".to_owned(),
            ..known
        },
    });
    assert_eq!((cluster.node_state(1), reason(&cluster, 1)), (NodeState::Healthy, None));
}

#[test]
fn an_operator_may_use_the_machine_until_its_end() {
    let mut cluster = Cluster::new(policy());
    notice(&mut cluster, 1);
    cluster.tell(Event::NodeUncordoned { node: node(1) });
    assert_eq!(cluster.node_state(1), NodeState::Healthy);
    withdraws(&mut cluster, 1);
    assert_eq!(cluster.node_state(1), NodeState::Healthy);
}

#[test]
fn an_agent_gives_notice_of_its_own_machine_only() {
    let mut cluster = Cluster::new(policy());
    reports(&mut cluster, 2, 1, REMOVAL_NOTICE, Role::Root);
    assert_eq!(cluster.node_state(1), NodeState::Healthy);
    assert_eq!(cluster.node_state(2), NodeState::Healthy);
}

/// The machine goes before the job has left it.
#[test]
fn the_loss_of_an_announced_machine_is_a_preemption() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    cluster.progress(0, 51);
    notice(&mut cluster, 1);
    cluster.wait(Duration::from_secs(2));
    cluster.falls_silent(1);
    cluster.wait(Duration::from_secs(2));
    let cases = cluster.cases();
    let case = cases.last().expect("a case");
    assert_eq!(case.verdict.class.as_str(), "preempted", "{cases:#?}");
    assert_eq!(case.verdict.blamed, Entity::Node { node: node(1) });
    assert!(!cluster.job().nodes().contains(&node(1)));
}

/// The job has left before.
#[test]
fn the_loss_of_a_machine_without_ranks_disturbs_nothing() {
    let mut cluster = Cluster::checkpointed(policy(), CheckpointTiers::default());
    cluster.checkpoint(50);
    cluster.progress(0, 51);
    notice(&mut cluster, 1);
    cluster.checkpoint_called();
    cluster.start();
    cluster.progress(0, 61);
    let generation = cluster.generation();
    cluster.falls_silent(1);
    cluster.wait(Duration::from_secs(20));
    assert_eq!(cluster.generation(), generation);
    let open = cluster
        .cases()
        .into_iter()
        .filter(|case| case.state != CaseState::Closed)
        .count();
    assert_eq!(open, 0, "{:#?}", cluster.cases());
}
