//! Trace of failures and repairs of a set of nodes, recorded or generated.

use rankguard_checkpoint_schedule::rates::FailureExtent;

use crate::random::RandomGenerator;

/// Failure of one node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeFailure {
    /// Seconds since the start of the trace.
    pub at_s: f64,
    /// Node number in `0..nodes`.
    pub node: u32,
    /// Repair time in seconds; ignored for [`FailureExtent::Process`], which leaves the node in service.
    pub repair_s: f64,
    /// Cause, as an index into the causes of the trace.
    pub cause: u16,
    /// Extent of the loss: the ranks only, or the node. Nodes that fail together have one failure each, at the same
    /// time.
    pub scope: FailureExtent,
}

/// Failures of a number of nodes over a span of time.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureTrace {
    nodes: u32,
    span_s: f64,
    /// Names of the causes; [`NodeFailure::cause`] is an index.
    causes: Vec<String>,
    /// Failures in order of time, then of node.
    failures: Vec<NodeFailure>,
    order: NodeOrder,
}

/// Meaning of node numbers, which decides how [`FailureTrace::draw`] chooses nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeOrder {
    /// Nodes are interchangeable: a sample takes random ones.
    Alike,
    /// The trace records only the number of available nodes; node `i` is available while this number is above `i`. A
    /// sample takes the nodes with the lowest numbers.
    Count,
}

/// Error of building a trace.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// The trace has no nodes, or its span is not a finite number above 0.
    #[error("a trace needs nodes and a span above 0; it has {nodes} nodes and {span_s} s")]
    Empty {
        nodes: u32,
        /// Span in seconds.
        span_s: f64,
    },
    /// A time, node, repair time or cause of a failure is out of range.
    #[error("failure {row}: {what}")]
    Failure {
        /// Index in the list, from 0.
        row: usize,
        what: &'static str,
    },
    /// A sample of the number of available nodes is out of order or has no valid time.
    #[error("sample {row} of the capacity: {what}")]
    Capacity {
        /// Index in the list, from 0.
        row: usize,
        what: &'static str,
    },
}

impl FailureTrace {
    /// Builds a trace of interchangeable nodes from failures in any order. Returns an error if there are no nodes, the
    /// span is not above 0, or a failure lies outside the span, the nodes or the causes.
    pub fn new(
        nodes: u32,
        span_s: f64,
        causes: Vec<String>,
        mut failures: Vec<NodeFailure>,
    ) -> Result<Self, TraceError> {
        if nodes == 0 || !(span_s.is_finite() && span_s > 0.0) {
            return Err(TraceError::Empty { nodes, span_s });
        }
        for (row, failure) in failures.iter().enumerate() {
            let what = if !(failure.at_s >= 0.0 && failure.at_s <= span_s) {
                "its time lies outside the span"
            } else if failure.node >= nodes {
                "its node is not one of the trace"
            } else if !(failure.repair_s >= 0.0 && failure.repair_s.is_finite()) {
                "its repair is no number of seconds, or below 0"
            } else if usize::from(failure.cause) >= causes.len() {
                "its cause has no name"
            } else {
                continue;
            };
            return Err(TraceError::Failure { row, what });
        }
        failures.sort_by(|one, other| one.at_s.total_cmp(&other.at_s).then(one.node.cmp(&other.node)));
        Ok(Self {
            nodes,
            span_s,
            causes,
            failures,
            order: NodeOrder::Alike,
        })
    }

    /// Builds a trace from samples of the number of available nodes: `(seconds, available)` in order of time. The last
    /// sample holds until the end. The number does not identify nodes, so the available node with the highest number
    /// leaves first. Returns an error if samples are out of order, the span is not above 0, or no sample is above 0.
    pub fn of_capacity(points: &[(f64, u32)], span_s: f64) -> Result<Self, TraceError> {
        let nodes = points.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let mut gone: Vec<Option<f64>> = vec![None; nodes as usize];
        let mut failures = Vec::new();
        let mut now = f64::NEG_INFINITY;
        let mut push = |since: f64, until: f64, node: usize| {
            failures.push(NodeFailure {
                at_s: since,
                node: node as u32,
                repair_s: until - since,
                cause: 0,
                scope: FailureExtent::Node,
            });
        };
        for (row, (at_s, count)) in points.iter().enumerate() {
            if at_s.is_nan() || *at_s < now || *at_s < 0.0 {
                let what = "its time is before that of the sample before it, below 0, or none";
                return Err(TraceError::Capacity { row, what });
            }
            now = *at_s;
            if now >= span_s {
                break;
            }
            // The count before the first sample is unknown: the first sample counts from the start.
            let since = if row == 0 { 0.0 } else { now };
            for (node, gone) in gone.iter_mut().enumerate() {
                let here = node < *count as usize;
                match *gone {
                    None if !here => *gone = Some(since),
                    Some(began) if here => {
                        push(began, now, node);
                        *gone = None;
                    }
                    _ => {}
                }
            }
        }
        for (node, since) in gone.iter().enumerate() {
            if let Some(since) = since {
                push(*since, span_s, node);
            }
        }
        let trace = Self::new(nodes, span_s, vec!["capacity taken away".to_owned()], failures)?;
        Ok(Self {
            order: NodeOrder::Count,
            ..trace
        })
    }

    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the length of the trace in seconds.
    pub fn span_s(&self) -> f64 {
        self.span_s
    }

    /// Returns the names of the causes.
    pub fn causes(&self) -> &[String] {
        &self.causes
    }

    /// Returns the failures in order of time, then of node.
    pub fn failures(&self) -> &[NodeFailure] {
        &self.failures
    }

