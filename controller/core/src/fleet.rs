//! Nodes and their state transitions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use rankguard_diagnosis::DraftId;
use rankguard_model::{
    CaseId, ClassId, CordonView, Generation, JobId, NodeId, NodeInfo, NodeState, RunningRank, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::fence::FenceRequest;
use crate::missed_reports::ReportTimes;

/// Largest number of reasons of one cordon (since rules 8).
pub const CORDON_REASONS_MAX: usize = 32;
/// The same under older rules, which dropped the oldest without a report.
const OLD_CORDON_REASONS_MAX: usize = 8;
/// Separator of the reasons of one cordon.
const CORDON_REASON_END: &str = "; ";
/// Automatic cordons recorded for the rate breaker.
const RECENT_CORDONS_MAX: usize = 4_096;

/// Node with two independent properties: its agent is live or not, and it is cordoned or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Description from the latest join of its agent.
    pub info: NodeInfo,
    /// Time at which it was declared lost; absent while its agent is live.
    pub lost_since: Option<Timestamp>,
    /// Time of its latest join.
    pub joined_at: Timestamp,
    /// Time at which its session ended. Nothing is placed on the node until it has joined again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_ended: Option<Timestamp>,
    /// Time of the last message before its session ended; absent while it is connected, and in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heard: Option<Timestamp>,
    /// Start of the controller, if the agent has not joined since. Nothing is placed on the node until it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unjoined_since: Option<Timestamp>,
    /// Report of the agent that it was asked to end; absent after its next join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub farewell: Option<AgentFarewell>,
    /// Open draft with a fatal fault of the node or of one of its devices. Nothing is placed on the node before the
    /// verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspected: Option<DraftId>,
    /// Running ranks of generations that another journal has begun. Nothing is placed on the node while it has some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<RunningRank>,
    /// Cordon; absent if ranks may be placed on the node.
    pub cordon: Option<Cordon>,
    /// Fault for which the cordon limit permitted no cordon. The node is used until an operator decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncordoned_fault: Option<UncordonedFault>,
    /// Job that left the node because something lacks there; absent after a restart of its agent or an uncordon. Other jobs
    /// are placed there last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lack: Option<NodeLack>,
    /// Links of the node that were reported as down and not as up since, each with the time of the report.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links_down: BTreeMap<String, Timestamp>,
    /// Links that came up again while no case blamed them, each with the time of the report. A verdict may follow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links_up: BTreeMap<String, Timestamp>,
    /// Links that drills took down, for the life of their cases only: the node takes work as before.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) drilled_links: BTreeSet<String>,
    /// Conditions of the machine of which the end has not been reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<LastingCondition>,
    /// Notice that the machine is about to be taken away, while its agent reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) removal: Option<RemovalNotice>,
    /// Fences of jobs that have left the node, which its agent has not confirmed (RG-3).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fences: BTreeMap<JobId, FenceRequest>,
    /// Times at which its evidence arrived.
    #[serde(default, skip_serializing_if = "ReportTimes::is_empty")]
    pub(crate) reports: ReportTimes,
}

/// Notice that a machine is about to be taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemovalNotice {
    /// Its reason among those of the cordon.
    pub(crate) reason: String,
    /// True if nothing else drains the node.
    pub(crate) is_only_drain: bool,
}

/// Something that a job needs and that one of its nodes lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLack {
    pub job: JobId,
    /// Class of the failure that its ranks reported.
    pub class: ClassId,
    /// Case of that failure.
    pub case: CaseId,
    /// Time at which the job left the node.
    pub since: Timestamp,
}

/// Condition of a machine that lasts until its end is reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastingCondition {
    /// Time of the report.
    pub since: Timestamp,
    /// File system, server or cable that has it.
    pub place: String,
    /// Class of the report; `none` if it is no failure by itself.
    pub class: ClassId,
    /// Place and condition in words.
    pub text: String,
    /// True if the agent measures it, false if the kernel reports its changes.
    pub is_measured: bool,
}

/// Report of an agent that it was asked to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFarewell {
    /// Time of the report.
    pub at: Timestamp,
    /// Jobs of which the agent has ended all processes since, each with the generation below which they ended.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ended: BTreeMap<JobId, Generation>,
}

