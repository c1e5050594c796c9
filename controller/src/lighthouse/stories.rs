//! Stories of single quorums, with torchft's own lighthouse as the model.

use std::time::Duration;

use rankguard_model::{NodeId, Timestamp};

use super::*;
use crate::rendezvous::{NodeCondition, NodeConditions};

const JOIN_MS: i64 = 60_000;
const HEARTBEAT_MS: i64 = 5_000;

/// Machine with a clock.
struct StoryStage {
    machine: QuorumMachine,
    now: Timestamp,
}

fn terms(replicas_min: usize) -> LighthouseTerms {
    LighthouseTerms {
        replicas_min,
        join_timeout: Duration::from_millis(JOIN_MS.unsigned_abs()),
        heartbeat_timeout: Duration::from_millis(HEARTBEAT_MS.unsigned_abs()),
    }
}

fn member(name: &str) -> ReplicaMember {
    ReplicaMember {
        id: ReplicaId(name.to_owned()),
        address: format!("http://node-{name}:1"),
        store_address: format!("node-{name}:2"),
        step: 1,
        is_shrink_only: false,
        commit_failures: 0,
        content: name.as_bytes().to_vec(),
    }
}

impl StoryStage {
    fn new(replicas_min: usize) -> Self {
        let now = Timestamp::from_millis(1_000_000);
        Self {
            machine: QuorumMachine::new(now, terms(replicas_min), 1, false),
            now,
        }
    }

    /// Heartbeats of these replicas, 100 ms later.
    fn beat(&mut self, names: &[&str]) {
        self.now = self.now.after(Duration::from_millis(100));
        for name in names {
            assert!(self.machine.heartbeat(self.now, &ReplicaId((*name).to_owned())));
        }
        self.machine.tick(self.now);
    }

    fn ask(&mut self, name: &str) {
        self.ask_as(member(name));
    }

    fn ask_as(&mut self, member: ReplicaMember) {
        assert!(self.machine.request(self.now, member));
    }

    /// Time passes with heartbeats of these replicas.
    fn pass(&mut self, millis: i64, names: &[&str]) {
        for _ in 0..millis / 100 {
            self.beat(names);
        }
    }

    fn quorum(&mut self) -> Option<(i64, Vec<String>)> {
        let quorum = self.machine.decide(self.now)?;
        let names = quorum.members.iter().map(|member| member.id.to_string());
        Some((quorum.id, names.collect()))
    }

    #[track_caller]
    fn expect(&mut self, id: i64, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(self.quorum(), Some((id, names)), "{}", self.machine.status());
    }

    #[track_caller]
    fn expect_none(&mut self, reason: &str) {
        assert_eq!(self.quorum(), None);
        assert_eq!(self.machine.status(), reason);
    }

    fn cordon(&mut self, node: &str) {
        let reason = NodeCondition::Cordoned("drill".to_owned());
        let nodes = NodeConditions::from([(NodeId::from(node), reason)]);
        self.machine.set_nodes(nodes);
    }
}

#[test]
fn a_quorum_waits_for_all_healthy_replicas_until_the_join_timeout() {
    let mut stage = StoryStage::new(2);
    stage.beat(&["a", "b", "c"]);
    stage.ask("b");
    stage.expect_none("1 of 3 healthy replicas wait, at least 2 are required");
    stage.ask("a");
    stage.expect_none("2 of 3 healthy replicas wait for the others until join_timeout");
    stage.pass(JOIN_MS - 100, &["a", "b", "c"]);
    stage.expect_none("2 of 3 healthy replicas wait for the others until join_timeout");
    stage.beat(&["a", "b", "c"]);
    stage.expect(1, &["a", "b"]);
    stage.expect_none("0 of 3 healthy replicas wait, at least 2 are required");
}

#[test]
fn the_members_of_the_previous_quorum_do_not_wait_and_keep_their_id() {
    let mut stage = StoryStage::new(1);
    stage.beat(&["a", "b"]);
    stage.ask("a");
    stage.ask("b");
    stage.expect(1, &["a", "b"]);
    // Another replica starts and does not request yet.
    stage.beat(&["a", "b", "c"]);
    stage.ask("b");
    stage.expect_none("1 of 3 healthy replicas wait, more than half are required");
    stage.ask("a");
    stage.expect(1, &["a", "b"]);
    // It joins.
    for name in ["a", "c", "b"] {
        stage.ask(name);
    }
    stage.expect(2, &["a", "b", "c"]);
    // A commit failed: the groups are set up again.
    stage.ask("a");
    stage.ask("c");
    stage.ask_as(ReplicaMember {
        commit_failures: 1,
        ..member("b")
    });
    stage.expect(3, &["a", "b", "c"]);
    // The manager of a replica has another address.
    stage.ask("a");
    stage.ask("c");
    stage.ask_as(ReplicaMember {
        address: "http://node-b:9".to_owned(),
        ..member("b")
    });
    stage.expect(4, &["a", "b", "c"]);
}

