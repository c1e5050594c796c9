//! Stories of single runs: what happens to the members, and what they receive.

use std::sync::Arc;
use std::time::Duration;

use rankguard_model::{NodeId, Timestamp, TorchrunMemberState, TorchrunState};

use super::*;

const RUN: &str = "llm";
const LAST_CALL: u64 = 30;
const RESTART: u64 = 60;
const JOIN: u64 = 600;

/// Table with a clock in seconds.
struct StoryStage {
    table: RunTable,
    now: Timestamp,
    terms: RunTerms,
    notices: Vec<(u64, RoundNotice)>,
}

impl StoryStage {
    fn new(nodes_min: usize, nodes_max: usize) -> Self {
        let now = Timestamp::from_millis(1_000_000);
        Self {
            table: RunTable::new(now, false),
            now,
            terms: RunTerms {
                nodes_min,
                nodes_max,
                join_timeout: Duration::from_secs(JOIN),
                last_call: Duration::from_secs(LAST_CALL),
                restart_timeout: Duration::from_secs(RESTART),
            },
            notices: Vec::new(),
        }
    }

    /// Table of a run with these members, in a running round.
    fn running(nodes_min: usize, nodes_max: usize, members: usize) -> Self {
        let mut stage = Self::new(nodes_min, nodes_max);
        for id in 1..=members as u64 {
            stage.join(id);
        }
        stage.pass(LAST_CALL);
        assert_eq!(stage.begun(), Some((1, (1..=members as u64).collect())));
        stage.notices.clear();
        stage
    }

    fn join_request(&self, id: u64) -> JoinRequest {
        JoinRequest {
            id: MemberId(id),
            owner: None,
            terms: self.terms.clone(),
            profile: MemberProfile {
                node: NodeId::from(format!("n{id}").as_str()),
                address: "10.0.0.1".to_owned(),
            },
            round: None,
            store_port: None,
            is_finished: false,
        }
    }

    fn keep(&mut self, notices: Vec<RunNotice>) {
        self.notices
            .extend(notices.into_iter().map(|notice| (notice.member.0, notice.notice)));
    }

    /// A torchrun joins and requests a round.
    fn join(&mut self, id: u64) {
        let request = self.join_request(id);
        let notices = self.table.join(self.now, RUN, request).expect("it may join");
        self.keep(notices);
        self.request(id);
    }

    fn join_with(&mut self, request: JoinRequest) {
        let notices = self.table.join(self.now, RUN, request).expect("it may join");
        self.keep(notices);
    }

    fn request(&mut self, id: u64) {
        let notices = self.table.request(self.now, RUN, MemberId(id), 1_000 + id as u16);
        self.keep(notices);
    }

    fn finish(&mut self, id: u64) {
        let notices = self.table.finish(self.now, RUN, MemberId(id));
        self.keep(notices);
    }

    fn leave(&mut self, id: u64, departure: MemberDeparture) {
        let notices = self.table.leave(self.now, RUN, MemberId(id), departure);
        self.keep(notices);
    }

    fn disconnect(&mut self, id: u64) {
        let notices = self.table.disconnect(self.now, RUN, MemberId(id));
        self.keep(notices);
    }

    fn set_node(&mut self, condition: Option<NodeCondition>, id: u64) {
        let mut nodes = NodeConditions::new();
        nodes.extend(condition.map(|condition| (NodeId::from(format!("n{id}").as_str()), condition)));
        let notices = self.table.set_nodes(self.now, nodes);
        self.keep(notices);
    }

