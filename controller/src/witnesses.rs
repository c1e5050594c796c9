//! The witnesses that each agent was sent: agents that it asks whether they reach the controller when it does not.
//!
//! An agent gets its witnesses when it joins. When nodes come or go, the sets of the others change: they are sent again at
//! the next liveness check, and only where they differ.

use std::collections::BTreeMap;

use rankguard_core::{Event, Fleet, WitnessRing};
use rankguard_model::{NodeId, Peer};
use rankguard_proto::v1;
use rankguard_proto::v1::to_agent::Kind;

use crate::roster::Roster;

/// Nodes up to which the ring is made anew at each join: a small cluster has its witnesses at once.
const SMALL_FLEET: usize = 256;

/// The witnesses that agents know.
#[derive(Debug, Default)]
pub(crate) struct WitnessBoard {
    ring: WitnessRing,
    sent: BTreeMap<NodeId, Vec<Peer>>,
    /// Whether nodes may have come or gone since the ring was made.
    is_stale: bool,
}

impl WitnessBoard {
    /// Takes notice of an event that may change the live nodes.
    pub(crate) fn observe(&mut self, event: &Event) {
        self.is_stale |= matches!(
            event,
            Event::NodeJoined { .. } | Event::NodeFellSilent { .. } | Event::TimerFired { .. }
        );
    }

    /// The witnesses of a node that has just joined.
    pub(crate) fn welcome(&mut self, fleet: &Fleet, node: &NodeId) -> Vec<v1::Peer> {
        if self.ring.len() < SMALL_FLEET {
            self.ring = WitnessRing::of(fleet);
        }
        let witnesses = self.of(fleet, node);
        self.sent.insert(node.clone(), witnesses.clone());
        witnesses.iter().map(Into::into).collect()
    }

    /// Sends their witnesses to the agents that know others.
    pub(crate) fn refresh(&mut self, fleet: &Fleet, roster: &mut Roster) {
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

    fn of(&self, fleet: &Fleet, node: &NodeId) -> Vec<Peer> {
        let domain = fleet.get(node).map_or("", |entry| entry.info.failure_domain.as_str());
        self.ring.witnesses(node, domain)
    }
}