/// Reason and time of a cordon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cordon {
    /// Time of the cordon.
    pub since: Timestamp,
    pub reason: String,
    /// Case that blames the node; absent for a cordon by an operator.
    pub case: Option<CaseId>,
    /// Limit of the cordon budget at that time; 0 for a cordon by an operator.
    #[serde(default)]
    pub limit: usize,
    /// True if the job of the node moves away after its next checkpoint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drains: bool,
}

impl Cordon {
    /// Returns the view of this cordon.
    pub(crate) fn view(&self) -> CordonView {
        CordonView {
            since: self.since,
            reasons: self.reasons().map(str::to_owned).collect(),
            case: self.case,
        }
    }

    /// Returns the reasons one by one, newest first.
    pub fn reasons(&self) -> impl Iterator<Item = &str> {
        self.reason.split(CORDON_REASON_END)
    }

    /// Returns true if the cordon can have this reason, too, or has it already.
    pub fn has_room_for(&self, reason: &str) -> bool {
        let added = reason.split(CORDON_REASON_END).filter(|part| !self.has_reason(part));
        self.reasons().count() + added.count() <= CORDON_REASONS_MAX
    }

    fn has_reason(&self, reason: &str) -> bool {
        self.reasons().any(|known| known == reason)
    }

    /// Adds a reason before or after the others, unless it is one of them; before them, it is moved there. Returns the reasons
    /// for which there was no room, the last ones.
    fn add_reason(&mut self, reason: &str, place: ReasonPlace) -> Vec<String> {
        let added: Vec<&str> = reason.split(CORDON_REASON_END).collect();
        let reasons: Vec<&str> = match place {
            ReasonPlace::First => {
                let others = self.reasons().filter(|known| !added.contains(known));
                added.iter().copied().chain(others).collect()
            }
            ReasonPlace::Last => {
                let others = added.iter().copied().filter(|part| !self.has_reason(part));
                self.reasons().chain(others).collect()
            }
        };
        let (retained, dropped) = reasons.split_at(reasons.len().min(CORDON_REASONS_MAX));
        let dropped = dropped.iter().map(|reason| (*reason).to_owned()).collect();
        self.reason = retained.join(CORDON_REASON_END);
        dropped
    }
}

/// Place of a further reason of a cordon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReasonPlace {
    /// Before the others: reasons are listed newest or worst first.
    First,
    /// After the others.
    Last,
}

/// Fault of a node that stays in use because of the cordon limit (RG-6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncordonedFault {
    /// Time of the verdict.
    pub since: Timestamp,
    /// Case that blames the node.
    pub case: CaseId,
    /// Fault, and the limit that was reached.
    pub reason: String,
}

impl Node {
    pub fn state(&self) -> NodeState {
        if self.lost_since.is_some() {
            NodeState::Lost
        } else if self.cordon.is_some() {
            NodeState::Cordoned
        } else if !self.fences.is_empty() {
            NodeState::Fencing
        } else {
            NodeState::Healthy
        }
    }

    /// Returns true if new ranks may be placed on the node.
    pub fn is_usable(&self) -> bool {
        let has_session = self.session_ended.is_none() && self.unjoined_since.is_none();
        let is_connected = self.state() == NodeState::Healthy && has_session;
        is_connected && self.suspected.is_none() && self.foreign.is_empty() && !self.has_full_agent()
    }

    /// Returns true if the agent has reported that all processes of the job below this generation ended with it.
    pub(crate) fn has_ended_ranks(&self, job: &JobId, generation: Generation) -> bool {
        let ended = self.farewell.as_ref().and_then(|farewell| farewell.ended.get(job));
        ended.is_some_and(|below| *below >= generation)
    }
}

/// Nodes that joined and have not been removed since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    nodes: BTreeMap<NodeId, Node>,
    /// Live nodes without a session.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    away: BTreeSet<NodeId>,
    /// Times of automatic cordons, oldest first, including cordons that were lifted since.
    #[serde(default)]
    recent_cordons: VecDeque<Timestamp>,
}

