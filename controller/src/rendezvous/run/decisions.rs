//! Decisions about a run that follow from its state, the time and the nodes.

use std::sync::Arc;

use rankguard_model::{NodeId, Timestamp};

use super::super::notice::{MemberNotice, NodeCondition, NodeConditions, RefusalKind, RoundNotice, RoundRefusal};
use super::super::round::{MemberId, RoundMember, TorchrunRound, compose};
use super::view::condition_text;
use super::{MemberStage, RunMember, RunState};

impl RunState {
    /// Takes every decision that the state, the time and the nodes permit.
    pub(in crate::rendezvous) fn advance(&mut self, now: Timestamp, nodes: &NodeConditions) -> Vec<MemberNotice> {
        let mut notices = Vec::new();
        self.remove_lost(now, &mut notices);
        if self.closure.is_none() {
            self.check_completion(now, &mut notices);
        }
        if self.closure.is_none() {
            self.check_nodes(now, nodes, &mut notices);
            self.check_growth(now, nodes, &mut notices);
            self.check_prospects(now, &mut notices);
        }
        if self.closure.is_none() {
            self.begin_round(now, nodes, &mut notices);
            self.end_late_requests(now, nodes, &mut notices);
            self.announce_waits(nodes, &mut notices);
        }
        notices
    }

    fn remove_lost(&mut self, now: Timestamp, notices: &mut Vec<MemberNotice>) {
        let is_lost = |member: &RunMember| member.away_until.is_some_and(|until| until <= now);
        let lost: Vec<MemberId> = self.ids(is_lost);
        for id in lost {
            let Some(member) = self.members.remove(&id) else {
                continue;
            };
            if !self.is_seated(id) {
                continue;
            }
            if member.stage == MemberStage::Finished {
                self.departed.insert(id);
            } else {
                let node = member.profile.node;
                self.end_round(
                    now,
                    format!("the connection to torchrun on node {node} was lost"),
                    notices,
                );
            }
        }
    }

    /// `Running => Closed` when all members of the round finished.
    fn check_completion(&mut self, now: Timestamp, notices: &mut Vec<MemberNotice>) {
        let Some(round) = &self.round else { return };
        let is_finished = |seat: &RoundMember| {
            let member = self.members.get(&seat.id);
            self.departed.contains(&seat.id) || member.is_some_and(|member| member.stage == MemberStage::Finished)
        };
        if !round.members.iter().all(is_finished) {
            return;
        }
        let reason = "all members finished";
        self.record(now, reason.to_owned());
        self.closure = Some(RoundRefusal::new(RefusalKind::Closed, reason));
        notices.extend(self.take_waiting().into_iter().map(|id| (id, RoundNotice::RunFinished)));
    }

    /// Ends the round if the node of a member is cordoned and the other members with the spares reach the minimum.
    /// Without them the member goes on: a cordon does not stop a job.
    fn check_nodes(&mut self, now: Timestamp, nodes: &NodeConditions, notices: &mut Vec<MemberNotice>) {
        if self.end.is_some() {
            return;
        }
        let running = self.running();
        let cordoned = running.iter().find_map(|id| {
            let node = &self.members.get(id)?.profile.node;
            Some((node.clone(), cordon_reason(nodes, node)?.to_owned()))
        });
        let Some((node, reason)) = cordoned else { return };
        let remaining = running.iter().filter(|id| {
            let node = self.members.get(id).map(|member| &member.profile.node);
            node.is_some_and(|node| cordon_reason(nodes, node).is_none())
        });
        let spares = self.candidates(nodes).len();
        if remaining.count() + spares >= self.terms.nodes_min {
            self.end_round(now, format!("node {node} is cordoned: {reason}"), notices);
        }
    }

    /// Ends the round `last_call` after a node arrived for which it has room.
    fn check_growth(&mut self, now: Timestamp, nodes: &NodeConditions, notices: &mut Vec<MemberNotice>) {
        let Some(round) = self.round.as_ref().filter(|_| self.end.is_none()) else {
            self.growth_since = None;
            return;
        };
        let running = self.running().len();
        let newcomers = self.candidates(nodes);
        let newcomer = newcomers.first().and_then(|id| self.members.get(id));
        let is_whole = running == round.members.len();
        let Some(newcomer) = newcomer.filter(|_| is_whole && running < self.terms.nodes_max) else {
            self.growth_since = None;
            return;
        };
        let node = newcomer.profile.node.clone();
        let since = *self.growth_since.get_or_insert(now);
        if now >= since.after(self.terms.last_call) {
            self.end_round(now, format!("node {node} joined"), notices);
        }
    }

    /// Closes the run if members that finished or gave up are missing from the minimum of the next round.
    fn check_prospects(&mut self, now: Timestamp, notices: &mut Vec<MemberNotice>) {
        if self.end.is_none() {
            return;
        }
        let finished = self.ids(|member| member.stage == MemberStage::Finished).len();
        let left = self.members.len() - finished;
        let has_finished = finished + self.departed.len() > 0;
        if left >= self.terms.nodes_min || !(has_finished || self.has_given_up) {
            return;
        }
        let cause = self.end.as_ref().map(|end| end.reason.clone()).unwrap_or_default();
        let min = self.terms.nodes_min;
        let others = if self.has_given_up { "" } else { ", the others finished" };
        let reason = format!("no further round is possible: {left} of at least {min} nodes remain{others} ({cause})");
        notices.extend(self.close(now, reason));
    }

