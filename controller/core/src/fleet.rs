//! Nodes and their lives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rankguard_model::{CaseId, JobId, NodeId, NodeInfo, NodeState, Timestamp};
use serde::{Deserialize, Serialize};

use crate::fence::FenceRequest;

/// Automatic cordons that are remembered for the rate breaker.
const RECENT_CORDONS_MAX: usize = 4_096;

/// One node. Its agent speaks or not; it is cordoned or not: the two are independent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What its agent said when it last joined.
    pub info: NodeInfo,
    /// When it fell silent, if it is.
    pub lost_since: Option<Timestamp>,
    /// When it last joined.
    pub joined_at: Timestamp,
    /// When its session ended, if it has none. Nothing is placed on it until it has joined again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_ended: Option<Timestamp>,
    /// Why nothing may be placed on it, if so.
    pub cordon: Option<Cordon>,
    /// Ranks of jobs that have left it whose end its agent has not confirmed (RG-3).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fences: BTreeMap<JobId, FenceRequest>,
}

/// Why a node takes no ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cordon {
    /// Since when.
    pub since: Timestamp,
    /// In words.
    pub reason: String,
    /// The case whose verdict blames it; absent when a person did it.
    pub case: Option<CaseId>,
    /// The cordon budget's limit at that moment; 0 when a person did it.
    #[serde(default)]
    pub limit: usize,
    /// Its job is to leave after its next checkpoint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drains: bool,
}

impl Node {
    /// Where it stands.
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

    /// Whether new ranks may be placed on it.
    pub fn is_usable(&self) -> bool {
        self.state() == NodeState::Healthy && self.session_ended.is_none()
    }
}

/// All nodes that joined and were not forgotten since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    nodes: BTreeMap<NodeId, Node>,
    /// Live nodes without a session.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    away: BTreeSet<NodeId>,
    /// When verdicts cordoned nodes, oldest first, also where the cordon was lifted since.
    #[serde(default)]
    recent_cordons: VecDeque<Timestamp>,
}

impl Fleet {
    /// `(absent | any) => (Healthy | Cordoned | Fencing)`. A cordon outlives a restart of the agent: it is lifted by what
    /// clears its case, not by silence. So do the fences that its agent has not confirmed.
    pub fn join(&mut self, at: Timestamp, info: NodeInfo) {
        let known = self.nodes.remove(&info.node);
        self.away.remove(&info.node);
        let (cordon, fences) = known.map_or_else(Default::default, |node| (node.cordon, node.fences));
        let node = Node {
            lost_since: None,
            session_ended: None,
            joined_at: at,
            cordon,
            fences,
            info,
        };
        self.nodes.insert(node.info.node.clone(), node);
    }

    /// An operator's reason replaces that of a standing cordon. Since when, its case and its place in the cordon budget remain.
    pub(crate) fn replace_cordon_reason(&mut self, node: &NodeId, reason: &str) {
        if let Some(cordon) = self.nodes.get_mut(node).and_then(|node| node.cordon.as_mut()) {
            cordon.reason = reason.to_owned();
        }
    }

    /// `(Healthy | Cordoned) => Lost`.
    pub fn lose(&mut self, at: Timestamp, node: &NodeId) {
        self.away.remove(node);
        if let Some(node) = self.nodes.get_mut(node) {
            node.lost_since.get_or_insert(at);
        }
    }

    /// `(Healthy | Fencing) => Cordoned`. The first reason stands.
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

    /// The job of a cordoned node is to leave it, also where the cordon stood before.
    pub(crate) fn drain(&mut self, node: &NodeId) {
        if let Some(cordon) = self.nodes.get_mut(node).and_then(|node| node.cordon.as_mut()) {
            cordon.drains = true;
        }
    }

    /// Whether the job of a node is to leave it.
    pub(crate) fn is_draining(&self, node: &NodeId) -> bool {
        let cordon = self.nodes.get(node).and_then(|node| node.cordon.as_ref());
        cordon.is_some_and(|cordon| cordon.drains)
    }

