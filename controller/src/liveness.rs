//! Liveness table: time of the last message of each node.
//!
//! Sessions write to the table directly, not through the input queue, so a long queue cannot make a node look silent.
//! After a pause of the controller itself (a slow disk, a stopped virtual machine) no node is declared silent: a late
//! check grants every node a fresh limit.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rankguard_core::Event;
use rankguard_model::{NodeId, Timestamp};

/// Time of the last message of each node, with the silence limit.
#[derive(Debug)]
pub(crate) struct NodeLiveness {
    limit: Duration,
    table: Mutex<LivenessTable>,
}

#[derive(Debug)]
struct LivenessTable {
    last_heard: BTreeMap<NodeId, Timestamp>,
    checked: Timestamp,
}

impl NodeLiveness {
    /// Creates a table that watches these nodes; each has the whole limit from `now` on.
    pub(crate) fn new(limit: Duration, nodes: impl IntoIterator<Item = NodeId>, now: Timestamp) -> Self {
        let last_heard = nodes.into_iter().map(|node| (node, now)).collect();
        Self {
            limit,
            table: Mutex::new(LivenessTable {
                last_heard,
                checked: now,
            }),
        }
    }

    /// Returns the interval of [`take_fallen`](Self::take_fallen): a quarter of the limit, so that a lost node is
    /// detected at most that much later.
    pub(crate) fn check_every(&self) -> Duration {
        self.limit / 4
    }

    /// Returns the silence after which a node counts as lost.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Watches a node that joined.
    pub(crate) fn watch(&self, node: &NodeId, now: Timestamp) {
        self.locked(|table| table.last_heard.insert(node.clone(), now));
    }

    /// Records a message of a watched node. A node that was declared silent must join again.
    pub(crate) fn record_message(&self, node: &NodeId, now: Timestamp) {
        self.locked(|table| {
            if let Some(last_heard) = table.last_heard.get_mut(node) {
                *last_heard = now.max(*last_heard);
            }
        });
    }

    /// Returns the time of the last message of a watched node.
    pub(crate) fn last_heard(&self, node: &NodeId) -> Option<Timestamp> {
        self.locked(|table| table.last_heard.get(node).copied())
    }

    /// Returns true if a node sent a message within half the limit, so that its agent counts as live.
    pub(crate) fn is_live(&self, node: &NodeId, now: Timestamp) -> bool {
        self.locked(|table| {
            let last_heard = table.last_heard.get(node);
            last_heard.is_some_and(|last_heard| now.since(*last_heard) < self.limit / 2)
        })
    }

    /// Removes the nodes that have been silent for longer than the limit, and returns an event for each.
    pub(crate) fn take_silent_nodes(&self, now: Timestamp) -> Vec<Event> {
        self.locked(|table| {
            let late = now.since(table.checked) > self.limit / 2;
            table.checked = now;
            if late {
                table.last_heard.values_mut().for_each(|last_heard| *last_heard = now);
                return Vec::new();
            }
            let fallen = table
                .last_heard
                .extract_if(.., |_, last_heard| now.since(*last_heard) > self.limit);
            fallen
                .map(|(node, last_heard)| Event::NodeFellSilent { node, last_heard })
                .collect()
        })
    }

    fn locked<T>(&self, act: impl FnOnce(&mut LivenessTable) -> T) -> T {
        // Every statement leaves the table consistent, so a panic elsewhere cannot have left it half written.
        act(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_nanos(100);

    fn node(name: &str) -> NodeId {
        NodeId::from(name)
    }

    fn fell(name: &str, last_heard: i64) -> Event {
        Event::NodeFellSilent {
            node: node(name),
            last_heard: Timestamp(last_heard),
        }
    }

    /// Polls every 25 ns from `from` to `to`, as the event loop would.
    fn ask(liveness: &NodeLiveness, from: i64, to: i64) -> Vec<Event> {
        (from..=to)
            .step_by(25)
            .flat_map(|now| liveness.take_silent_nodes(Timestamp(now)))
            .collect()
    }

    #[test]
    fn silence_beyond_the_limit_is_told_once_with_the_last_word() {
        let liveness = NodeLiveness::new(LIMIT, [node("a"), node("b")], Timestamp(0));
        liveness.record_message(&node("a"), Timestamp(60));
        assert_eq!(ask(&liveness, 0, 125), [fell("b", 0)]);
        assert_eq!(ask(&liveness, 150, 400), [fell("a", 60)]);
    }

    #[test]
    fn a_node_that_fell_silent_must_join_anew_to_be_heard() {
        let liveness = NodeLiveness::new(LIMIT, [node("a")], Timestamp(0));
        assert_eq!(ask(&liveness, 0, 125), [fell("a", 0)]);
        liveness.record_message(&node("a"), Timestamp(130));
        assert_eq!(ask(&liveness, 150, 400), []);
        liveness.watch(&node("a"), Timestamp(400));
        assert_eq!(ask(&liveness, 425, 525), [fell("a", 400)]);
    }

    #[test]
    fn a_controller_that_was_held_up_judges_nobody_for_that_time() {
        let liveness = NodeLiveness::new(LIMIT, [node("a")], Timestamp(0));
        assert_eq!(liveness.take_silent_nodes(Timestamp(10_000)), []);
        assert_eq!(ask(&liveness, 10_025, 10_100), []);
        assert_eq!(ask(&liveness, 10_125, 10_125), [fell("a", 10_000)]);
    }
}