impl Fleet {
    /// `(absent | any) => (Healthy | Cordoned | Fencing)`. Cordons and unconfirmed fences survive a restart of the
    /// agent: only the clearing of its case lifts a cordon.
    pub fn join(&mut self, at: Timestamp, info: NodeInfo) {
        let known = self.nodes.remove(&info.node);
        self.away.remove(&info.node);
        let mut node = Node {
            lost_since: None,
            session_ended: None,
            last_heard: None,
            unjoined_since: None,
            farewell: None,
            suspected: None,
            foreign: Vec::new(),
            joined_at: at,
            cordon: None,
            uncordoned_fault: None,
            lack: None,
            links_down: BTreeMap::new(),
            links_up: BTreeMap::new(),
            drilled_links: BTreeSet::new(),
            conditions: Vec::new(),
            removal: None,
            fences: BTreeMap::new(),
            reports: ReportTimes::default(),
            info,
        };
        if let Some(known) = known {
            // A boot brings links up again.
            if known.info.boot_id == node.info.boot_id {
                node.links_down = known.links_down;
                node.drilled_links = known.drilled_links;
                node.conditions = known.conditions;
            }
            node.cordon = known.cordon;
            node.removal = known.removal;
            node.uncordoned_fault = known.uncordoned_fault;
            node.fences = known.fences;
            node.suspected = known.suspected;
            node.foreign = known.foreign;
            node.reports = known.reports;
        }
        self.nodes.insert(node.info.node.clone(), node);
    }

    /// Replaces the reason of an existing cordon; its time, case and place in the budget remain.
    pub(crate) fn replace_cordon_reason(&mut self, node: &NodeId, reason: &str) {
        if let Some(cordon) = self.nodes.get_mut(node).and_then(|node| node.cordon.as_mut()) {
            cordon.reason = reason.to_owned();
        }
    }

    /// Adds a reason to those of an existing cordon. Time, case and place in the budget remain. Returns the reasons for which
    /// there was no room.
    pub(crate) fn add_cordon_reason(&mut self, node: &NodeId, reason: &str, place: ReasonPlace) -> Vec<String> {
        let cordon = self.nodes.get_mut(node).and_then(|node| node.cordon.as_mut());
        cordon.map_or_else(Vec::new, |cordon| cordon.add_reason(reason, place))
    }

    /// Puts a reason before those of an existing cordon, unless it is one of them; the oldest are dropped beyond
    /// [`OLD_CORDON_REASONS_MAX`] (before rules 8).
    pub(crate) fn prepend_cordon_reason(&mut self, node: &NodeId, reason: &str) {
        let Some(cordon) = self.nodes.get_mut(node).and_then(|node| node.cordon.as_mut()) else {
            return;
        };
        let before = cordon
            .reason
            .split(CORDON_REASON_END)
            .filter(|before| *before != reason);
        let reasons: Vec<&str> = std::iter::once(reason)
            .chain(before)
            .take(OLD_CORDON_REASONS_MAX)
            .collect();
        cordon.reason = reasons.join(CORDON_REASON_END);
    }

    /// Puts a reason behind those of an existing cordon, unless there are [`OLD_CORDON_REASONS_MAX`] (before rules 8).
    pub(crate) fn append_cordon_reason(&mut self, node: &NodeId, reason: &str) {
        let Some(cordon) = self.nodes.get_mut(node).and_then(|node| node.cordon.as_mut()) else {
            return;
        };
        if cordon.reason.split(CORDON_REASON_END).count() < OLD_CORDON_REASONS_MAX {
            cordon.reason = format!("{}{CORDON_REASON_END}{reason}", cordon.reason);
        }
    }

    /// `(Healthy | Cordoned) => Lost`.
    pub fn lose(&mut self, at: Timestamp, node: &NodeId) {
        self.away.remove(node);
        if let Some(node) = self.nodes.get_mut(node) {
            node.lost_since.get_or_insert(at);
        }
    }

    /// `(Healthy | Fencing) => Cordoned`. An existing cordon is unchanged.
    pub fn cordon(&mut self, node: &NodeId, cordon: Cordon) {
        let Some(node) = self.nodes.get_mut(node).filter(|node| node.cordon.is_none()) else {
            return;
        };
        if cordon.case.is_some() {
            if self.recent_cordons.len() >= RECENT_CORDONS_MAX {
                self.recent_cordons.pop_front();
            }
            self.recent_cordons.push_back(cordon.since);
        }
        node.cordon = Some(cordon);
    }

    /// Marks a cordoned node to be drained, also under an earlier cordon.
    pub(crate) fn drain(&mut self, node: &NodeId) {
        if let Some(cordon) = self.nodes.get_mut(node).and_then(|node| node.cordon.as_mut()) {
            cordon.drains = true;
        }
        if let Some(notice) = self.nodes.get_mut(node).and_then(|node| node.removal.as_mut()) {
            notice.is_only_drain = false;
        }
    }

