//! State of one run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rankguard_model::{NodeId, Timestamp, TorchrunMemberState, TorchrunMemberView, TorchrunState, TorchrunView};

use super::notice::{
    MemberDeparture, MemberNotice, NodeCondition, NodeConditions, RefusalKind, RoundNotice, RoundRefusal,
};
use super::round::{MemberId, MemberProfile, RoundMember, RunTerms, TorchrunRound, compose};

/// Time for a member to return after its connection was lost.
pub(super) const LOSS_GRACE: Duration = Duration::from_secs(3);
/// Time for members to return and to state their round after a restart of the controller. No round begins before.
pub(super) const RETURN_GRACE: Duration = Duration::from_secs(10);

/// Activity of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MemberStage {
    /// Runs workers or stops them.
    Busy,
    /// No workers; waits for a round.
    Waiting { store_port: u16, since: Timestamp },
    /// All workers ended with success.
    Finished,
}

#[derive(Debug)]
struct RunMember {
    profile: MemberProfile,
    /// Position in the order of arrival.
    arrival: u64,
    /// Time at which the member counts as lost; present while it has no connection.
    away_until: Option<Timestamp>,
    stage: MemberStage,
    /// Newest reason for its wait that was sent to it.
    wait_reason: Option<String>,
}

/// End of the current round.
#[derive(Debug)]
struct RoundEnd {
    since: Timestamp,
    reason: String,
}

/// State of one run of torchrun processes.
#[derive(Debug)]
pub(super) struct RunState {
    /// Certificate name that opened it; absent on loopback without an identity.
    owner: Option<String>,
    terms: RunTerms,
    members: BTreeMap<MemberId, RunMember>,
    /// Newest round; absent before the first one.
    round: Option<Arc<TorchrunRound>>,
    next_number: u64,
    /// Present while the newest round is over and the next one has not begun.
    end: Option<RoundEnd>,
    /// Members of the newest round that finished and left.
    departed: BTreeSet<MemberId>,
    /// True if a member of the newest round gave up.
    has_given_up: bool,
    /// Time since which the minimum of nodes is ready for the first round.
    minimum_since: Option<Timestamp>,
    /// Time since which a node waits for which the round has room.
    growth_since: Option<Timestamp>,
    /// No round begins before: members may return that take part in a later round than the newest one known.
    hold_until: Timestamp,
    /// Present once no further round may begin.
    closure: Option<RoundRefusal>,
    changed_at: Timestamp,
    /// Reason of the last change.
    change: String,
    arrivals: u64,
}

/// Request of a member that opens a stream.
#[derive(Debug, Clone)]
pub(crate) struct JoinRequest {
    pub(crate) id: MemberId,
    pub(crate) owner: Option<String>,
    pub(crate) terms: RunTerms,
    pub(crate) profile: MemberProfile,
    /// Round in which it takes part.
    pub(crate) round: Option<TorchrunRound>,
    /// Port of its store, if it waits for a round.
    pub(crate) store_port: Option<u16>,
    /// True if its workers finished.
    pub(crate) is_finished: bool,
}

impl RunState {
    /// Opens a run for its first member.
    pub(super) fn open(request: &JoinRequest, now: Timestamp, hold_until: Timestamp) -> Self {
        Self {
            owner: request.owner.clone(),
            terms: request.terms.clone(),
            members: BTreeMap::new(),
            round: None,
            next_number: 1,
            end: None,
            departed: BTreeSet::new(),
            has_given_up: false,
            minimum_since: None,
            growth_since: None,
            hold_until,
            closure: None,
            changed_at: now,
            change: format!("opened by node {}", request.profile.node),
            arrivals: 0,
        }
    }