    fn begin_round(&mut self, now: Timestamp, nodes: &NodeConditions, notices: &mut Vec<MemberNotice>) {
        if self.round.is_some() && self.end.is_none() {
            return;
        }
        let ready = self.candidates(nodes);
        if ready.len() < self.terms.nodes_min {
            self.minimum_since = None;
            return;
        }
        if now < self.hold_until {
            return;
        }
        let is_full = ready.len() >= self.terms.nodes_max;
        if self.round.is_none() {
            let since = *self.minimum_since.get_or_insert(now);
            if !is_full && now < since.after(self.terms.last_call) {
                return;
            }
        } else if self.is_awaiting(now, nodes) {
            return;
        }
        let previous = self
            .round
            .as_ref()
            .map(|round| round.members.as_slice())
            .unwrap_or_default();
        let previous: Vec<MemberId> = previous.iter().map(|seat| seat.id).collect();
        let order = compose(&previous, &ready, self.terms.nodes_max);
        let mut seats = Vec::new();
        for id in order {
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            let MemberStage::Waiting { store_port, .. } = member.stage else {
                continue;
            };
            member.stage = MemberStage::Busy;
            seats.push(RoundMember {
                id,
                profile: member.profile.clone(),
                store_port,
            });
        }
        let round = Arc::new(TorchrunRound {
            number: self.next_number,
            members: seats,
        });
        self.next_number += 1;
        let begun = |seat: &RoundMember| (seat.id, RoundNotice::RoundBegan(Arc::clone(&round)));
        notices.extend(round.members.iter().map(begun));
        let cause = self
            .end
            .take()
            .map_or("enough nodes joined".to_owned(), |end| end.reason);
        self.record(now, cause);
        self.round = Some(round);
        self.departed.clear();
        self.has_given_up = false;
        self.minimum_since = None;
        self.growth_since = None;
    }

    /// Returns true while members of the ended round may still request the next one.
    fn is_awaiting(&self, now: Timestamp, nodes: &NodeConditions) -> bool {
        let Some(end) = &self.end else { return false };
        let is_in_time = now < end.since.after(self.terms.restart_timeout);
        self.members.iter().any(|(id, member)| {
            if !self.is_seated(*id) || cordon_reason(nodes, &member.profile.node).is_some() {
                return false;
            }
            match member.stage {
                MemberStage::Finished => false,
                MemberStage::Busy => is_in_time,
                MemberStage::Waiting { .. } => member.away_until.is_some(),
            }
        })
    }

    /// Ends the requests that have waited for the minimum of nodes for too long.
    fn end_late_requests(&mut self, now: Timestamp, nodes: &NodeConditions, notices: &mut Vec<MemberNotice>) {
        let begin = match (&self.round, &self.end) {
            (Some(_), None) => return,
            (_, end) => end.as_ref().map(|end| end.since),
        };
        let limit = self.terms.join_timeout;
        let is_late = |member: &RunMember| match member.stage {
            MemberStage::Waiting { since, .. } => now >= begin.map_or(since, |begin| begin.max(since)).after(limit),
            _ => false,
        };
        let late: Vec<MemberId> = self.ids(is_late);
        if late.is_empty() {
            return;
        }
        let ready = self.candidates(nodes).len();
        let min = self.terms.nodes_min;
        for id in late {
            let Some(member) = self.members.remove(&id) else {
                continue;
            };
            let condition = condition_text(nodes, &member.profile.node);
            let condition = condition.map_or(String::new(), |condition| format!("; {condition}"));
            let reason = format!(
                "{ready} of at least {min} nodes were ready after {} s (join_timeout){condition}",
                limit.as_secs_f64()
            );
            self.record(now, format!("node {}: {reason}", member.profile.node));
            notices.push((
                id,
                RoundNotice::Refused(RoundRefusal::new(RefusalKind::TimedOut, reason)),
            ));
        }
    }

    /// Returns the members that wait and may be in the next round, in the order of their arrival.
    pub(super) fn candidates(&self, nodes: &NodeConditions) -> Vec<MemberId> {
        let mut found: Vec<(u64, MemberId)> = Vec::new();
        for (id, member) in &self.members {
            let is_usable = match nodes.get(&member.profile.node) {
                None => true,
                Some(NodeCondition::Cordoned(_)) => false,
                Some(NodeCondition::Fencing) => self.is_seated(*id),
            };
            if is_usable && member.away_until.is_none() && matches!(member.stage, MemberStage::Waiting { .. }) {
                found.push((member.arrival, *id));
            }
        }
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the members of the round that run workers.
    fn running(&self) -> Vec<MemberId> {
        let is_running = |id: &MemberId| {
            let member = self.members.get(id);
            member.is_some_and(|member| member.stage == MemberStage::Busy)
        };
        let seats = self.round.iter().flat_map(|round| &round.members);
        seats.map(|seat| seat.id).filter(is_running).collect()
    }
}

fn cordon_reason<'n>(nodes: &'n NodeConditions, node: &NodeId) -> Option<&'n str> {
    match nodes.get(node)? {
        NodeCondition::Cordoned(reason) => Some(reason),
        NodeCondition::Fencing => None,
    }
}