    /// Returns true if the machine of the node is about to be taken away.
    pub(crate) fn is_to_be_removed(&self, node: &NodeId) -> bool {
        self.nodes.get(node).is_some_and(|node| node.removal.is_some())
    }

    /// Returns the reasons why nodes are drained, in words.
    pub(crate) fn describe_drains(&self, drained: &[&NodeId]) -> String {
        let names = |is_removed: bool| {
            let nodes = drained.iter().filter(|node| self.is_to_be_removed(node) == is_removed);
            nodes.map(|node| node.as_str()).collect::<Vec<_>>()
        };
        let (by_operator, removed) = (names(false), names(true));
        let of_operator = (!by_operator.is_empty()).then(|| format!("an operator drains {}", by_operator.join(" ")));
        let of_machines = match removed[..] {
            [] => None,
            [node] => Some(format!("the machine of {node} is about to be taken away")),
            _ => Some(format!(
                "the machines of {} are about to be taken away",
                removed.join(" ")
            )),
        };
        of_operator
            .into_iter()
            .chain(of_machines)
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Records a notice that the machine of a cordoned node is about to be taken away, and drains the node.
    pub(crate) fn note_removal(&mut self, node: &NodeId, reason: &str) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        let Some(cordon) = node.cordon.as_mut() else { return };
        let earlier = node.removal.take();
        let is_only_drain = earlier.map_or(!cordon.drains, |earlier| earlier.is_only_drain);
        cordon.drains = true;
        node.removal = Some(RemovalNotice {
            reason: reason.to_owned(),
            is_only_drain,
        });
    }

    /// Ends the notice of a node, and its reason and drain, if nothing else asked for them. Returns true if the node had a
    /// notice.
    pub(crate) fn withdraw_removal(&mut self, node: &NodeId) -> bool {
        let Some(node) = self.nodes.get_mut(node) else {
            return false;
        };
        let Some(notice) = node.removal.take() else {
            return false;
        };
        if let Some(cordon) = node.cordon.take() {
            let others: Vec<&str> = cordon.reasons().filter(|reason| *reason != notice.reason).collect();
            node.cordon = (!others.is_empty()).then(|| Cordon {
                reason: others.join(CORDON_REASON_END),
                drains: cordon.drains && !notice.is_only_drain,
                ..cordon
            });
        }
        true
    }

    /// Returns true if the node is being drained.
    pub(crate) fn is_draining(&self, node: &NodeId) -> bool {
        let cordon = self.nodes.get(node).and_then(|node| node.cordon.as_ref());
        cordon.is_some_and(|cordon| cordon.drains)
    }

    /// Removes a node if it is lost. Returns true if it was.
    pub(crate) fn remove_lost(&mut self, node: &NodeId) -> bool {
        let is_lost = self.nodes.get(node).is_some_and(|node| node.lost_since.is_some());
        if is_lost {
            self.nodes.remove(node);
        }
        is_lost
    }