    /// Passes time, second by second.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now.after(Duration::from_secs(1));
            let notices = self.table.tick(self.now);
            self.keep(notices);
        }
    }

    /// Number and members of the newest round that began, if every member received it.
    fn begun(&self) -> Option<(u64, Vec<u64>)> {
        let rounds = self.notices.iter().filter_map(|(id, notice)| match notice {
            RoundNotice::RoundBegan(round) => Some((*id, Arc::clone(round))),
            _ => None,
        });
        let rounds: Vec<_> = rounds.collect();
        let (_, newest) = rounds.iter().max_by_key(|(_, round)| round.number)?;
        let members: Vec<u64> = newest.members.iter().map(|seat| seat.id.0).collect();
        let received = rounds.iter().filter(|(_, round)| round.number == newest.number);
        assert_eq!(received.count(), members.len());
        Some((newest.number, members))
    }

    /// Members that received the end of their round.
    fn stopped(&self) -> Vec<u64> {
        let over = self
            .notices
            .iter()
            .filter(|(_, notice)| matches!(notice, RoundNotice::RoundOver { .. }));
        over.map(|(id, _)| *id).collect()
    }

    fn refusals(&self) -> Vec<(u64, RefusalKind)> {
        let refusals = self.notices.iter().filter_map(|(id, notice)| match notice {
            RoundNotice::Refused(refusal) => Some((*id, refusal.kind)),
            _ => None,
        });
        refusals.collect()
    }

    fn newest_wait(&self, id: u64) -> Option<&str> {
        self.notices.iter().rev().find_map(|(member, notice)| match notice {
            RoundNotice::Waits { reason } if *member == id => Some(reason.as_str()),
            _ => None,
        })
    }

    fn state(&self) -> TorchrunState {
        self.table.views()[0].state
    }

    fn round(&self) -> Arc<TorchrunRound> {
        let found = self.notices.iter().rev().find_map(|(_, notice)| match notice {
            RoundNotice::RoundBegan(round) => Some(Arc::clone(round)),
            _ => None,
        });
        found.expect("a round began")
    }
}

#[test]
fn the_first_round_begins_at_once_with_the_maximum_of_nodes() {
    let mut stage = StoryStage::new(1, 2);
    stage.join(1);
    assert_eq!(stage.begun(), None);
    stage.join(2);
    assert_eq!(stage.begun(), Some((1, vec![1, 2])));
}

#[test]
fn the_first_round_waits_for_further_nodes_once_it_has_the_minimum() {
    let mut stage = StoryStage::new(2, 4);
    stage.join(1);
    stage.pass(LAST_CALL + 10);
    stage.join(2);
    stage.pass(LAST_CALL - 1);
    assert_eq!(stage.begun(), None);
    stage.join(3);
    stage.pass(1);
    assert_eq!(stage.begun(), Some((1, vec![1, 2, 3])));
}

#[test]
fn a_request_without_the_minimum_of_nodes_ends_at_its_deadline() {
    let mut stage = StoryStage::new(2, 2);
    stage.join(1);
    stage.pass(JOIN - 1);
    assert_eq!(stage.refusals(), []);
    stage.pass(1);
    assert_eq!(stage.refusals(), [(1, RefusalKind::TimedOut)]);
    assert!(stage.table.is_empty());
}

#[test]
fn a_lost_member_leads_to_a_smaller_round_at_once() {
    let mut stage = StoryStage::running(1, 2, 2);
    stage.leave(2, MemberDeparture::Ended);
    assert_eq!(stage.stopped(), [1]);
    assert_eq!(stage.state(), TorchrunState::Restarting);
    stage.request(1);
    assert_eq!(stage.begun(), Some((2, vec![1])));
}

#[test]
fn a_lost_connection_is_no_loss_if_the_member_returns_in_time() {
    let mut stage = StoryStage::running(1, 2, 2);
    let mut request = stage.join_request(2);
    stage.disconnect(2);
    stage.pass(2);
    // The member states its round.
    let mut other = StoryStage::new(1, 2);
    other.join(1);
    other.join(2);
    request.round = Some((*other.round()).clone());
    stage.join_with(request);
    stage.pass(60);
    assert_eq!(stage.notices, []);
    assert_eq!(stage.state(), TorchrunState::Running);
}

#[test]
fn a_member_that_does_not_return_in_time_is_lost() {
    let mut stage = StoryStage::running(1, 2, 2);
    stage.disconnect(2);
    stage.pass(4);
    assert_eq!(stage.stopped(), [1]);
}

#[test]
fn a_controller_that_stood_still_gives_the_grace_again() {
    let mut stage = StoryStage::running(1, 2, 2);
    stage.disconnect(2);
    stage.now = stage.now.after(Duration::from_secs(100));
    let notices = stage.table.tick(stage.now);
    assert_eq!(notices, []);
}

#[test]
fn without_the_minimum_the_others_wait_for_a_replacement() {
    let mut stage = StoryStage::running(2, 2, 2);
    stage.leave(1, MemberDeparture::Ended);
    stage.request(2);
    stage.pass(JOIN - 10);
    assert_eq!(stage.begun(), None);
    stage.join(9);
    assert_eq!(
        stage.begun(),
        Some((2, vec![9, 2])),
        "it takes the place of the lost one"
    );
}

