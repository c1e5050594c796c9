//! Texts about a run for its members and for status.

use rankguard_model::{NodeId, Timestamp, TorchrunMemberState, TorchrunMemberView, TorchrunState, TorchrunView};

use super::super::notice::{MemberNotice, NodeCondition, NodeConditions, RoundNotice};
use super::super::round::{MemberId, RunTerms};
use super::{MemberStage, RunMember, RunState};

impl RunMember {
    /// Returns the reason for which it waits now.
    fn present_wait(&self) -> Option<String> {
        let is_waiting = matches!(self.stage, MemberStage::Waiting { .. });
        self.wait_reason.clone().filter(|_| is_waiting)
    }
}

impl RunState {
    /// Sends each waiting member the reason for its wait when it changes.
    pub(super) fn announce_waits(&mut self, nodes: &NodeConditions, notices: &mut Vec<MemberNotice>) {
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
            _ => {
                let are_ready = if ready == 1 { "node is ready" } else { "nodes are ready" };
                format!("{ready} {are_ready}, the run takes {nodes_min} to {nodes_max}")
            }
        }
    }

    /// Returns the run for status.
    pub(in crate::rendezvous) fn view(&self, name: &str, nodes: &NodeConditions) -> TorchrunView {
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
                reason: condition_text(nodes, &member.profile.node).or_else(|| member.present_wait()),
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
            ended_at: None,
        }
    }

    /// Returns the run for status after its last member left.
    pub(in crate::rendezvous) fn ended_view(&self, name: &str, now: Timestamp) -> TorchrunView {
        let view = self.view(name, &NodeConditions::new());
        let reason = if self.closure.is_some() {
            view.reason
        } else {
            format!("{}; no torchrun of the run is left", view.reason)
        };
        TorchrunView {
            state: TorchrunState::Closed,
            changed_at: now,
            reason,
            ended_at: Some(now),
            ..view
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

/// Returns the reason for which a node is not used.
pub(super) fn condition_text(nodes: &NodeConditions, node: &NodeId) -> Option<String> {
    Some(match nodes.get(node)? {
        NodeCondition::Cordoned(reason) => format!("node {node} is cordoned: {reason}"),
        NodeCondition::Fencing => format!("node {node} has not confirmed the end of ranks of an earlier job"),
    })
}
