//! Failure schedule of one job in a trace: the failures that strike it, and the number of missing nodes over time.
//!
//! Replacement is decided at the moment a node is lost or comes back: a spare if there is one, otherwise the first node
//! that comes back. The schedule is therefore independent of the checkpoint policy, and every policy meets the same
//! one.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap};

use rankguard_checkpoint_schedule::rates::FailureExtent;

use crate::job::SimulatedJob;
use crate::trace::FailureTrace;

/// Event of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleEvent {
    /// Seconds since the start.
    pub at_s: f64,
    /// Number of missing nodes after the event.
    pub vacant: u32,
    /// Failure of the job; `None` if a missing node came back.
    pub strike: Option<JobFailure>,
}

/// Failure that strikes the job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFailure {
    /// Cause, as an index into the causes of the trace.
    pub cause: u16,
    /// Positions in the job that lost their node, ascending; empty if only ranks died.
    pub lost: Vec<u32>,
}

/// Failure schedule of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureSchedule {
    /// Length in seconds.
    pub span_s: f64,
    /// Number of missing nodes at the start.
    pub vacant: u32,
    /// Events in order of time.
    pub events: Vec<ScheduleEvent>,
}

impl FailureSchedule {
    /// Assigns the first nodes of the trace to the job and the next ones as spares. A smaller trace gives fewer spares,
    /// and positions beyond its nodes stay empty.
    pub fn of(trace: &FailureTrace, job: &SimulatedJob) -> Self {
        let mut yard = NodePool::new(trace.nodes(), job);
        let mut events = Vec::new();
        let mut rest = trace.failures();
        loop {
            let failure_s = rest.first().map(|failure| failure.at_s);
            let back_s = yard.next_back();
            let Some(at_s) = [failure_s, back_s].into_iter().flatten().min_by(f64::total_cmp) else {
                break;
            };
            if at_s >= trace.span_s() {
                break;
            }
            let together = rest.iter().take_while(|failure| failure.at_s == at_s).count();
            let (now, later) = rest.split_at(together);
            rest = later;
            let mut strike: Option<JobFailure> = None;
            for failure in now {
                let Some(lost) = yard.fail(failure.node, failure.scope, at_s + failure.repair_s) else {
                    continue;
                };
                let strike = strike.get_or_insert_with(|| JobFailure {
                    cause: failure.cause,
                    lost: Vec::new(),
                });
                strike.lost.extend(lost);
            }
            let known = yard.vacant();
            let came = yard.back(at_s);
            yard.fill();
            if let Some(strike) = &mut strike {
                strike.lost.sort_unstable();
            }
            // Nothing runs before the first moment, so a failure then does not strike the job.
            let strike = strike.filter(|_| at_s > 0.0);
            let changed = came && yard.vacant() != known;
            if at_s > 0.0 && (strike.is_some() || changed) {
                let vacant = yard.vacant();
                events.push(ScheduleEvent { at_s, vacant, strike });
            } else if at_s == 0.0 {
                yard.at_start = yard.vacant();
            }
        }
        Self {
            span_s: trace.span_s(),
            vacant: yard.at_start,
            events,
        }
    }