    /// Removes a node that is lost. Returns whether it was.
    pub(crate) fn remove_lost(&mut self, node: &NodeId) -> bool {
        let is_lost = self.nodes.get(node).is_some_and(|node| node.lost_since.is_some());
        if is_lost {
            self.nodes.remove(node);
        }
        is_lost
    }

    /// `Cordoned => Healthy`.
    pub fn uncordon(&mut self, node: &NodeId) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.cordon = None;
        }
    }

    /// The session of a node's agent ended.
    pub(crate) fn end_session(&mut self, at: Timestamp, node: &NodeId) {
        if let Some(entry) = self.nodes.get_mut(node).filter(|node| node.lost_since.is_none()) {
            entry.session_ended.get_or_insert(at);
            self.away.insert(node.clone());
        }
    }

    /// Live nodes without a session, and when it ended.
    pub(crate) fn away(&self) -> impl Iterator<Item = (&NodeId, Timestamp)> {
        let away = self.away.iter();
        away.filter_map(|name| Some((name, self.get(name)?.session_ended?)))
    }

    /// One node.
    pub fn get(&self, node: &NodeId) -> Option<&Node> {
        self.nodes.get(node)
    }

    /// All nodes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &Node)> {
        self.nodes.iter()
    }

    /// Whether a node's agent speaks.
    pub fn is_live(&self, node: &NodeId) -> bool {
        self.get(node).is_some_and(|node| node.lost_since.is_none())
    }

    /// The fences that a node's agent has not confirmed.
    pub(crate) fn fences_mut(&mut self, node: &NodeId) -> Option<&mut BTreeMap<JobId, FenceRequest>> {
        self.nodes.get_mut(node).map(|node| &mut node.fences)
    }

    /// Removes nodes that have been lost for longer than `limit_ms`, are not cordoned and have no part in a job. A cordoned
    /// node is kept: its cordon counts against the budget until a person lifts it (RG-6).
    pub(crate) fn forget_departed(&mut self, at: Timestamp, limit_ms: u64, in_use: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let departed = |name: &NodeId, node: &mut Node| {
            let lost = node
                .lost_since
                .is_some_and(|since| at.millis_since(since) >= limit_ms as i64);
            lost && node.cordon.is_none() && !in_use.contains(name)
        };
        self.nodes.extract_if(.., departed).map(|(name, _)| name).collect()
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no node ever joined.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Nodes with a live session.
    pub fn live(&self) -> usize {
        self.nodes.values().filter(|node| node.lost_since.is_none()).count()
    }

    /// Nodes that verdicts or people have taken out of use.
    pub fn cordoned(&self) -> usize {
        self.nodes.values().filter(|node| node.cordon.is_some()).count()
    }

    /// Automatic cordons of the last `window_ms`.
    pub fn recent_cordons(&self, at: Timestamp, window_ms: u64) -> usize {
        let recent = |since: &&Timestamp| at.millis_since(**since) < window_ms as i64;
        self.recent_cordons.iter().rev().take_while(recent).count()
    }

    /// Nodes that verdicts, not people, have taken out of use.
    pub fn cordoned_by_verdict(&self) -> usize {
        self.nodes
            .values()
            .filter(|node| node.cordon.as_ref().is_some_and(|cordon| cordon.case.is_some()))
            .count()
    }

    /// Nodes for a job, those it ran on before first and in the same order, then others by name. At most `max`.
    ///
    /// Keeping the order keeps ranks where their arenas are, so that a restore moves as few bytes as possible.
    pub fn choose(&self, before: &[NodeId], taken: &BTreeSet<NodeId>, slots: u32, max: usize) -> Vec<NodeId> {
        let fits = |name: &&NodeId| {
            !taken.contains(*name)
                && self
                    .get(name)
                    .is_some_and(|node| node.is_usable() && node.info.slots >= slots)
        };
        // A newcomer takes the place of the node it replaces, so that the others keep their ranks.
        let mut others = self.nodes.keys().filter(|name| !before.contains(name)).filter(fits);
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