    /// `Cordoned => Healthy`; lifts the cordon of a node.
    pub fn uncordon(&mut self, node: &NodeId) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.cordon = None;
            node.removal = None;
        }
    }

    /// Returns a node for changes that concern neither its cordon nor its session.
    pub(crate) fn get_mut(&mut self, node: &NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(node)
    }

    /// Marks a node as suspected by a draft.
    pub(crate) fn suspect(&mut self, node: &NodeId, draft: DraftId) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.suspected.get_or_insert(draft);
        }
    }

    /// Ends the suspicions of a draft. Returns true if there were some.
    pub(crate) fn end_suspicion(&mut self, draft: DraftId) -> bool {
        let suspected = self.nodes.values_mut().filter(|node| node.suspected == Some(draft));
        suspected.map(|node| node.suspected = None).count() > 0
    }

    /// Records the end of a node's session.
    pub(crate) fn end_session(&mut self, at: Timestamp, node: &NodeId, last_heard: Option<Timestamp>) {
        if let Some(entry) = self.nodes.get_mut(node).filter(|node| node.lost_since.is_none()) {
            entry.session_ended.get_or_insert(at);
            entry.last_heard = entry.last_heard.or(last_heard);
            self.away.insert(node.clone());
        }
    }

    /// Records a start of the controller: no agent is connected yet.
    pub(crate) fn controller_started(&mut self, at: Timestamp) {
        for (name, node) in &mut self.nodes {
            if node.lost_since.is_none() {
                node.unjoined_since = Some(at);
                self.away.insert(name.clone());
            }
        }
    }

    /// Returns live nodes without a session, each with the time at which its session ended, or since which it is awaited
    /// by a controller that has started.
    pub(crate) fn nodes_without_session(&self) -> impl Iterator<Item = (&NodeId, Timestamp)> {
        let away = self.away.iter();
        away.filter_map(|name| {
            let node = self.get(name)?;
            Some((name, node.unjoined_since.or(node.session_ended)?))
        })
    }

    pub fn get(&self, node: &NodeId) -> Option<&Node> {
        self.nodes.get(node)
    }

    /// Returns all nodes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &Node)> {
        self.nodes.iter()
    }

    /// Returns the nodes after a name, by name; all nodes without one.
    pub fn after(&self, name: Option<&NodeId>) -> impl Iterator<Item = (&NodeId, &Node)> {
        let start = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.nodes.range::<NodeId, _>((start, Bound::Unbounded))
    }

    /// Returns true if the node exists and is not lost.
    pub fn is_live(&self, node: &NodeId) -> bool {
        self.get(node).is_some_and(|node| node.lost_since.is_none())
    }

    /// Returns the unconfirmed fences of a node.
    pub(crate) fn fences_mut(&mut self, node: &NodeId) -> Option<&mut BTreeMap<JobId, FenceRequest>> {
        self.nodes.get_mut(node).map(|node| &mut node.fences)
    }

    /// Removes nodes that have been lost for at least `limit_ms`, are not cordoned and have no part in a job. A
    /// cordoned node is retained: its cordon counts against the budget until an operator lifts it (RG-6).
    pub(crate) fn forget_departed(&mut self, at: Timestamp, limit_ms: u64, in_use: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let departed = |name: &NodeId, node: &mut Node| {
            let lost = node
                .lost_since
                .is_some_and(|since| at.millis_since(since) >= limit_ms as i64);
            lost && node.cordon.is_none() && !in_use.contains(name)
        };
        self.nodes.extract_if(.., departed).map(|(name, _)| name).collect()
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of nodes that are not lost.
    pub fn live(&self) -> usize {
        self.nodes.values().filter(|node| node.lost_since.is_none()).count()
    }

    /// Returns the number of nodes cordoned by verdicts or operators.
    pub fn cordoned(&self) -> usize {
        self.nodes.values().filter(|node| node.cordon.is_some()).count()
    }

    /// Returns the number of automatic cordons in the last `window_ms`.
    pub fn recent_cordons(&self, at: Timestamp, window_ms: u64) -> usize {
        let recent = |since: &&Timestamp| at.millis_since(**since) < window_ms as i64;
        self.recent_cordons.iter().rev().take_while(recent).count()
    }

    /// Returns the number of nodes cordoned by verdicts.
    pub fn cordoned_by_verdict(&self) -> usize {
        self.nodes
            .values()
            .filter(|node| node.cordon.as_ref().is_some_and(|cordon| cordon.case.is_some()))
            .count()
    }

    /// Selects at most `max` nodes for a job: the nodes of `before` first and in the same order, then others by name, last those
    /// that another job left because something lacks there.
    ///
    /// Ranks thus remain where their arenas are, so that a restore moves as few bytes as possible.
    pub fn choose(&self, before: &[NodeId], taken: &BTreeSet<NodeId>, slots: u32, max: usize) -> Vec<NodeId> {
        let fits = |name: &&NodeId| {
            !taken.contains(*name)
                && self
                    .get(name)
                    .is_some_and(|node| node.is_usable() && node.info.slots >= slots)
        };
        // A new node takes the place of the node it replaces, so that the others retain their ranks.
        let own: BTreeSet<&NodeId> = before.iter().collect();
        let lacks = |name: &&NodeId| self.get(name).is_some_and(|node| node.lack.is_some());
        let others = self.nodes.keys().filter(|name| !own.contains(name)).filter(fits);
        let (last, first): (Vec<&NodeId>, Vec<&NodeId>) = others.partition(lacks);
        let mut others = first.into_iter().chain(last);
        let mut chosen: Vec<NodeId> = Vec::new();
        for name in before {
            let place = Some(name).filter(fits).or_else(|| others.next());
            chosen.extend(place.cloned());
        }
        chosen.extend(others.cloned());
        chosen.truncate(max);
        chosen
    }
}
