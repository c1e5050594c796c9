//! Ends of containers in the output of `kubectl describe pod`: node of the pod, exit code and time.
//!
//! ```text
//! Node:         gpu-07/10.0.0.3
//!     State:          Terminated
//!       Reason:       Error
//!       Exit Code:    137
//!       Started:      Thu, 02 Jul 2026 09:00:00 +0000
//!       Finished:     Thu, 02 Jul 2026 10:00:07 +0000
//! ```

use std::collections::{BTreeMap, BTreeSet};

use rankguard_diagnosis::{POD_FIELD, POD_NODE_FIELD, Signal, SignalMeaning};
use rankguard_faults::line::{LineClock, parse};
use rankguard_model::{Entity, NodeId, Timestamp};

use crate::stream::{PlacedObservation, ReadStream};

/// Maximum number of retained ends; further ones are ignored.
const KEPT: usize = 4_096;
/// Maximum distance of the time of an end from its exit code, lines.
const NEAR: u64 = 4;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Ends of containers of one stream.
#[derive(Debug, Default)]
pub(crate) struct PodEnds {
    /// Name of the pod that is being read.
    pod: Option<String>,
    /// Node of the pod that is being read.
    node: Option<NodeId>,
    /// Line of the newest reason without a time, from 1.
    reason: Option<u64>,
    /// Line of the newest exit code without a time, from 1.
    open: Option<u64>,
    /// Completed ends, in line order.
    done: Vec<ContainerEnd>,
}

#[derive(Debug)]
struct ContainerEnd {
    /// Line of the reason, from 1.
    reason: Option<u64>,
    /// Line of the exit code, from 1.
    line: u64,
    at: Timestamp,
    pod: Option<String>,
    node: Option<NodeId>,
}

impl PodEnds {
    /// Reads a line if it is a field of a pod.
    pub(crate) fn read(&mut self, number: u64, line: &str) {
        let Some((name, value)) = line.split_once(": ") else {
            return;
        };
        let value = value.trim();
        match name {
            "Name" => {
                self.node = None;
                self.pod = (!value.is_empty()).then(|| value.to_owned());
            }
            "Node" => {
                let host = value
                    .split('/')
                    .next()
                    .filter(|host| !host.is_empty() && *host != "<none>");
                self.node = host.map(NodeId::from);
            }
            _ => match name.trim_start() {
                "Reason" => self.reason = Some(number),
                "Exit Code" => self.open = Some(number),
                "Finished" => self.close(number, value),
                _ => {}
            },
        }
    }

    fn close(&mut self, number: u64, value: &str) {
        let exit = self.open.take().filter(|line| number - line <= NEAR);
        let reason = self.reason.take().filter(|line| number - line <= NEAR);
        if let (Some(line), Some(at)) = (exit, moment(value))
            && self.done.len() < KEPT
        {
            self.done.push(ContainerEnd {
                reason,
                line,
                at,
                pod: self.pod.clone(),
                node: self.node.clone(),
            });
        }
    }

    /// Sets the time of reasons and exit codes, and the node of the latter: a reason has a blame of its own.
    pub(crate) fn place(&self, seen: &mut [PlacedObservation]) {
        for one in seen {
            let found = self.done.partition_point(|end| end.line < one.key_line);
            let Some(end) = self.done.get(found) else { continue };
            if end.line != one.key_line && end.reason != Some(one.key_line) {
                continue;
            }
            one.wall = Some(end.at);
            one.own_clock = Some(end.at);
            for sign in &mut one.signs {
                sign.at = end.at;
                sign.timed = true;
                set_pod(sign, end.pod.as_deref(), end.node.as_ref());
                if end.line == one.key_line
                    && let (Entity::Job { .. } | Entity::Unknown, Some(node)) = (&sign.entity, &end.node)
                {
                    sign.entity = Entity::Node { node: node.clone() };
                }
            }
        }
    }
}

fn set_pod(sign: &mut Signal, pod: Option<&str>, node: Option<&NodeId>) {
    let SignalMeaning::Mark(mark) = &mut sign.what else {
        return;
    };
    if let Some(pod) = pod {
        mark.fields.fill(POD_FIELD, pod);
        if let Some(node) = node {
            mark.fields.fill(POD_NODE_FIELD, node.as_str());
        }
    }
}

/// Sets the node of events of pods with a node that another log states.
pub(crate) fn place_pods(streams: &mut [ReadStream]) {
    let mut nodes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let signs = streams
        .iter()
        .flat_map(|stream| &stream.seen)
        .flat_map(|seen| &seen.signs);
    for sign in signs {
        if let (Some(pod), Some(node)) = (sign.field(POD_FIELD), sign.field(POD_NODE_FIELD)) {
            nodes.entry(pod.to_owned()).or_default().insert(node.to_owned());
        }
    }
    // A pod that was made anew may be on another node.
    nodes.retain(|_, names| names.len() == 1);
    if nodes.is_empty() {
        return;
    }
    let seen = streams.iter_mut().flat_map(|stream| &mut stream.seen);
    for sign in seen.flat_map(|seen| &mut seen.signs) {
        let node = sign.field(POD_FIELD).and_then(|pod| nodes.get(pod)?.first());
        let Some(node) = node.cloned() else { continue };
        if let SignalMeaning::Mark(mark) = &mut sign.what {
            mark.fields.fill(POD_NODE_FIELD, node);
        }
    }
}

/// Parses `Thu, 02 Jul 2026 10:00:07 +0000`, or the same with the zone `GMT`.
pub(crate) fn moment(text: &str) -> Option<Timestamp> {
    let mut words = text.split_whitespace().skip(1);
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    let (time, zone) = (words.next()?, words.next()?);
    let zone = if zone.starts_with("GMT") { "+0000" } else { zone };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let (hours, minutes) = zone.split_at_checked(3)?;
    let iso = format!("{year}-{month:02}-{day:0>2}T{time}{hours}:{minutes} end");
    parse(&iso, &LineClock::default()).at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_ends_at_its_own_time_on_the_node_of_its_pod() {
        let text = "Name:         w-2\nNode:         gpu-07/10.0.0.3\n    State:          Terminated\n      Reason:       Error\n      \
                    Exit Code:    137\n      Started:      Thu, 02 Jul 2026 09:00:00 +0000\n      Finished:     Thu, 02 Jul 2026 \
                    12:00:07 +0200\n";
        let mut ends = PodEnds::default();
        for (number, line) in (1..).zip(text.lines()) {
            ends.read(number, line);
        }
        let [end] = ends.done.as_slice() else {
            panic!("{:?}", ends.done);
        };
        assert_eq!(end.line, 5);
        assert_eq!(end.at.to_string(), "2026-07-02T10:00:07.000Z");
        assert_eq!(end.node.as_ref().map(NodeId::as_str), Some("gpu-07"));
    }

    #[test]
    fn an_exit_code_without_a_time_has_none() {
        let mut ends = PodEnds::default();
        for (number, line) in (1..).zip([
            "  Exit Code:    1",
            "a",
            "b",
            "c",
            "d",
            "  Finished:     Thu, 02 Jul 2026",
        ]) {
            ends.read(number, line);
        }
        assert!(ends.done.is_empty());
    }
}
