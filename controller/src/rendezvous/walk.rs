//! Random walk of a run: torchruns come, fail, finish, are killed, lose their connection and return, nodes are cordoned,
//! and the controller restarts. After every event the invariants hold:
//! - a round number is never used twice while a torchrun lives that knows a round of this number or a later one, and for
//!   each torchrun the numbers grow;
//! - a round has at least the minimum and at most the maximum of nodes, and no member twice;
//! - only members that requested a round receive one, and each receives it;
//! - in the end, when all remaining torchruns behave, none waits without a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rankguard_model::{NodeId, Timestamp};

use super::*;

const RUN: &str = "walk";
const MIN: usize = 2;
const MAX: usize = 3;
/// Seconds after which every deadline of the run has passed.
const SETTLED: u64 = 200;

/// TorchrunProcess process as it sees itself.
#[derive(Debug, Default, Clone)]
struct TorchrunProcess {
    round: Option<Arc<TorchrunRound>>,
    port: Option<u16>,
    is_finished: bool,
    is_connected: bool,
    must_stop: bool,
}

#[derive(Debug, Clone, Copy)]
enum WalkEvent {
    Arrives,
    Fails(usize),
    Stops(usize),
    Finishes(usize),
    IsKilled(usize),
    GivesUp(usize),
    Disconnects(usize),
    Reconnects(usize),
    IsCordoned(usize),
    IsUncordoned,
    ControllerRestarts,
    Passes(u64),
}

struct RandomWalk {
    table: RunTable,
    now: Timestamp,
    torchruns: BTreeMap<u64, TorchrunProcess>,
    next: u64,
    /// Members of every round, by number.
    rounds: BTreeMap<u64, Arc<TorchrunRound>>,
}

impl RandomWalk {
    fn new() -> Self {
        let now = Timestamp::from_millis(1_000);
        Self {
            table: RunTable::new(now, false),
            now,
            torchruns: BTreeMap::new(),
            next: 1,
            rounds: BTreeMap::new(),
        }
    }

    fn pick(&self, index: usize, holds: impl Fn(&TorchrunProcess) -> bool) -> Option<u64> {
        let fitting: Vec<u64> = self
            .torchruns
            .iter()
            .filter(|(_, one)| holds(one))
            .map(|(id, _)| *id)
            .collect();
        (!fitting.is_empty()).then(|| fitting[index % fitting.len()])
    }

    fn join(&mut self, id: u64) {
        // The run may have ended meanwhile.
        let Some(torchrun) = self.torchruns.get(&id).cloned() else {
            return;
        };
        let request = JoinRequest {
            id: MemberId(id),
            owner: None,
            terms: RunTerms {
                nodes_min: MIN,
                nodes_max: MAX,
                join_timeout: Duration::from_secs(100),
                last_call: Duration::from_secs(5),
                restart_timeout: Duration::from_secs(20),
            },
            profile: MemberProfile {
                node: NodeId::from(format!("n{id}").as_str()),
                address: "10.0.0.1".to_owned(),
            },
            round: torchrun.round.map(|round| (*round).clone()),
            store_port: torchrun.port,
            is_finished: torchrun.is_finished,
        };
        match self.table.join(self.now, RUN, request) {
            Ok(notices) => {
                self.torchruns.get_mut(&id).expect("it joined").is_connected = true;
                self.deliver(notices);
            }
            // A closed run; torchrun ends with an error.
            Err(_) => drop(self.torchruns.remove(&id)),
        }
    }

    fn request(&mut self, id: u64) {
        let torchrun = self.torchruns.get_mut(&id).expect("it exists");
        let port = u16::try_from(self.next % 60_000 + 1).expect("a port");
        self.next += 1;
        torchrun.port = Some(port);
        torchrun.must_stop = false;
        if torchrun.is_connected {
            let notices = self.table.request(self.now, RUN, MemberId(id), port);
            self.deliver(notices);
        }
    }

    fn deliver(&mut self, notices: Vec<RunNotice>) {
        for RunNotice { member, notice, .. } in notices {
            match notice {
                RoundNotice::RoundBegan(round) => self.begin(member.0, round),
                RoundNotice::RoundOver { .. } => {
                    if let Some(torchrun) = self.torchruns.get_mut(&member.0) {
                        torchrun.must_stop = torchrun.port.is_none();
                    }
                }
                RoundNotice::Refused(_) | RoundNotice::RunFinished => drop(self.torchruns.remove(&member.0)),
                RoundNotice::Waits { .. } => {}
            }
        }
    }

    fn begin(&mut self, id: u64, round: Arc<TorchrunRound>) {
        let known = self.rounds.entry(round.number).or_insert_with(|| Arc::clone(&round));
        assert_eq!(*known, round, "round {} is used twice", round.number);
        let ids: BTreeSet<MemberId> = round.members.iter().map(|seat| seat.id).collect();
        assert_eq!(ids.len(), round.members.len(), "a member twice: {round:?}");
        assert!((MIN..=MAX).contains(&ids.len()), "{round:?}");
        let torchrun = self.torchruns.get_mut(&id).expect("a torchrun that exists");
        assert_eq!(torchrun.port, round.seat(MemberId(id)).map(|seat| seat.store_port));
        let before = torchrun.round.as_ref().map_or(0, |before| before.number);
        assert!(before < round.number, "round {} after {before}", round.number);
        torchrun.port = None;
        torchrun.must_stop = false;
        torchrun.round = Some(round);
    }

    /// Forgets the rounds that no torchrun knows: their numbers may be used again.
    fn forget_rounds(&mut self) {
        let known = self.torchruns.values().filter_map(|one| one.round.as_ref());
        let newest = known.map(|round| round.number).max().unwrap_or(0);
        self.rounds.retain(|number, _| *number <= newest);
    }

