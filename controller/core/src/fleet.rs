//! Nodes and their lives.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{CaseId, NodeId, NodeInfo, NodeState, Timestamp};
use serde::Serialize;

/// One node. Its agent speaks or not; it is cordoned or not: the two are independent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// What its agent said when it last joined.
    pub info: NodeInfo,
    /// When it fell silent, if it is.
    pub lost_since: Option<Timestamp>,
    /// When it last joined.
    pub joined_at: Timestamp,
    /// Why nothing may be placed on it, if so.
    pub cordon: Option<Cordon>,
}

/// Why a node takes no ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cordon {
    /// Since when.
    pub since: Timestamp,
    /// In words.
    pub reason: String,
    /// The case whose verdict blames it; absent when a person did it.
    pub case: Option<CaseId>,
}

impl Node {
    /// Where it stands.
    pub fn state(&self) -> NodeState {
        match (&self.lost_since, &self.cordon) {
            (Some(_), _) => NodeState::Lost,
            (None, Some(_)) => NodeState::Cordoned,
            (None, None) => NodeState::Healthy,
        }
    }

    /// Whether new ranks may be placed on it.
    pub fn is_usable(&self) -> bool {
        self.state() == NodeState::Healthy
    }
}

/// All nodes that ever joined.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Fleet {
    nodes: BTreeMap<NodeId, Node>,
}

impl Fleet {
    /// `(absent | Healthy | Lost | Cordoned) => (Healthy | Cordoned)`. A cordon outlives a restart of the agent: it is
    /// lifted by what clears its case, not by silence.
    pub fn join(&mut self, at: Timestamp, info: NodeInfo) {
        let cordon = self.nodes.remove(&info.node).and_then(|node| node.cordon);
        let node = Node {
            lost_since: None,
            joined_at: at,
            cordon,
            info,
        };
        self.nodes.insert(node.info.node.clone(), node);
    }

    /// `(Healthy | Cordoned) => Lost`.
    pub fn lose(&mut self, at: Timestamp, node: &NodeId) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.lost_since.get_or_insert(at);
        }
    }

    /// `Healthy => Cordoned`. The first reason stands.
    pub fn cordon(&mut self, node: &NodeId, cordon: Cordon) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.cordon.get_or_insert(cordon);
        }
    }

    /// `Cordoned => Healthy`.
    pub fn uncordon(&mut self, node: &NodeId) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.cordon = None;
        }
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

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no node ever joined.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
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
