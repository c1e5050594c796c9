//! Random walk of a lighthouse: replicas start, request, give up, are killed and restarted, nodes are cordoned, the controller
//! stands still and restarts. After every event the invariants hold:
//! - an id has one set of members with one set of addresses, and ids never fall, also over restarts;
//! - a quorum has at least the minimum of members, unless it had to shrink, each with a request and a heartbeat that is young
//!   enough;
//! - a quorum with fewer than all members of the previous one has more than half of the healthy replicas;
//! - `shrink_only` adds no replica;
//! - a replica on a cordoned node is a member only if the others do not reach the minimum;
//! - in the end, when all replicas behave, one quorum has all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rankguard_model::{NodeId, Timestamp};

use super::*;
use crate::rendezvous::{NodeCondition, NodeConditions};

const MIN: usize = 2;
const SLOTS: usize = 5;
const HEARTBEAT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
enum WalkEvent {
    Starts(usize),
    Requests(usize),
    RequestsShrinkOnly(usize),
    ReportsFailure(usize),
    GivesUp(usize),
    IsKilled(usize),
    FallsSilent(usize),
    IsCordoned(usize),
    IsUncordoned,
    ControllerRestarts,
    StandsStill,
    Passes(u64),
}

/// Replica as it sees itself.
#[derive(Debug, Clone)]
struct WalkReplica {
    member: ReplicaMember,
    is_silent: bool,
    is_waiting: bool,
    heartbeat_at: Timestamp,
}

struct RandomWalk {
    machine: QuorumMachine,
    now: Timestamp,
    replicas: BTreeMap<usize, WalkReplica>,
    cordoned: Option<usize>,
    starts: usize,
    /// First id that the next controller may use.
    reserved: i64,
    newest: Option<Arc<ReplicaQuorum>>,
    quorums: BTreeMap<i64, Vec<(ReplicaId, String)>>,
    is_first: bool,
}

fn terms() -> LighthouseTerms {
    LighthouseTerms {
        replicas_min: MIN,
        join_timeout: Duration::from_secs(10),
        heartbeat_timeout: HEARTBEAT,
    }
}

impl RandomWalk {
    fn new() -> Self {
        let now = Timestamp::from_millis(1_000_000);
        Self {
            machine: QuorumMachine::new(now, terms(), 1, false),
            now,
            replicas: BTreeMap::new(),
            cordoned: None,
            starts: 0,
            reserved: 1,
            newest: None,
            quorums: BTreeMap::new(),
            is_first: true,
        }
    }

    fn start(&mut self, slot: usize) {
        self.starts += 1;
        let member = ReplicaMember {
            id: ReplicaId(format!("r{slot}:{}", self.starts)),
            address: format!("http://n{slot}:{}", self.starts),
            store_address: String::new(),
            step: 0,
            is_shrink_only: false,
            commit_failures: 0,
            content: Vec::new(),
        };
        let replica = WalkReplica {
            member,
            is_silent: false,
            is_waiting: false,
            heartbeat_at: self.now,
        };
        assert!(self.machine.heartbeat(self.now, &replica.member.id));
        self.replicas.insert(slot, replica);
    }

    fn request(&mut self, slot: usize, change: impl FnOnce(&mut ReplicaMember)) {
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(&slot) else {
            return;
        };
        let mut member = replica.member.clone();
        change(&mut member);
        replica.is_waiting = true;
        replica.heartbeat_at = now;
        assert!(self.machine.request(now, member));
        self.decide();
    }

    fn withdraw(&mut self, slot: usize) {
        if let Some(replica) = self.replicas.get_mut(&slot) {
            replica.is_waiting = false;
            self.machine.withdraw(&replica.member.id);
        }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 2 {
            self.now = self.now.after(Duration::from_millis(500));
            for replica in self.replicas.values_mut().filter(|one| !one.is_silent) {
                replica.heartbeat_at = self.now;
                assert!(self.machine.heartbeat(self.now, &replica.member.id));
            }
            self.machine.tick(self.now);
            self.decide();
        }
    }

    fn restart(&mut self) {
        // Every id below the reserved one may have been used.
        self.reserved = self.reserved.max(self.machine.next_id()) + 10;
        self.machine = QuorumMachine::new(self.now, terms(), self.reserved, true);
        self.machine.set_nodes(self.conditions());
        self.is_first = true;
        for replica in self.replicas.values_mut() {
            replica.is_waiting = false;
        }
    }

    fn conditions(&self) -> NodeConditions {
        let cordoned = self.cordoned.iter().map(|slot| {
            let node = NodeId::from(format!("n{slot}").as_str());
            (node, NodeCondition::Cordoned("drill".to_owned()))
        });
        cordoned.collect()
    }

    fn decide(&mut self) {
        let Some(quorum) = self.machine.decide(self.now) else {
            return;
        };
        self.check(&quorum);
        for replica in self.replicas.values_mut() {
            if quorum.has(&replica.member.id) {
                replica.is_waiting = false;
            }
        }
        self.newest = Some(quorum);
        self.is_first = false;
    }