    fn apply(&mut self, event: WalkEvent) {
        if self.table.is_empty() {
            self.rounds.clear();
        }
        let is_running = |one: &TorchrunProcess| one.round.is_some() && one.port.is_none() && !one.is_finished;
        match event {
            WalkEvent::Arrives if self.torchruns.len() < 6 => {
                let id = self.next;
                self.next += 1;
                self.torchruns.insert(id, TorchrunProcess::default());
                self.join(id);
                if self.torchruns.contains_key(&id) {
                    self.request(id);
                }
            }
            WalkEvent::Arrives => {}
            WalkEvent::Fails(index) => {
                if let Some(id) = self.pick(index, is_running) {
                    self.request(id);
                }
            }
            WalkEvent::Stops(index) => {
                if let Some(id) = self.pick(index, |one| one.must_stop && !one.is_finished) {
                    self.request(id);
                }
            }
            WalkEvent::Finishes(index) => {
                if let Some(id) = self.pick(index, |one| is_running(one) && one.is_connected) {
                    self.torchruns.get_mut(&id).expect("it exists").is_finished = true;
                    let notices = self.table.finish(self.now, RUN, MemberId(id));
                    self.deliver(notices);
                }
            }
            WalkEvent::IsKilled(index) => self.end(index, MemberDeparture::Ended),
            WalkEvent::GivesUp(index) => self.end(index, MemberDeparture::Failed),
            WalkEvent::Disconnects(index) => {
                if let Some(id) = self.pick(index, |one| one.is_connected) {
                    self.torchruns.get_mut(&id).expect("it exists").is_connected = false;
                    let notices = self.table.disconnect(self.now, RUN, MemberId(id));
                    self.deliver(notices);
                }
            }
            WalkEvent::Reconnects(index) => {
                if let Some(id) = self.pick(index, |one| !one.is_connected) {
                    self.join(id);
                }
            }
            WalkEvent::IsCordoned(index) => {
                let id = self.pick(index, |_| true);
                let node = id.map(|id| NodeId::from(format!("n{id}").as_str()));
                let condition = NodeCondition::Cordoned("fault".to_owned());
                let nodes = node.into_iter().map(|node| (node, condition.clone())).collect();
                let notices = self.table.set_nodes(self.now, nodes);
                self.deliver(notices);
            }
            WalkEvent::IsUncordoned => {
                let notices = self.table.set_nodes(self.now, NodeConditions::new());
                self.deliver(notices);
            }
            WalkEvent::ControllerRestarts => {
                self.table = RunTable::new(self.now, true);
                self.forget_rounds();
                self.torchruns.values_mut().for_each(|one| one.is_connected = false);
                // Members return within a second.
                let ids: Vec<u64> = self.torchruns.keys().copied().collect();
                ids.into_iter().for_each(|id| self.join(id));
            }
            WalkEvent::Passes(seconds) => self.pass(seconds),
        }
    }

    fn end(&mut self, index: usize, departure: MemberDeparture) {
        if let Some(id) = self.pick(index, |one| one.is_connected) {
            self.torchruns.remove(&id);
            let notices = self.table.leave(self.now, RUN, MemberId(id), departure);
            self.deliver(notices);
        }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now.after(Duration::from_secs(1));
            let notices = self.table.tick(self.now);
            self.deliver(notices);
        }
    }

    /// Lets all torchruns behave; then each is in the same round, a spare, or has ended.
    fn settle(&mut self) {
        self.apply(WalkEvent::IsUncordoned);
        for _ in 0..SETTLED {
            let away: Vec<u64> = self
                .torchruns
                .iter()
                .filter(|(_, one)| !one.is_connected)
                .map(|(id, _)| *id)
                .collect();
            away.into_iter().for_each(|id| self.join(id));
            while let Some(id) = self.pick(0, |one| one.must_stop && !one.is_finished) {
                self.request(id);
            }
            self.pass(1);
        }
        let waiting = self.torchruns.values().filter(|one| one.port.is_some()).count();
        let running: BTreeSet<u64> = self
            .torchruns
            .values()
            .filter(|one| one.port.is_none() && !one.is_finished)
            .map(|one| one.round.as_ref().map_or(0, |round| round.number))
            .collect();
        assert!(
            running.len() <= 1,
            "rounds {running:?} run at the same time: {:?}",
            self.torchruns
        );
        if running.is_empty() {
            assert_eq!(waiting, 0, "none runs, and some wait: {:?}", self.torchruns);
        }
    }
}

fn event() -> impl Strategy<Value = WalkEvent> {
    let index = 0..8_usize;
    prop_oneof![
        4 => Just(WalkEvent::Arrives),
        2 => index.clone().prop_map(WalkEvent::Fails),
        6 => index.clone().prop_map(WalkEvent::Stops),
        1 => index.clone().prop_map(WalkEvent::Finishes),
        1 => index.clone().prop_map(WalkEvent::IsKilled),
        1 => index.clone().prop_map(WalkEvent::GivesUp),
        2 => index.clone().prop_map(WalkEvent::Disconnects),
        2 => index.clone().prop_map(WalkEvent::Reconnects),
        1 => index.prop_map(WalkEvent::IsCordoned),
        1 => Just(WalkEvent::IsUncordoned),
        1 => Just(WalkEvent::ControllerRestarts),
        4 => (1..12_u64).prop_map(WalkEvent::Passes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rounds_keep_their_promises(events in prop::collection::vec(event(), 1..60)) {
        let mut walk = RandomWalk::new();
        for event in events {
            walk.apply(event);
        }
        walk.settle();
    }
}