#[test]
fn a_lost_replica_leaves_after_the_heartbeat_timeout() {
    let mut stage = StoryStage::new(1);
    stage.beat(&["a", "b"]);
    stage.ask("a");
    stage.ask("b");
    stage.expect(1, &["a", "b"]);
    // b is killed.
    stage.ask("a");
    stage.pass(HEARTBEAT_MS - 100, &["a"]);
    stage.expect_none("1 of 2 healthy replicas wait, more than half are required");
    stage.pass(200, &["a"]);
    stage.expect(2, &["a"]);
    assert_eq!(stage.machine.replicas(), 1, "b is forgotten");
    // It is started again.
    stage.beat(&["a"]);
    stage.ask("b2");
    stage.ask("a");
    stage.expect(3, &["a", "b2"]);
}

#[test]
fn a_quorum_may_be_asked_not_to_grow() {
    let mut stage = StoryStage::new(1);
    let shrink = |name: &str| ReplicaMember {
        is_shrink_only: true,
        ..member(name)
    };
    stage.beat(&["a", "b"]);
    stage.ask("a");
    stage.ask("b");
    stage.expect(1, &["a", "b"]);
    stage.ask_as(shrink("a"));
    stage.ask("b");
    stage.ask("c");
    stage.expect(1, &["a", "b"]);
    // c waits on.
    stage.ask("a");
    stage.ask("b");
    stage.expect(2, &["a", "b", "c"]);
    // The request of a newcomer does not count.
    stage.ask_as(shrink("d"));
    for name in ["a", "b", "c"] {
        stage.ask(name);
    }
    stage.expect(3, &["a", "b", "c", "d"]);
}

#[test]
fn newcomers_count_for_the_minimum_of_a_quorum_that_shrinks() {
    let mut stage = StoryStage::new(2);
    stage.beat(&["a", "b"]);
    stage.ask("a");
    stage.ask("b");
    stage.expect(1, &["a", "b"]);
    stage.pass(HEARTBEAT_MS + 200, &["a", "c"]);
    stage.ask_as(ReplicaMember {
        is_shrink_only: true,
        ..member("a")
    });
    stage.expect_none("1 of 2 healthy replicas wait, at least 2 are required");
    stage.ask("c");
    stage.expect(2, &["a"]);
}

#[test]
fn replicas_of_a_cordoned_node_are_left_out_while_the_others_suffice() {
    let mut stage = StoryStage::new(2);
    let all = ["a", "b", "c"];
    stage.beat(&all);
    all.iter().for_each(|name| stage.ask(name));
    stage.expect(1, &all);
    stage.cordon("node-b");
    stage.beat(&all);
    all.iter().for_each(|name| stage.ask(name));
    stage.expect(2, &["a", "c"]);
    // c is lost: the job does not stop for a cordon.
    stage.pass(HEARTBEAT_MS + 200, &["a", "b"]);
    stage.ask("a");
    stage.ask("b");
    stage.expect(3, &["a", "b"]);
    // The node is taken back, and c returns.
    stage.machine.set_nodes(NodeConditions::new());
    stage.beat(&all);
    all.iter().for_each(|name| stage.ask(name));
    stage.expect(4, &all);
}

#[test]
fn the_minimum_counts_replicas_that_wait() {
    let mut stage = StoryStage::new(2);
    stage.beat(&["a", "b"]);
    stage.ask("a");
    stage.ask("b");
    stage.machine.withdraw(&ReplicaId("b".to_owned()));
    stage.expect_none("1 of 2 healthy replicas wait, at least 2 are required");
    // A replica with an open connection and without heartbeats.
    stage.ask("b");
    stage.pass(HEARTBEAT_MS + 200, &["a"]);
    stage.expect_none("1 of 1 healthy replicas wait, at least 2 are required");
    stage.beat(&["a", "b"]);
    stage.expect(1, &["a", "b"]);
}

#[test]
fn a_restarted_controller_waits_for_heartbeats_and_uses_no_id_again() {
    let now = Timestamp::from_millis(1_000_000);
    let mut stage = StoryStage {
        machine: QuorumMachine::new(now, terms(1), 1_001, true),
        now,
    };
    // The first to reach the controller must not be a quorum of its own.
    stage.ask("a");
    stage.expect_none("no quorum begins before live replicas had time for a heartbeat");
    stage.pass(1_000, &["a", "b"]);
    stage.ask("b");
    stage.pass(HEARTBEAT_MS, &["a", "b"]);
    stage.expect(1_001, &["a", "b"]);
}

#[test]
fn a_controller_that_stood_still_does_not_take_replicas_for_lost() {
    let mut stage = StoryStage::new(1);
    stage.beat(&["a", "b"]);
    stage.ask("a");
    stage.ask("b");
    stage.expect(1, &["a", "b"]);
    stage.now = stage.now.after(Duration::from_secs(8));
    stage.machine.tick(stage.now);
    stage.ask("a");
    assert_eq!(stage.quorum(), None, "the heartbeats of b wait in the queue");
    stage.pass(500, &["a", "b"]);
    stage.ask("b");
    stage.pass(1_000, &["a", "b"]);
    stage.expect(1, &["a", "b"]);
}

#[test]
fn replicas_are_bounded() {
    let mut stage = StoryStage::new(1);
    for index in 0..REPLICAS_MAX {
        assert!(stage.machine.heartbeat(stage.now, &ReplicaId(format!("r{index}"))));
    }
    assert!(!stage.machine.heartbeat(stage.now, &ReplicaId("one more".to_owned())));
    assert!(!stage.machine.request(stage.now, member("one-more")));
    stage.pass(HEARTBEAT_MS + 200, &["r1"]);
    assert_eq!(stage.machine.replicas(), 1);
}