    /// Returns true if the run has this owner, which has a certificate.
    pub(super) fn is_owned_by(&self, owner: &str) -> bool {
        self.owner.as_deref() == Some(owner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// Returns the reason to refuse a join.
    pub(super) fn refusal(&self, request: &JoinRequest) -> Option<RoundRefusal> {
        let denied = |reason: String| Some(RoundRefusal::new(RefusalKind::Denied, reason));
        if self.owner != request.owner {
            let owner = self.owner.as_deref().unwrap_or("a local person without a certificate");
            return denied(format!("the run belongs to {owner}; choose another --rdzv-id"));
        }
        if self.terms != request.terms {
            return denied(self.difference(&request.terms));
        }
        if self.members.contains_key(&request.id) {
            return None;
        }
        if let Some(closure) = &self.closure {
            return Some(closure.clone());
        }
        let is_loopback = request.profile.is_loopback();
        let other = self
            .members
            .values()
            .find(|member| member.profile.is_loopback() != is_loopback);
        let other = other.map(|member| &member.profile)?;
        denied(format!(
            "address {} of node {} and address {} of node {} cannot reach each other; set --local-addr of both to an \
             address in the network of the cluster",
            request.profile.address, request.profile.node, other.address, other.node
        ))
    }

    fn difference(&self, other: &RunTerms) -> String {
        let terms = &self.terms;
        if (terms.nodes_min, terms.nodes_max) != (other.nodes_min, other.nodes_max) {
            return format!(
                "the run has --nnodes {}:{}, this torchrun {}:{}",
                terms.nodes_min, terms.nodes_max, other.nodes_min, other.nodes_max
            );
        }
        let [now, asked] = [terms, other].map(|terms| {
            format!(
                "join_timeout={},last_call_timeout={},restart_timeout={}",
                terms.join_timeout.as_secs_f64(),
                terms.last_call.as_secs_f64(),
                terms.restart_timeout.as_secs_f64()
            )
        });
        format!("the run has --rdzv-conf {now}, this torchrun {asked}")
    }

    /// Adds a member, or records that it is connected again. The caller has checked [`Self::refusal`].
    pub(super) fn join(&mut self, now: Timestamp, request: JoinRequest) -> Vec<MemberNotice> {
        let mut notices = Vec::new();
        let id = request.id;
        let newest = self.round.as_ref().map_or(0, |round| round.number);
        if let Some(stated) = request.round.as_ref().filter(|stated| stated.number > newest) {
            self.adopt(now, stated.clone(), &mut notices);
        }
        self.arrivals += 1;
        let arrival = self.arrivals;
        let member = self.members.entry(id).or_insert_with(|| RunMember {
            profile: request.profile,
            arrival,
            away_until: None,
            stage: MemberStage::Busy,
            wait_reason: None,
        });
        member.away_until = None;
        member.wait_reason = None;
        let seat = self.round.as_ref().and_then(|round| round.seat(id));
        let is_current = request.round.is_some() && request.round.as_ref() == self.round.as_deref();
        match request.store_port {
            // The stream ended before the round reached the member.
            Some(port) if !is_current && seat.is_some_and(|seat| seat.store_port == port) => {
                member.stage = MemberStage::Busy;
                notices.extend(self.round.clone().map(|round| (id, RoundNotice::RoundBegan(round))));
                notices.extend(self.over_notice(id));
            }
            Some(port) => notices.extend(self.request(now, id, port)),
            None if is_current => {
                if request.is_finished {
                    member.stage = MemberStage::Finished;
                } else if member.stage != MemberStage::Finished {
                    member.stage = MemberStage::Busy;
                }
                notices.extend(self.over_notice(id));
            }
            None => {
                member.stage = MemberStage::Busy;
                if request.round.is_some() {
                    let reason = "a later round began without this node".to_owned();
                    notices.push((id, RoundNotice::RoundOver { reason }));
                }
            }
        }
        notices
    }

    /// Adopts a round that a member states: the controller was restarted, or had lost all members.
    fn adopt(&mut self, now: Timestamp, round: TorchrunRound, notices: &mut Vec<MemberNotice>) {
        self.next_number = round.number + 1;
        self.hold_until = self.hold_until.max(now.after(RETURN_GRACE));
        for seat in &round.members {
            self.arrivals += 1;
            let arrival = self.arrivals;
            self.members.entry(seat.id).or_insert_with(|| RunMember {
                profile: seat.profile.clone(),
                arrival,
                away_until: Some(now.after(RETURN_GRACE)),
                stage: MemberStage::Busy,
                wait_reason: None,
            });
        }
        let reason = "a later round began without this node";
        for (id, member) in &self.members {
            if member.stage == MemberStage::Busy && member.away_until.is_none() && !round.has(*id) {
                let reason = reason.to_owned();
                notices.push((*id, RoundNotice::RoundOver { reason }));
            }
        }
        self.record(now, format!("adopted round {} from its members", round.number));
        self.round = Some(Arc::new(round));
        self.end = None;
        self.departed.clear();
        self.has_given_up = false;
        self.minimum_since = None;
        self.growth_since = None;
    }

    /// Records that a member has no workers and waits for a round.
    pub(super) fn request(&mut self, now: Timestamp, id: MemberId, store_port: u16) -> Vec<MemberNotice> {
        let mut notices = Vec::new();
        if let Some(closure) = &self.closure {
            notices.push((id, RoundNotice::Refused(closure.clone())));
            self.members.remove(&id);
            return notices;
        }
        let Some(member) = self.members.get_mut(&id) else {
            return notices;
        };
        let is_repeated = matches!(member.stage, MemberStage::Waiting { store_port: port, .. } if port == store_port);
        if !is_repeated {
            member.stage = MemberStage::Waiting { store_port, since: now };
        }
        member.wait_reason = None;
        let node = member.profile.node.clone();
        if self.is_seated(id) {
            self.end_round(now, format!("the workers of node {node} failed"), &mut notices);
        }
        notices
    }

    /// Records that the workers of a member ended with success.
    pub(super) fn finish(&mut self, id: MemberId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.stage = MemberStage::Finished;
        }
    }

    /// Removes a member that leaves.
    pub(super) fn leave(&mut self, now: Timestamp, id: MemberId, departure: MemberDeparture) -> Vec<MemberNotice> {
        let mut notices = Vec::new();
        let Some(member) = self.members.remove(&id) else {
            return notices;
        };
        if !self.is_seated(id) {
            return notices;
        }
        let node = member.profile.node;
        match departure {
            _ if member.stage == MemberStage::Finished => drop(self.departed.insert(id)),
            MemberDeparture::Finished => drop(self.departed.insert(id)),
            MemberDeparture::Failed => {
                self.has_given_up = true;
                let reason = format!("torchrun on node {node} gave up: its workers failed and it has no restart left");
                self.end_round(now, reason, &mut notices);
            }
            MemberDeparture::Ended => self.end_round(now, format!("torchrun on node {node} ended"), &mut notices),
        }
        notices
    }

    /// Records that the stream of a member ended without a reason.
    pub(super) fn disconnect(&mut self, now: Timestamp, id: MemberId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.away_until = Some(now.after(LOSS_GRACE));
        }
    }