#[test]
fn a_worker_failure_restarts_all_members_in_the_same_order() {
    let mut stage = StoryStage::running(3, 3, 3);
    stage.request(2);
    assert_eq!(stage.stopped(), [1, 3]);
    stage.request(3);
    assert_eq!(stage.begun(), None);
    stage.request(1);
    assert_eq!(stage.begun(), Some((2, vec![1, 2, 3])));
}

#[test]
fn a_spare_waits_without_a_deadline_and_replaces_a_lost_member_at_once() {
    let mut stage = StoryStage::running(2, 2, 2);
    stage.join(3);
    assert_eq!(stage.newest_wait(3), Some("this node is a spare: the run has 2 nodes"));
    stage.pass(2 * JOIN);
    assert_eq!((stage.stopped(), stage.refusals()), (vec![], vec![]));
    stage.leave(1, MemberDeparture::Ended);
    stage.request(2);
    assert_eq!(stage.begun(), Some((2, vec![3, 2])));
}

#[test]
fn a_node_that_arrives_late_joins_after_the_last_call() {
    let mut stage = StoryStage::running(1, 3, 1);
    stage.join(2);
    stage.pass(LAST_CALL - 1);
    assert_eq!(stage.stopped(), Vec::<u64>::new(), "training goes on meanwhile");
    stage.join(3);
    stage.pass(1);
    assert_eq!(stage.stopped(), [1]);
    stage.request(1);
    assert_eq!(stage.begun(), Some((2, vec![1, 2, 3])), "both cost one restart");
}

#[test]
fn a_member_that_does_not_stop_is_left_out_at_a_deadline() {
    let mut stage = StoryStage::running(1, 3, 3);
    stage.request(1);
    stage.request(2);
    stage.pass(RESTART - 1);
    assert_eq!(stage.begun(), None);
    stage.pass(1);
    assert_eq!(stage.begun(), Some((2, vec![1, 2])));
    // It comes back.
    stage.request(3);
    stage.pass(LAST_CALL);
    stage.request(1);
    stage.request(2);
    assert_eq!(stage.begun(), Some((3, vec![1, 2, 3])));
}

#[test]
fn a_member_that_finished_disturbs_nobody() {
    let mut stage = StoryStage::running(1, 2, 2);
    stage.finish(1);
    stage.leave(1, MemberDeparture::Finished);
    stage.pass(10);
    assert_eq!(stage.notices, []);
    assert_eq!(stage.state(), TorchrunState::Running);
    // A failure of the remaining one starts it again alone.
    stage.request(2);
    assert_eq!(stage.begun(), Some((2, vec![2])));
}

#[test]
fn a_member_that_is_killed_after_its_workers_finished_disturbs_nobody() {
    let mut stage = StoryStage::running(1, 2, 2);
    stage.finish(1);
    stage.leave(1, MemberDeparture::Ended);
    assert_eq!(stage.notices, []);
    stage.finish(2);
    assert_eq!(stage.state(), TorchrunState::Closed);
    stage.leave(2, MemberDeparture::Finished);
    assert!(stage.table.is_empty());
}

#[test]
fn spares_end_when_all_members_finished() {
    let mut stage = StoryStage::running(2, 2, 2);
    stage.join(3);
    stage.finish(1);
    stage.finish(2);
    assert_eq!(stage.notices.last(), Some(&(3, RoundNotice::RunFinished)));
}

#[test]
fn a_run_without_prospects_is_closed_at_once() {
    // One gave up.
    let mut stage = StoryStage::running(2, 2, 2);
    stage.leave(1, MemberDeparture::Failed);
    stage.request(2);
    assert_eq!(stage.refusals(), [(2, RefusalKind::Closed)]);
    // One finished, and the other fails.
    let mut stage = StoryStage::running(2, 2, 2);
    stage.finish(1);
    stage.request(2);
    assert_eq!(stage.refusals(), [(2, RefusalKind::Closed)]);
    // With a spare there are prospects.
    let mut stage = StoryStage::running(2, 2, 2);
    stage.join(3);
    stage.leave(1, MemberDeparture::Failed);
    stage.request(2);
    assert_eq!(stage.begun(), Some((2, vec![3, 2])));
}

