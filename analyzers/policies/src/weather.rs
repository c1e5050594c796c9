//! What a trace does to one job: which failures strike it, and how many of its nodes are missing when.
//!
//! Who replaces whom is decided the moment a node is lost or comes back: a spare if there is one, else the first node
//! that returns. So nothing here depends on how the job saves its work, and every policy meets the same weather.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap};

use rankguard_checkpoint_schedule::rates::Scope;

use crate::job::Job;
use crate::trace::Trace;

/// Something that happens to the job.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When, seconds from the beginning.
    pub at_s: f64,
    /// Nodes that are missing after it.
    pub vacant: u32,
    /// What struck it; nothing where a missing node came back.
    pub strike: Option<Strike>,
}

/// A failure of the job.
#[derive(Debug, Clone, PartialEq)]
pub struct Strike {
    /// An index into the causes of the trace.
    pub cause: u16,
    /// Places in the job whose node was lost, in rising order; empty where only ranks died.
    pub lost: Vec<u32>,
}

/// The weather of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Weather {
    /// How long, seconds.
    pub span_s: f64,
    /// Nodes that are missing at the beginning.
    pub vacant: u32,
    /// What happens, in order of time.
    pub events: Vec<Event>,
}

impl Weather {
    /// The first nodes of the trace are the job's, the next ones stand by; where the trace has no more, there are fewer
    /// spares, and places beyond its nodes stay empty.
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
            // Before the first moment nothing ran, so nothing was struck.
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

    /// Failures that strike the job.
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

/// The nodes and where they are.
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

    /// Whether the job is struck, and the place that was lost.
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

    /// Nodes whose repair ends by now stand by; whether there are any.
    fn back(&mut self, now: f64) -> bool {
        let mut any = false;
        while let Some(Reverse(Back(at, node))) = self.returns.peek().copied() {
            if at > now {
                break;
            }
            self.returns.pop();
            // A later failure may have made the absence longer.
            if self.nodes[node as usize] == State::Away(at) {
                self.nodes[node as usize] = State::Idle;
                self.idle.insert(node);
                any = true;
            }
        }
        any
    }

    /// Empty places take the nodes that stand by.
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
        // 2 and 3 took over; at 20 the node 3 is in place 1.
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
