//! Condition `RankguardHealthy`: its texts and its times.

use std::time::Duration;

use jiff::Timestamp;
use rankguard_kubernetes::objects::KubernetesCondition;
use rankguard_kubernetes::{ControllerCordon, WantedCondition, is_heartbeat_due};
use rankguard_model::{CaseId, NodeId, NodeState, NodeView};

use crate::support::{Bench, block_on};

pub(crate) fn view(state: NodeState) -> NodeView {
    NodeView {
        node: NodeId::from("n0"),
        state,
        reason: None,
        cordon: None,
        faulty_in_use: None,
        slots: 8,
        job: None,
        address: String::new(),
        failure_domain: String::new(),
        refused_evidence: 0,
        lease_ms: 0,
    }
}

fn cordon(reasons: &[&str], class: Option<&str>) -> ControllerCordon {
    ControllerCordon {
        reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        class: class.map(str::to_owned),
    }
}

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

#[test]
fn the_condition_states_the_class_and_the_case() {
    let of = |view: &NodeView, cordon: &ControllerCordon, class| {
        let wanted = WantedCondition::of(view, cordon, class);
        (wanted.status, wanted.reason, wanted.message)
    };
    let text = |status, reason: &str, message: &str| (status, reason.to_owned(), message.to_owned());
    let healthy = text("True", "healthy", "No case blames this node.");
    assert_eq!(of(&view(NodeState::Healthy), &cordon(&[], None), None), healthy);
    // A cordon of Kubernetes is no defect.
    let mirror = cordon(&["cordoned in Kubernetes by kubectl"], None);
    assert_eq!(of(&view(NodeState::Cordoned), &mirror, None), healthy);
    let case = cordon(&["case 12: gpu-fallen-off-bus on node n0"], Some("gpu-fallen-off-bus"));
    let wanted = text(
        "False",
        "gpu-fallen-off-bus",
        "Cordoned by Rankguard: case 12: gpu-fallen-off-bus on node n0.",
    );
    assert_eq!(
        of(&view(NodeState::Cordoned), &case, Some("gpu-fallen-off-bus")),
        wanted
    );
    // A lost node retains its cordon; without one, silence proves no defect.
    assert_eq!(of(&view(NodeState::Lost), &case, Some("gpu-fallen-off-bus")), wanted);
    assert_eq!(of(&view(NodeState::Lost), &cordon(&[], None), None).0, "Unknown");
    assert_eq!(of(&view(NodeState::Fencing), &cordon(&[], None), None).0, "Unknown");
    let operator = of(&view(NodeState::Cordoned), &cordon(&["ticket"], None), None);
    assert_eq!(
        operator,
        text("False", "operator-cordon", "Cordoned by Rankguard: ticket.")
    );
    // RG-6: a fault beyond the cordon limit of the controller is reported, too.
    let mut faulty = view(NodeState::Healthy);
    faulty.faulty_in_use = Some(CaseId(3));
    faulty.reason = Some("the cordon limit".to_owned());
    let wanted = of(&faulty, &cordon(&[], None), Some("gpu-xid-79"));
    let message = "In use although case 3 blames it: the cordon limit.";
    assert_eq!(wanted, text("False", "gpu-xid-79", message));
}

#[test]
fn the_time_of_the_transition_changes_with_the_status_only() {
    let healthy = WantedCondition::of(&view(NodeState::Healthy), &cordon(&[], None), None);
    let faulty = WantedCondition::of(&view(NodeState::Healthy), &cordon(&["ticket"], None), None);
    let other = WantedCondition::of(&view(NodeState::Healthy), &cordon(&["ticket 2"], None), None);
    let (noon, one, two) = (
        time("2026-11-30T12:00:00Z"),
        time("2026-11-30T13:00:00Z"),
        time("2026-11-30T14:00:00Z"),
    );
    let first = healthy.at(None, noon);
    assert_eq!(first.last_transition_time.as_deref(), Some("2026-11-30T12:00:00Z"));
    let beat = healthy.at(Some(&first), one);
    assert_eq!(beat.last_transition_time, first.last_transition_time);
    assert_eq!(beat.last_heartbeat_time.as_deref(), Some("2026-11-30T13:00:00Z"));
    let failed = faulty.at(Some(&beat), two);
    assert_eq!(failed.last_transition_time.as_deref(), Some("2026-11-30T14:00:00Z"));
    // Another message is no transition.
    assert!(!other.is_same(Some(&failed)));
    let changed = other.at(Some(&failed), time("2026-11-30T15:00:00Z"));
    assert_eq!(changed.last_transition_time, failed.last_transition_time);
    // A clock that went back does not move a transition before the one it follows.
    let back = healthy.at(Some(&failed), noon);
    assert_eq!(back.last_transition_time, failed.last_transition_time);
}

#[test]
fn a_heartbeat_is_due_when_it_is_old_or_in_the_future() {
    let interval = Duration::from_secs(300);
    let at = |text: &str| KubernetesCondition {
        last_heartbeat_time: Some(text.to_owned()),
        ..KubernetesCondition::default()
    };
    let now = time("2026-11-30T12:00:00Z");
    assert!(is_heartbeat_due(None, now, interval));
    assert!(is_heartbeat_due(Some(&at("no time")), now, interval));
    assert!(is_heartbeat_due(Some(&at("2026-11-30T11:55:00Z")), now, interval));
    assert!(!is_heartbeat_due(Some(&at("2026-11-30T11:55:01Z")), now, interval));
    assert!(!is_heartbeat_due(Some(&at("2026-11-30T12:00:02Z")), now, interval));
    assert!(is_heartbeat_due(Some(&at("2026-11-30T13:00:00Z")), now, interval));
}

#[test]
fn the_condition_is_written_with_the_time_of_the_server_and_no_other_condition_changes() {
    block_on(async {
        let bench = Bench::start(1);
        // The clock of the server is two hours ahead.
        bench.server.cluster().set_clock_offset(7_200);
        bench.watch.list().await.expect("listed");
        let ahead = bench.api.server_time().duration_since(Timestamp::now()).as_secs();
        assert!((7_190..=7_210).contains(&ahead), "{ahead} s");
        let ready = bench.server.cluster().condition("n0", "Ready");
        let wanted = WantedCondition::of(&view(NodeState::Healthy), &cordon(&["ticket"], None), None);
        let now = bench.api.server_time();
        assert!(bench.writer.report("n0", &wanted.at(None, now)).await.expect("written"));
        let condition = bench.server.cluster().condition("n0", "RankguardHealthy");
        assert_eq!(condition["status"], "False");
        assert_eq!(condition["lastTransitionTime"], now.to_string());
        assert_eq!(bench.server.cluster().condition("n0", "Ready"), ready);
        // The answer to the write is what the next comparison sees.
        let nodes = bench.watch.nodes().expect("answers").expect("listed");
        assert!(wanted.is_same(nodes[0].condition.as_ref()));
        // A node that was deleted is no failure, and is not created.
        bench.server.cluster().delete_node("n0");
        assert!(
            !bench
                .writer
                .report("n0", &wanted.at(None, now))
                .await
                .expect("an answer")
        );
        assert!(bench.server.cluster().node("n0").is_null());
    });
}