#[test]
fn a_cordon_moves_the_run_off_the_node_if_the_others_are_enough() {
    let cordoned = || Some(NodeCondition::Cordoned("uncorrectable memory error".to_owned()));
    let mut stage = StoryStage::running(2, 2, 2);
    stage.set_node(cordoned(), 1);
    assert_eq!(stage.stopped(), Vec::<u64>::new(), "without a spare the run would end");
    stage.join(3);
    assert_eq!(stage.stopped(), [1, 2]);
    stage.request(2);
    assert_eq!(stage.begun(), Some((2, vec![3, 2])), "the cordoned one is not awaited");
    stage.request(1);
    let wait = "node n1 is cordoned: uncorrectable memory error";
    assert_eq!(stage.newest_wait(1), Some(wait));
    let views = stage.table.views();
    let member = views[0].members.iter().find(|member| member.node.as_str() == "n1");
    let member = member.expect("it is listed");
    assert_eq!(
        (member.state, member.reason.as_deref()),
        (TorchrunMemberState::Spare, Some(wait))
    );
    // It is a spare again once the cordon is lifted.
    stage.leave(2, MemberDeparture::Ended);
    stage.request(3);
    assert_eq!(stage.begun(), Some((2, vec![3, 2])));
    stage.set_node(None, 1);
    assert_eq!(stage.begun(), Some((3, vec![3, 1])));
}

#[test]
fn nodes_with_old_ranks_join_no_round() {
    let mut stage = StoryStage::new(1, 1);
    stage.set_node(Some(NodeCondition::Fencing), 1);
    stage.join(1);
    stage.pass(LAST_CALL);
    assert_eq!(stage.begun(), None);
    stage.set_node(None, 1);
    assert_eq!(stage.begun(), Some((1, vec![1])));
}

#[test]
fn a_restarted_controller_adopts_the_running_round() {
    let before = {
        let mut stage = StoryStage::new(2, 2);
        stage.join(1);
        stage.join(2);
        stage.round()
    };
    let mut stage = StoryStage::new(2, 2);
    stage.table = RunTable::new(stage.now, true);
    // Two new torchruns come first; they must not form a world beside the running one.
    stage.join(8);
    stage.join(9);
    for id in [1, 2] {
        stage.pass(3);
        let mut request = stage.join_request(id);
        request.round = Some((*before).clone());
        stage.join_with(request);
    }
    stage.pass(60);
    assert_eq!((stage.stopped(), stage.begun()), (vec![], None));
    assert_eq!(stage.state(), TorchrunState::Running);
    // The next round has the next number.
    stage.leave(1, MemberDeparture::Ended);
    stage.request(2);
    assert_eq!(stage.begun(), Some((2, vec![8, 2])));
}

#[test]
fn no_round_begins_before_members_of_a_later_one_have_returned() {
    let [earlier, later] = {
        let mut stage = StoryStage::new(1, 3);
        stage.join(1);
        stage.join(2);
        stage.pass(LAST_CALL);
        let earlier = stage.round();
        stage.leave(1, MemberDeparture::Ended);
        stage.request(2);
        [earlier, stage.round()]
    };
    let mut stage = StoryStage::new(1, 3);
    stage.table = RunTable::new(stage.now, true);
    let mut request = stage.join_request(1);
    request.round = Some((*earlier).clone());
    request.store_port = Some(1_001);
    stage.join_with(request);
    stage.pass(5);
    let mut request = stage.join_request(2);
    request.round = Some((*later).clone());
    stage.join_with(request);
    stage.pass(LAST_CALL - 1);
    assert_eq!((stage.stopped(), stage.begun()), (vec![], None));
    stage.pass(1);
    stage.request(2);
    assert_eq!(stage.begun(), Some((3, vec![2, 1])));
}

#[test]
fn a_member_of_an_adopted_round_that_does_not_return_is_lost() {
    let mut stage = StoryStage::running(1, 2, 2);
    let mut other = StoryStage::new(1, 2);
    other.join(1);
    other.join(2);
    let mut request = stage.join_request(1);
    request.round = Some((*other.round()).clone());
    stage.table = RunTable::new(stage.now, true);
    stage.join_with(request);
    stage.pass(9);
    assert_eq!(stage.stopped(), Vec::<u64>::new());
    stage.pass(1);
    assert_eq!(stage.stopped(), [1]);
}

