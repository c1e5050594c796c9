//! Generated traces: each node fails by its own renewal process, and domains of nodes fail together.

use rankguard_checkpoint_schedule::rates::{FailureExtent, FailureRates};

use crate::random::RandomGenerator;
use crate::trace::{FailureTrace, NodeFailure, TraceError};

/// Parameters of a generated trace.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceParameters {
    /// Number of nodes of the cluster, above 0.
    pub nodes: u32,
    /// Length of the trace in seconds, above 0.
    pub span_s: f64,
    /// Failures per node-hour, by extent; a failure of a domain counts once, not for each of its nodes.
    pub rates: FailureRates,
    /// Weibull shape of the times between failures of a node: 1 is exponential, below 1 failures are clustered. Nodes
    /// start new, so a shape below 1 gives more failures at the start of a trace than at its end.
    pub shape: f64,
    /// Number of nodes of a failure domain (rack, switch, power); 0 counts as 1. The last domain may be smaller.
    pub domain: u32,
    /// Mean of the exponential repair time in seconds; nodes of one domain failure share one repair time.
    pub repair_s: f64,
}

impl TraceParameters {
    /// Generates one trace; its causes are the names of the extents. Returns [`TraceError::Empty`] without nodes or
    /// span, and [`TraceError::Failure`] if the parameters give an invalid time.
    pub fn trace(&self, random: &mut RandomGenerator) -> Result<FailureTrace, TraceError> {
        let causes = FailureExtent::ALL.iter().map(ToString::to_string).collect();
        let mut failures = Vec::new();
        for (at, scope) in FailureExtent::ALL.into_iter().enumerate() {
            let per_hour = self.rates.get(scope).map_or(0.0, |rate| rate.mean());
            if per_hour <= 0.0 {
                continue;
            }
            let size = if scope == FailureExtent::Domain {
                self.domain.max(1)
            } else {
                1
            };
            let mean_s = 3_600.0 / (per_hour * f64::from(size));
            let scale = mean_s / gamma(1.0 + 1.0 / self.shape);
            for first in (0..self.nodes).step_by(size as usize) {
                let mut now = 0.0;
                loop {
                    now += random.weibull(self.shape, scale);
                    if now.is_nan() || now >= self.span_s {
                        break;
                    }
                    let repair_s = random.exponential(self.repair_s);
                    for node in first..self.nodes.min(first.saturating_add(size)) {
                        failures.push(NodeFailure {
                            at_s: now,
                            node,
                            repair_s,
                            cause: at as u16,
                            scope: scope.min(FailureExtent::Node),
                        });
                    }
                }
            }
        }
        FailureTrace::new(self.nodes, self.span_s, causes, failures)
    }
}

/// Returns the gamma function for `x > 0`: Stirling's series at an argument of at least 10, divided back by recurrence.
fn gamma(x: f64) -> f64 {
    let mut x = x;
    let mut below = 1.0;
    while x < 10.0 {
        below *= x;
        x += 1.0;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1_260.0 * x.powi(5));
    ((x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series).exp() / below
}

#[cfg(test)]
mod tests {
    use rankguard_checkpoint_schedule::rates::RateBelief;

    use super::*;

    fn rates(of: &[(FailureExtent, f64)]) -> FailureRates {
        let mut rates = FailureRates::default();
        for (scope, per_hour) in of {
            let rate = RateBelief {
                failures: 1.0,
                node_hours: 1.0 / per_hour,
            };
            rates.insert(*scope, rate);
        }
        rates
    }

    #[test]
    fn gamma_is_known_at_halves_and_wholes() {
        for (x, known) in [
            (1.0, 1.0),
            (5.0, 24.0),
            (0.5, 1.772_453_850_905_516),
            (1.5, 0.886_226_925_452_758),
        ] {
            assert!((gamma(x) / known - 1.0).abs() < 1e-8, "{x}: {}", gamma(x));
        }
    }

    #[test]
    fn the_rate_asked_for_is_the_rate_there_is() {
        let wanted = TraceParameters {
            nodes: 2_000,
            span_s: 3_600.0 * 1_000.0,
            rates: rates(&[
                (FailureExtent::Process, 1e-3),
                (FailureExtent::Node, 2e-3),
                (FailureExtent::Domain, 5e-4),
            ]),
            shape: 1.0,
            domain: 16,
            repair_s: 600.0,
        };
        let trace = wanted.trace(&mut RandomGenerator::new(5)).expect("a trace");
        for (cause, of_one, per_node_hour) in [(0, 1.0, 1e-3), (1, 1.0, 2e-3), (2, 16.0, 5e-4)] {
            let of = trace.failures().iter().filter(|failure| failure.cause == cause);
            let failures = of.count() as f64 / of_one;
            assert!(
                (failures / (per_node_hour * 2e6) - 1.0).abs() < 0.1,
                "{cause}: {failures}"
            );
        }
    }

    /// The coefficient of variation of a Weibull of shape 0.7 is 1.46: gaps of a node vary more than exponential ones.
    #[test]
    fn a_low_shape_spreads_the_gaps() {
        let mut wanted = TraceParameters {
            nodes: 50,
            span_s: 3.6e7,
            rates: rates(&[(FailureExtent::Node, 0.02)]),
            shape: 0.7,
            domain: 1,
            repair_s: 0.0,
        };
        let spread = |wanted: &TraceParameters| {
            let trace = wanted.trace(&mut RandomGenerator::new(9)).expect("a trace");
            let mut last = vec![0.0; 50];
            let mut gaps = Vec::new();
            for failure in trace.failures() {
                let last = &mut last[failure.node as usize];
                gaps.push(failure.at_s - *last);
                *last = failure.at_s;
            }
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            variance.sqrt() / mean
        };
        assert!((spread(&wanted) - 1.46).abs() < 0.08, "{}", spread(&wanted));
        wanted.shape = 1.0;
        assert!((spread(&wanted) - 1.0).abs() < 0.05, "{}", spread(&wanted));
    }
}
