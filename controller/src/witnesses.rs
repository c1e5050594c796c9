//! Witnesses sent to each agent: the agents that it asks about the controller when its own session is cut off.
//!
//! An agent receives its witnesses when it joins. When nodes come or go, the sets of others change: they are sent again
//! at the next liveness check, and only if they differ.

use std::collections::BTreeMap;

use rankguard_core::{Event, Fleet, WitnessRing};
use rankguard_model::{NodeId, PeerAgent};
use rankguard_proto::v1;
use rankguard_proto::v1::to_agent::Kind;

use crate::session_table::SessionTable;

/// Fleet size up to which the ring is rebuilt at each join, so that a small cluster has its witnesses at once.
const SMALL_FLEET: usize = 256;

/// Witnesses last sent to each agent.
#[derive(Debug, Default)]
pub(crate) struct WitnessBoard {
    ring: WitnessRing,
    sent: BTreeMap<NodeId, Vec<PeerAgent>>,
    /// True if nodes may have come or gone since the ring was built.
    is_stale: bool,
}

impl WitnessBoard {
    /// Marks the ring as stale after events that may change the live nodes.
    pub(crate) fn observe(&mut self, event: &Event) {
        self.is_stale |= matches!(
            event,
            Event::NodeJoined { .. } | Event::NodeFellSilent { .. } | Event::TimerFired { .. }
        );
    }

    /// Returns the witnesses of a node that has just joined.
    pub(crate) fn welcome(&mut self, fleet: &Fleet, node: &NodeId) -> Vec<v1::Peer> {
        if self.ring.len() < SMALL_FLEET {
            self.ring = WitnessRing::of(fleet);
        }
        let witnesses = self.of(fleet, node);
        self.sent.insert(node.clone(), witnesses.clone());
        witnesses.iter().map(Into::into).collect()
    }

    /// Sends the witnesses of agents with a changed set.
    pub(crate) fn refresh(&mut self, fleet: &Fleet, roster: &mut SessionTable) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        self.ring = WitnessRing::of(fleet);
        let seated = roster.nodes();
        self.sent.retain(|node, _| seated.contains(node));
        for node in seated {
            let witnesses = self.of(fleet, &node);
            if self.sent.get(&node) != Some(&witnesses) {
                let list = v1::WitnessList {
                    witnesses: witnesses.iter().map(Into::into).collect(),
                };
                roster.send(&node, Kind::Witnesses(list));
                self.sent.insert(node, witnesses);
            }
        }
    }

    fn of(&self, fleet: &Fleet, node: &NodeId) -> Vec<PeerAgent> {
        let domain = fleet.get(node).map_or("", |entry| entry.info.failure_domain.as_str());
        self.ring.witnesses(node, domain)
    }
}