    /// Iterates over the failures that strike the job, with their time in seconds.
    pub fn strikes(&self) -> impl Iterator<Item = (f64, &JobFailure)> {
        self.events
            .iter()
            .filter_map(|event| Some((event.at_s, event.strike.as_ref()?)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum NodeCondition {
    Working(u32),
    Idle,
    Away(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct NodeReturn(f64, u32);

impl Eq for NodeReturn {}

impl Ord for NodeReturn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for NodeReturn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// State of all nodes.
struct NodePool {
    nodes: Vec<NodeCondition>,
    idle: BTreeSet<u32>,
    empty: BTreeSet<u32>,
    returns: BinaryHeap<Reverse<NodeReturn>>,
    at_start: u32,
}

impl NodePool {
    fn new(nodes: u32, job: &SimulatedJob) -> Self {
        let taken = nodes.min(job.nodes.saturating_add(job.spares));
        let state = |node| {
            if node < job.nodes {
                NodeCondition::Working(node)
            } else {
                NodeCondition::Idle
            }
        };
        let empty: BTreeSet<u32> = (taken.min(job.nodes)..job.nodes).collect();
        Self {
            nodes: (0..taken).map(state).collect(),
            idle: (job.nodes.min(taken)..taken).collect(),
            at_start: empty.len() as u32,
            empty,
            returns: BinaryHeap::new(),
        }
    }

    fn vacant(&self) -> u32 {
        self.empty.len() as u32
    }

    /// Records a node failure. Returns `None` if the job is not struck, otherwise the position that lost its node, if
    /// any.
    fn fail(&mut self, node: u32, scope: FailureExtent, until: f64) -> Option<Option<u32>> {
        let state = self.nodes.get_mut(node as usize)?;
        let was = *state;
        if scope == FailureExtent::Process {
            return matches!(was, NodeCondition::Working(_)).then_some(None);
        }
        let until = match was {
            NodeCondition::Away(known) => known.max(until),
            _ => until,
        };
        *state = NodeCondition::Away(until);
        self.returns.push(Reverse(NodeReturn(until, node)));
        match was {
            NodeCondition::Working(place) => {
                self.empty.insert(place);
                Some(Some(place))
            }
            NodeCondition::Idle => {
                self.idle.remove(&node);
                None
            }
            NodeCondition::Away(_) => None,
        }
    }

    fn next_back(&self) -> Option<f64> {
        self.returns.peek().map(|Reverse(back)| back.0)
    }

    /// Moves nodes with a completed repair to the spares; returns true if there were any.
    fn back(&mut self, now: f64) -> bool {
        let mut any = false;
        while let Some(Reverse(NodeReturn(at, node))) = self.returns.peek().copied() {
            if at > now {
                break;
            }
            self.returns.pop();
            // A later failure may have extended the absence.
            if self.nodes[node as usize] == NodeCondition::Away(at) {
                self.nodes[node as usize] = NodeCondition::Idle;
                self.idle.insert(node);
                any = true;
            }
        }
        any
    }

    /// Fills empty positions with spare nodes.
    fn fill(&mut self) {
        while let (Some(place), Some(node)) = (self.empty.first().copied(), self.idle.first().copied()) {
            self.empty.remove(&place);
            self.idle.remove(&node);
            self.nodes[node as usize] = NodeCondition::Working(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::NodeFailure;

    fn trace(nodes: u32, failures: &[(f64, u32, f64, FailureExtent)]) -> FailureTrace {
        let failures = failures.iter().map(|(at_s, node, repair_s, scope)| NodeFailure {
            at_s: *at_s,
            node: *node,
            repair_s: *repair_s,
            cause: 0,
            scope: *scope,
        });
        FailureTrace::new(nodes, 1_000.0, vec!["x".to_owned()], failures.collect()).expect("a trace")
    }

    fn job(nodes: u32, spares: u32) -> SimulatedJob {
        SimulatedJob {
            spares,
            ..SimulatedJob::bloom(nodes, 1.0, 1.0)
        }
    }

    fn told(weather: &FailureSchedule) -> Vec<(f64, u32, Option<Vec<u32>>)> {
        let line = |event: &ScheduleEvent| {
            let lost = event.strike.as_ref().map(|strike| strike.lost.clone());
            (event.at_s, event.vacant, lost)
        };
        weather.events.iter().map(line).collect()
    }

    #[test]
    fn a_spare_takes_the_place_and_the_next_loss_waits_for_a_repair() {
        let trace = trace(
            3,
            &[
                (10.0, 0, 100.0, FailureExtent::Node),
                (20.0, 1, 50.0, FailureExtent::Node),
                (30.0, 2, 0.0, FailureExtent::Process),
                (40.0, 1, 10.0, FailureExtent::Node),
            ],
        );
        let found = told(&FailureSchedule::of(&trace, &job(2, 1)));
        let wanted = [
            (10.0, 0, Some(vec![0])),
            (20.0, 1, Some(vec![1])),
            (30.0, 1, Some(vec![])),
            (70.0, 0, None),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn nodes_that_go_together_are_one_strike_and_idle_ones_are_none() {
        let trace = trace(
            4,
            &[
                (10.0, 0, 5.0, FailureExtent::Node),
                (10.0, 1, 5.0, FailureExtent::Node),
                (20.0, 3, 5.0, FailureExtent::Node),
            ],
        );
        let found = told(&FailureSchedule::of(&trace, &job(2, 2)));
        // 2 and 3 took over; at 20 node 3 is in position 1.
        assert_eq!(found, [(10.0, 0, Some(vec![0, 1])), (20.0, 0, Some(vec![1]))]);
    }

    #[test]
    fn a_repair_that_a_second_failure_makes_longer_ends_once() {
        let trace = trace(
            1,
            &[
                (10.0, 0, 50.0, FailureExtent::Node),
                (30.0, 0, 100.0, FailureExtent::Node),
            ],
        );
        let found = told(&FailureSchedule::of(&trace, &job(1, 0)));
        assert_eq!(found, [(10.0, 1, Some(vec![0])), (130.0, 0, None)]);
    }

    #[test]
    fn what_is_missing_from_the_beginning_strikes_nobody() {
        let trace = trace(2, &[(0.0, 1, 50.0, FailureExtent::Node)]);
        let weather = FailureSchedule::of(&trace, &job(3, 0));
        assert_eq!((weather.vacant, told(&weather)), (2, vec![(50.0, 1, None)]));
    }
}