    /// Gives members without a connection the whole grace again: the controller itself stood still.
    pub(super) fn extend_grace(&mut self, now: Timestamp) {
        let least = now.after(LOSS_GRACE);
        for until in self
            .members
            .values_mut()
            .filter_map(|member| member.away_until.as_mut())
        {
            *until = least.max(*until);
        }
    }

    /// Closes the run: no further round begins, and waiting members are refused.
    pub(super) fn close(&mut self, now: Timestamp, reason: String) -> Vec<MemberNotice> {
        let refusal = RoundRefusal::new(RefusalKind::Closed, reason.clone());
        self.record(now, reason);
        self.closure.get_or_insert(refusal.clone());
        let waiting = self.take_waiting();
        waiting
            .into_iter()
            .map(|id| (id, RoundNotice::Refused(refusal.clone())))
            .collect()
    }

    /// Takes every decision that the state, the time and the nodes permit.
    pub(super) fn advance(&mut self, now: Timestamp, nodes: &NodeConditions) -> Vec<MemberNotice> {
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

    /// Sends each waiting member the reason for its wait when it changes.
    fn announce_waits(&mut self, nodes: &NodeConditions, notices: &mut Vec<MemberNotice>) {
        let ready = self.candidates(nodes).len();
        let text = self.wait_text(ready);
        for (id, member) in &mut self.members {
            if !matches!(member.stage, MemberStage::Waiting { .. }) || member.away_until.is_some() {
                continue;
            }
            let reason = condition_text(nodes, &member.profile.node).unwrap_or_else(|| text.clone());
            if member.wait_reason.as_ref() != Some(&reason) {
                member.wait_reason = Some(reason.clone());
                notices.push((*id, RoundNotice::Waits { reason }));
            }
        }
    }

    fn wait_text(&self, ready: usize) -> String {
        let RunTerms {
            nodes_min, nodes_max, ..
        } = &self.terms;
        match (&self.round, &self.end) {
            (Some(_), None) if self.growth_since.is_some() => {
                let last_call = self.terms.last_call.as_secs_f64();
                format!("a round with this node begins {last_call} s (last_call_timeout) after its arrival")
            }
            (Some(round), None) => format!("this node is a spare: the run has {} nodes", round.members.len()),
            _ => format!("{ready} nodes are ready, the run takes {nodes_min} to {nodes_max}"),
        }
    }

    /// `Running => Restarting`: informs the members of the round that run workers.
    fn end_round(&mut self, now: Timestamp, reason: String, notices: &mut Vec<MemberNotice>) {
        if self.end.is_some() || self.round.is_none() {
            return;
        }
        self.record(now, reason.clone());
        self.end = Some(RoundEnd { since: now, reason });
        let members: Vec<MemberId> = self.members.keys().copied().collect();
        notices.extend(members.into_iter().filter_map(|id| self.over_notice(id)));
    }

    /// Returns the notice for a member of a round that is over, if it runs workers and is connected.
    fn over_notice(&self, id: MemberId) -> Option<MemberNotice> {
        let end = self.end.as_ref()?;
        let member = self.members.get(&id)?;
        let is_running = member.stage == MemberStage::Busy && member.away_until.is_none() && self.is_seated(id);
        let reason = end.reason.clone();
        is_running.then_some((id, RoundNotice::RoundOver { reason }))
    }

    /// Returns the members that wait and may be in the next round, in the order of their arrival.
    fn candidates(&self, nodes: &NodeConditions) -> Vec<MemberId> {
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

    fn is_seated(&self, id: MemberId) -> bool {
        self.round.as_ref().is_some_and(|round| round.has(id))
    }

    fn ids(&self, holds: impl Fn(&RunMember) -> bool) -> Vec<MemberId> {
        let members = self.members.iter();
        members.filter(|(_, member)| holds(member)).map(|(id, _)| *id).collect()
    }

    fn take_waiting(&mut self) -> Vec<MemberId> {
        let waiting = self.ids(|member| matches!(member.stage, MemberStage::Waiting { .. }));
        for id in &waiting {
            self.members.remove(id);
        }
        waiting
    }

    fn record(&mut self, now: Timestamp, change: String) {
        self.changed_at = now;
        self.change = change;
    }

    /// Returns the run for status.
    pub(super) fn view(&self, name: &str, nodes: &NodeConditions) -> TorchrunView {
        let state = match (&self.closure, &self.round, &self.end) {
            (Some(_), ..) => TorchrunState::Closed,
            (None, None, _) => TorchrunState::Waiting,
            (None, Some(_), Some(_)) => TorchrunState::Restarting,
            (None, Some(_), None) => TorchrunState::Running,
        };
        let mut members: Vec<TorchrunMemberView> = Vec::new();
        for (id, member) in &self.members {
            let seated = self.round.as_ref().filter(|_| self.end.is_none());
            let rank = seated.and_then(|round| round.rank(*id));
            members.push(TorchrunMemberView {
                node: member.profile.node.clone(),
                rank: rank.and_then(|rank| u32::try_from(rank).ok()),
                state: self.member_state(*id, member),
                reason: condition_text(nodes, &member.profile.node).or_else(|| member.wait_reason.clone()),
            });
        }
        members.sort_by(|a, b| (a.rank.is_none(), a.rank, &a.node).cmp(&(b.rank.is_none(), b.rank, &b.node)));
        TorchrunView {
            run: name.to_owned(),
            owner: self.owner.clone(),
            state,
            round: self.round.as_ref().map(|round| round.number),
            nodes_min: u32::try_from(self.terms.nodes_min).unwrap_or(u32::MAX),
            nodes_max: u32::try_from(self.terms.nodes_max).unwrap_or(u32::MAX),
            members,
            changed_at: self.changed_at,
            reason: self.change.clone(),
        }
    }

    fn member_state(&self, id: MemberId, member: &RunMember) -> TorchrunMemberState {
        let is_running = self.round.is_some() && self.end.is_none();
        match member.stage {
            _ if member.away_until.is_some() => TorchrunMemberState::Disconnected,
            MemberStage::Finished => TorchrunMemberState::Finished,
            MemberStage::Waiting { .. } if is_running => TorchrunMemberState::Spare,
            MemberStage::Waiting { .. } => TorchrunMemberState::Waiting,
            MemberStage::Busy if is_running && self.is_seated(id) => TorchrunMemberState::Running,
            MemberStage::Busy => TorchrunMemberState::Stopping,
        }
    }
}

fn cordon_reason<'n>(nodes: &'n NodeConditions, node: &NodeId) -> Option<&'n str> {
    match nodes.get(node)? {
        NodeCondition::Cordoned(reason) => Some(reason),
        NodeCondition::Fencing => None,
    }
}

fn condition_text(nodes: &NodeConditions, node: &NodeId) -> Option<String> {
    Some(match nodes.get(node)? {
        NodeCondition::Cordoned(reason) => format!("node {node} is cordoned: {reason}"),
        NodeCondition::Fencing => format!("node {node} has not confirmed the end of ranks of an earlier job"),
    })
}