    fn check(&mut self, quorum: &ReplicaQuorum) {
        let groups: Vec<(ReplicaId, String)> = quorum
            .members
            .iter()
            .map(|member| (member.id.clone(), member.address.clone()))
            .collect();
        let may_be_small = quorum.members.iter().any(|member| member.is_shrink_only);
        assert!(
            groups.is_sorted() && (groups.len() >= MIN || may_be_small),
            "{quorum:?}"
        );
        let known = self.quorums.entry(quorum.id).or_insert_with(|| groups.clone());
        assert_eq!(*known, groups, "id {} has two sets of members", quorum.id);
        let (last, _) = self.quorums.last_key_value().expect("one is known");
        assert_eq!(*last, quorum.id, "an id fell");
        let is_healthy = |one: &WalkReplica| self.now.since(one.heartbeat_at) < HEARTBEAT;
        for member in &quorum.members {
            let own = self.replicas.values().find(|one| one.member.id == member.id);
            let own = own.unwrap_or_else(|| panic!("{} is dead", member.id));
            assert!(own.is_waiting && is_healthy(own), "{own:?}");
        }
        let usable = |slot: &usize| Some(*slot) != self.cordoned;
        let healthy: Vec<usize> = self
            .replicas
            .iter()
            .filter(|(_, one)| is_healthy(one))
            .map(|(slot, _)| *slot)
            .collect();
        let others = healthy.iter().filter(|slot| usable(slot)).count();
        for (slot, one) in &self.replicas {
            let is_left_out = !usable(slot) && others >= MIN;
            assert!(!(is_left_out && quorum.has(&one.member.id)), "{slot} is cordoned");
        }
        let Some(previous) = self.newest.as_ref().filter(|_| !self.is_first) else {
            return;
        };
        let is_shrink_only = quorum
            .members
            .iter()
            .any(|member| member.is_shrink_only && previous.has(&member.id));
        if is_shrink_only {
            assert!(quorum.members.iter().all(|member| previous.has(&member.id)), "it grew");
        }
        let is_cordoned = |member: &ReplicaMember| {
            let slot = self.cordoned.map(|slot| format!("r{slot}:"));
            slot.is_some_and(|slot| member.id.0.starts_with(&slot))
        };
        let is_fast = previous
            .members
            .iter()
            .all(|one| quorum.has(&one.id) || is_cordoned(one));
        if !is_fast && !is_shrink_only {
            let counted = if others >= MIN { others } else { healthy.len() };
            assert!(
                quorum.members.len() > counted / 2,
                "a minority: {quorum:?} of {counted}"
            );
        }
    }

    fn apply(&mut self, event: WalkEvent) {
        match event {
            WalkEvent::Starts(slot) if !self.replicas.contains_key(&slot) => self.start(slot),
            WalkEvent::Starts(_) => {}
            WalkEvent::Requests(slot) => self.request(slot, |_| {}),
            WalkEvent::RequestsShrinkOnly(slot) => self.request(slot, |member| member.is_shrink_only = true),
            WalkEvent::ReportsFailure(slot) => self.request(slot, |member| member.commit_failures = 1),
            WalkEvent::GivesUp(slot) => self.withdraw(slot),
            WalkEvent::IsKilled(slot) => {
                self.withdraw(slot);
                self.replicas.remove(&slot);
            }
            WalkEvent::FallsSilent(slot) => {
                if let Some(replica) = self.replicas.get_mut(&slot) {
                    replica.is_silent = !replica.is_silent;
                }
            }
            WalkEvent::IsCordoned(slot) => {
                self.cordoned = Some(slot);
                self.machine.set_nodes(self.conditions());
            }
            WalkEvent::IsUncordoned => {
                self.cordoned = None;
                self.machine.set_nodes(NodeConditions::new());
            }
            WalkEvent::ControllerRestarts => self.restart(),
            WalkEvent::StandsStill => self.now = self.now.after(Duration::from_secs(7)),
            WalkEvent::Passes(seconds) => self.pass(seconds),
        }
    }

    /// All replicas live, send heartbeats and request again a second after each quorum, as they do while they train.
    fn settle(&mut self) {
        self.apply(WalkEvent::IsUncordoned);
        for slot in 0..SLOTS {
            self.apply(WalkEvent::Starts(slot));
        }
        for replica in self.replicas.values_mut() {
            replica.is_silent = false;
        }
        for _ in 0..30 {
            self.pass(1);
            for slot in 0..SLOTS {
                if !self.replicas[&slot].is_waiting {
                    self.request(slot, |_| {});
                }
            }
        }
        let quorum = self.newest.as_ref().expect("a quorum");
        let all = self.replicas.values().all(|one| quorum.has(&one.member.id));
        assert!(all, "{quorum:?}: {}", self.machine.status());
    }
}

fn events() -> impl Strategy<Value = Vec<WalkEvent>> {
    let slot = || 0..SLOTS;
    let event = prop_oneof![
        4 => slot().prop_map(WalkEvent::Starts),
        12 => slot().prop_map(WalkEvent::Requests),
        1 => slot().prop_map(WalkEvent::RequestsShrinkOnly),
        1 => slot().prop_map(WalkEvent::ReportsFailure),
        1 => slot().prop_map(WalkEvent::GivesUp),
        2 => slot().prop_map(WalkEvent::IsKilled),
        1 => slot().prop_map(WalkEvent::FallsSilent),
        1 => slot().prop_map(WalkEvent::IsCordoned),
        1 => Just(WalkEvent::IsUncordoned),
        1 => Just(WalkEvent::ControllerRestarts),
        1 => Just(WalkEvent::StandsStill),
        4 => (1u64..8).prop_map(WalkEvent::Passes),
    ];
    prop::collection::vec(event, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn quorums_keep_their_invariants(events in events()) {
        let mut walk = RandomWalk::new();
        for event in events {
            walk.apply(event);
        }
        walk.settle();
    }
}
