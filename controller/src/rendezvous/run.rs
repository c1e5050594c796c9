//! State of one run: members, its rounds and what their messages change. `decisions` has what follows from the time and the
//! nodes, `view` the texts.

mod decisions;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rankguard_model::Timestamp;

use super::notice::{MemberDeparture, MemberNotice, RefusalKind, RoundNotice, RoundRefusal};
use super::round::{MemberId, MemberProfile, RunTerms, TorchrunRound};

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
}
