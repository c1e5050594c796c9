//! Failure schedule of one job in a trace: the failures that strike it, and the number of missing nodes over time.
//!
//! Replacement is decided at the moment a node is lost or comes back: a spare if there is one, otherwise the first node
//! that comes back. The schedule is therefore independent of the checkpoint policy, and every policy meets the same
//! one.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap};

use rankguard_checkpoint_schedule::rates::Scope;

use crate::job::Job;
use crate::trace::Trace;

/// Event of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Seconds since the start.
    pub at_s: f64,
    /// Number of missing nodes after the event.
    pub vacant: u32,
    /// Failure of the job; `None` if a missing node came back.
    pub strike: Option<Strike>,
}

/// Failure that strikes the job.
#[derive(Debug, Clone, PartialEq)]
pub struct Strike {
    /// Cause, as an index into the causes of the trace.
    pub cause: u16,
    /// Positions in the job that lost their node, ascending; empty if only ranks died.
    pub lost: Vec<u32>,
}

/// Failure schedule of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Weather {
    /// Length in seconds.
    pub span_s: f64,
    /// Number of missing nodes at the start.
    pub vacant: u32,
    /// Events in order of time.
    pub events: Vec<Event>,
}

impl Weather {
    /// Assigns the first nodes of the trace to the job and the next ones as spares. A smaller trace gives fewer spares,
    /// and positions beyond its nodes stay empty.
    pub fn of(trace: &Trace, job: &Job) -> Self {
        let mut yard = Yard::new(trace.nodes(), job);
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
            let mut strike: Option<Strike> = None;
            for failure in now {
                let Some(lost) = yard.fail(failure.node, failure.scope, at_s + failure.repair_s) else {
                    continue;
                };
                let strike = strike.get_or_insert_with(|| Strike {
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
                events.push(Event { at_s, vacant, strike });
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
    pub fn strikes(&self) -> impl Iterator<Item = (f64, &Strike)> {
        self.events
            .iter()
            .filter_map(|event| Some((event.at_s, event.strike.as_ref()?)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Working(u32),
    Idle,
    Away(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Back(f64, u32);

impl Eq for Back {}

impl Ord for Back {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Back {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// State of all nodes.
struct Yard {
    nodes: Vec<State>,
    idle: BTreeSet<u32>,
    empty: BTreeSet<u32>,
    returns: BinaryHeap<Reverse<Back>>,
    at_start: u32,
}

impl Yard {
    fn new(nodes: u32, job: &Job) -> Self {
        let taken = nodes.min(job.nodes.saturating_add(job.spares));
        let state = |node| {
            if node < job.nodes {
                State::Working(node)
            } else {
                State::Idle
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
    fn fail(&mut self, node: u32, scope: Scope, until: f64) -> Option<Option<u32>> {
        let state = self.nodes.get_mut(node as usize)?;
        let was = *state;
        if scope == Scope::Process {
            return matches!(was, State::Working(_)).then_some(None);
        }
        let until = match was {
            State::Away(known) => known.max(until),
            _ => until,
        };
        *state = State::Away(until);
        self.returns.push(Reverse(Back(until, node)));
        match was {
            State::Working(place) => {
                self.empty.insert(place);
                Some(Some(place))
            }
            State::Idle => {
                self.idle.remove(&node);
                None
            }
            State::Away(_) => None,
        }
    }

    fn next_back(&self) -> Option<f64> {
        self.returns.peek().map(|Reverse(back)| back.0)
    }

    /// Moves nodes with a completed repair to the spares; returns true if there were any.
    fn back(&mut self, now: f64) -> bool {
        let mut any = false;
        while let Some(Reverse(Back(at, node))) = self.returns.peek().copied() {
            if at > now {
                break;
            }
            self.returns.pop();
            // A later failure may have extended the absence.
            if self.nodes[node as usize] == State::Away(at) {
                self.nodes[node as usize] = State::Idle;
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
            self.nodes[node as usize] = State::Working(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Failure;

    fn trace(nodes: u32, failures: &[(f64, u32, f64, Scope)]) -> Trace {
        let failures = failures.iter().map(|(at_s, node, repair_s, scope)| Failure {
            at_s: *at_s,
            node: *node,
            repair_s: *repair_s,
            cause: 0,
            scope: *scope,
        });
        Trace::new(nodes, 1_000.0, vec!["x".to_owned()], failures.collect()).expect("a trace")
    }

    fn job(nodes: u32, spares: u32) -> Job {
        Job {
            spares,
            ..Job::bloom(nodes, 1.0, 1.0)
        }
    }

    fn told(weather: &Weather) -> Vec<(f64, u32, Option<Vec<u32>>)> {
        let line = |event: &Event| {
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
                (10.0, 0, 100.0, Scope::Node),
                (20.0, 1, 50.0, Scope::Node),
                (30.0, 2, 0.0, Scope::Process),
                (40.0, 1, 10.0, Scope::Node),
            ],
        );
        let found = told(&Weather::of(&trace, &job(2, 1)));
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
                (10.0, 0, 5.0, Scope::Node),
                (10.0, 1, 5.0, Scope::Node),
                (20.0, 3, 5.0, Scope::Node),
            ],
        );
        let found = told(&Weather::of(&trace, &job(2, 2)));
        // 2 and 3 took over; at 20 node 3 is in position 1.
        assert_eq!(found, [(10.0, 0, Some(vec![0, 1])), (20.0, 0, Some(vec![1]))]);
    }

    #[test]
    fn a_repair_that_a_second_failure_makes_longer_ends_once() {
        let trace = trace(1, &[(10.0, 0, 50.0, Scope::Node), (30.0, 0, 100.0, Scope::Node)]);
        let found = told(&Weather::of(&trace, &job(1, 0)));
        assert_eq!(found, [(10.0, 1, Some(vec![0])), (130.0, 0, None)]);
    }

    #[test]
    fn what_is_missing_from_the_beginning_strikes_nobody() {
        let trace = trace(2, &[(0.0, 1, 50.0, Scope::Node)]);
        let weather = Weather::of(&trace, &job(3, 0));
        assert_eq!((weather.vacant, told(&weather)), (2, vec![(50.0, 1, None)]));
    }
}