#[test]
fn a_member_that_missed_the_beginning_of_its_round_receives_it_again() {
    let mut stage = StoryStage::new(2, 2);
    stage.join(1);
    stage.join(2);
    stage.disconnect(2);
    stage.notices.clear();
    let mut request = stage.join_request(2);
    request.store_port = Some(1_002);
    stage.join_with(request);
    assert!(matches!(stage.notices.as_slice(), [(2, RoundNotice::RoundBegan(round))] if round.number == 1));
}

#[test]
fn a_member_of_an_earlier_round_starts_again() {
    let mut stage = StoryStage::running(1, 2, 2);
    let old = {
        let mut other = StoryStage::new(1, 2);
        other.join(1);
        other.join(2);
        other.round()
    };
    stage.leave(2, MemberDeparture::Ended);
    stage.request(1);
    stage.notices.clear();
    let mut request = stage.join_request(2);
    request.round = Some((*old).clone());
    stage.join_with(request);
    assert_eq!(stage.stopped(), [2]);
}

#[test]
fn contradictions_are_refused_with_a_reason() {
    let mut stage = StoryStage::running(1, 2, 1);
    let mut refused = |change: &dyn Fn(&mut JoinRequest)| {
        let mut request = stage.join_request(7);
        change(&mut request);
        let refusal = stage.table.join(stage.now, RUN, request).expect_err("a contradiction");
        assert_eq!(refusal.kind, RefusalKind::Denied);
        refusal.reason
    };
    let reason = refused(&|request| request.owner = Some("bob".to_owned()));
    assert_eq!(
        reason,
        "the run belongs to a local person without a certificate; choose another --rdzv-id"
    );
    let reason = refused(&|request| request.terms.nodes_max = 3);
    assert_eq!(reason, "the run has --nnodes 1:2, this torchrun 1:3");
    let reason = refused(&|request| request.terms.last_call = Duration::from_secs(1));
    assert!(
        reason.contains("last_call_timeout=30,") && reason.contains("last_call_timeout=1,"),
        "{reason}"
    );
    let reason = refused(&|request| request.profile.address = "127.0.0.1".to_owned());
    assert!(reason.contains("--local-addr"), "{reason}");
    let reason = refused(&|request| request.terms.nodes_max = 5_000);
    assert!(reason.contains("is not a range of 1 to 1024 nodes"), "{reason}");
    let round = TorchrunRound {
        number: 3,
        members: Vec::new(),
    };
    let reason = refused(&|request| request.round = Some(round.clone()));
    assert_eq!(reason, "round 3 does not have this torchrun");
}

#[test]
fn a_closed_run_admits_no_further_member_until_all_left() {
    let mut stage = StoryStage::running(1, 2, 1);
    let notices = stage.table.close(stage.now, RUN, "closed".to_owned());
    assert_eq!(notices, []);
    let request = stage.join_request(2);
    let refusal = stage.table.join(stage.now, RUN, request.clone()).expect_err("closed");
    assert_eq!(refusal.kind, RefusalKind::Closed);
    stage.leave(1, MemberDeparture::Finished);
    stage
        .table
        .join(stage.now, RUN, request)
        .expect("a new run of this name");
}

#[test]
fn an_ended_run_is_listed_until_it_is_opened_again_or_a_day_is_over() {
    let mut stage = StoryStage::running(1, 2, 2);
    stage.disconnect(1);
    stage.pass(10);
    stage.leave(2, MemberDeparture::Ended);
    let ended_at = stage.now;
    let views = stage.table.views();
    let [ended] = &views[..] else { panic!("{views:#?}") };
    assert_eq!((ended.state, ended.ended_at), (TorchrunState::Closed, Some(ended_at)));
    assert_eq!(
        ended.reason,
        "the connection to torchrun on node n1 was lost; no torchrun of the run is left"
    );
    assert!(ended.members.is_empty() && stage.table.is_empty());
    stage.join(3);
    let views = stage.table.views();
    assert!(views.len() == 1 && views[0].ended_at.is_none(), "{views:#?}");
    stage.leave(3, MemberDeparture::Ended);
    stage.now = stage.now.after(Duration::from_secs(86_400));
    stage.pass(1);
    assert_eq!(stage.table.views(), []);
}

#[test]
fn an_ended_run_that_finished_states_that() {
    let mut stage = StoryStage::running(2, 2, 2);
    for id in [1, 2] {
        stage.finish(id);
        stage.leave(id, MemberDeparture::Finished);
    }
    let views = stage.table.views();
    assert_eq!(views[0].reason, "all members finished");
}