    pub fn order(&self) -> NodeOrder {
        self.order
    }

    /// Returns the failures per node-hour; the hours include repair times.
    pub fn per_node_hour(&self) -> f64 {
        self.failures.len() as f64 / (f64::from(self.nodes) * self.span_s / 3_600.0)
    }

    /// Returns the share of node-time in repair, 0 to 1; overlapping repairs of a node count once.
    pub fn away(&self) -> f64 {
        let mut until = vec![0.0_f64; self.nodes as usize];
        let mut away = 0.0;
        for failure in self
            .failures
            .iter()
            .filter(|failure| failure.scope != FailureExtent::Process)
        {
            let known = &mut until[failure.node as usize];
            let end = (failure.at_s + failure.repair_s).min(self.span_s);
            away += (end - failure.at_s.max(*known)).max(0.0);
            *known = known.max(end);
        }
        away / (f64::from(self.nodes) * self.span_s)
    }

    /// Draws a sample of the trace: at most `nodes` of its nodes, chosen by [`NodeOrder`] and renumbered from 0, from a
    /// random start time, with the end of the trace joined to its start. Such a circular sample retains every gap
    /// between failures of a node except the one where end and start are joined; it represents the trace only if the
    /// failure rate has no trend.
    pub fn draw(&self, nodes: u32, random: &mut RandomGenerator) -> Self {
        let chosen = match self.order {
            NodeOrder::Alike => random.sample(nodes, self.nodes),
            NodeOrder::Count => (0..nodes.min(self.nodes)).collect(),
        };
        let mut place = vec![None; self.nodes as usize];
        for (new, old) in chosen.iter().enumerate() {
            place[*old as usize] = Some(new as u32);
        }
        let begin = random.unit() * self.span_s;
        let mut failures = Vec::new();
        for failure in &self.failures {
            let Some(node) = place[failure.node as usize] else {
                continue;
            };
            let at_s = if failure.at_s >= begin {
                failure.at_s - begin
            } else {
                failure.at_s - begin + self.span_s
            };
            failures.push(NodeFailure { at_s, node, ..*failure });
            // A node in repair at the start time is in repair at the start of the sample.
            let over = failure.at_s + failure.repair_s - begin;
            if failure.scope != FailureExtent::Process && failure.at_s < begin && over > 0.0 {
                failures.push(NodeFailure {
                    at_s: 0.0,
                    node,
                    repair_s: over,
                    ..*failure
                });
            }
        }
        failures.sort_by(|one, other| one.at_s.total_cmp(&other.at_s).then(one.node.cmp(&other.node)));
        Self {
            nodes: chosen.len() as u32,
            failures,
            ..self.clone_frame()
        }
    }

    /// Returns a copy without failures.
    fn clone_frame(&self) -> Self {
        Self {
            nodes: self.nodes,
            span_s: self.span_s,
            causes: self.causes.clone(),
            failures: Vec::new(),
            order: self.order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_becomes_absences_of_the_last_nodes() {
        let trace = FailureTrace::of_capacity(&[(0.0, 2), (10.0, 3), (20.0, 1), (25.0, 3)], 30.0).expect("a trace");
        let told: Vec<_> = trace
            .failures()
            .iter()
            .map(|failure| (failure.at_s, failure.node, failure.repair_s))
            .collect();
        assert_eq!(told, [(0.0, 2, 10.0), (20.0, 1, 5.0), (20.0, 2, 5.0)]);
        assert!((trace.away() - 20.0 / 90.0).abs() < 1e-12);
    }

    #[test]
    fn overlapping_repairs_of_a_node_are_counted_once() {
        let failure = |at_s, repair_s| NodeFailure {
            at_s,
            node: 0,
            repair_s,
            cause: 0,
            scope: FailureExtent::Node,
        };
        let trace = FailureTrace::new(
            2,
            100.0,
            vec!["x".to_owned()],
            vec![failure(5.0, 10.0), failure(0.0, 10.0)],
        );
        assert!((trace.expect("a trace").away() - 15.0 / 200.0).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_row() {
        let failure = NodeFailure {
            at_s: 1.0,
            node: 3,
            repair_s: 1.0,
            cause: 0,
            scope: FailureExtent::Node,
        };
        let wrong = FailureTrace::new(3, 10.0, vec!["x".to_owned()], vec![failure]).expect_err("there is no node 3");
        assert_eq!(wrong.to_string(), "failure 0: its node is not one of the trace");
        assert!(FailureTrace::new(0, 10.0, Vec::new(), Vec::new()).is_err());
        assert!(FailureTrace::of_capacity(&[(5.0, 1), (4.0, 1)], 10.0).is_err());
    }

    #[test]
    fn a_draw_keeps_failures_and_time_away() {
        let mut random = RandomGenerator::new(3);
        let failures = (0..40)
            .map(|at| NodeFailure {
                at_s: f64::from(at) * 25.0,
                node: at % 4,
                repair_s: 60.0,
                cause: 0,
                scope: FailureExtent::Node,
            })
            .collect();
        let trace = FailureTrace::new(4, 1_000.0, vec!["x".to_owned()], failures).expect("a trace");
        for _ in 0..50 {
            let drawn = trace.draw(4, &mut random);
            assert!(
                (drawn.away() - trace.away()).abs() < 0.02,
                "{} {}",
                drawn.away(),
                trace.away()
            );
            assert!(drawn.failures().len() >= 40 && drawn.failures().len() <= 44);
            assert_eq!(trace.draw(2, &mut random).nodes(), 2);
        }
    }
}
