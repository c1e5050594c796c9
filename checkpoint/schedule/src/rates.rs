//! Failure rates: a Gamma belief per failure scope, updated by observations.
//!
//! Failures of a scope are a Poisson process with a rate `λ` per node-hour. The belief in `λ` is Gamma with shape `a`
//! (failures) and rate `b` (node-hours): observing `n` failures in `t` node-hours makes it `a + n`, `b + t`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::special::ln_gamma_p_inverse;

/// Extent of one failure, which decides which copies survive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureExtent {
    /// The ranks; memory that the agent owns survives.
    Process,
    /// A node with its memory and, until it returns, its disks.
    Node,
    /// Nodes that fail together: rack, switch, power.
    Domain,
}

impl FailureExtent {
    /// All scopes, from smallest to largest.
    pub const ALL: [Self; 3] = [Self::Process, Self::Node, Self::Domain];
}

impl fmt::Display for FailureExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::Node => "node",
            Self::Domain => "domain",
        })
    }
}

/// Belief in one rate: Gamma with shape `failures` and rate `node_hours`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateBelief {
    /// Observed failures plus the weight of the prior; above 0.
    pub failures: f64,
    /// Node-hours of observation; above 0.
    pub node_hours: f64,
}

impl RateBelief {
    /// Adds an observation.
    pub fn observe(&mut self, failures: u64, node_hours: f64) {
        self.failures += failures as f64;
        self.node_hours += node_hours.max(0.0);
    }

    /// Returns the expected failures per node-hour.
    pub fn mean(&self) -> f64 {
        self.failures / self.node_hours
    }

    /// Returns the rate that is not exceeded with this probability (0 to 1), failures per node-hour.
    pub fn quantile(&self, probability: f64) -> f64 {
        let p = probability.clamp(0.0, 1.0);
        let a = self.failures;
        if !(a > 0.0 && self.node_hours > 0.0) || p == 0.0 {
            return 0.0;
        }
        if p == 1.0 {
            return f64::INFINITY;
        }
        // Computed as a logarithm: for a small shape, low quantiles span hundreds of powers of ten.
        ln_gamma_p_inverse(a, p).exp() / self.node_hours
    }
}

/// Failure rate beliefs by scope.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FailureRates(BTreeMap<FailureExtent, RateBelief>);

impl FailureRates {
    /// Sets the belief of a scope.
    pub fn insert(&mut self, scope: FailureExtent, rate: RateBelief) {
        self.0.insert(scope, rate);
    }

    /// Adds observed failures of one scope.
    pub fn observe_failures(&mut self, scope: FailureExtent, failures: u64) {
        if let Some(rate) = self.0.get_mut(&scope) {
            rate.observe(failures, 0.0);
        }
    }

    /// Adds observed node-hours to every scope; hours without a failure count too.
    pub fn observe_hours(&mut self, node_hours: f64) {
        self.0.values_mut().for_each(|rate| rate.observe(0, node_hours));
    }

    /// Iterates over the beliefs, from the smallest scope to the largest.
    pub fn iter(&self) -> impl Iterator<Item = (FailureExtent, &RateBelief)> {
        self.0.iter().map(|(scope, rate)| (*scope, rate))
    }

    /// Returns the belief of one scope.
    pub fn get(&self, scope: FailureExtent) -> Option<&RateBelief> {
        self.0.get(&scope)
    }

    /// Returns the expected failures per node-hour over all scopes.
    pub fn per_node_hour(&self) -> f64 {
        self.0.values().map(RateBelief::mean).sum()
    }

    /// Returns the expected failures per second of a job on `nodes` nodes.
    pub fn per_second(&self, nodes: u32) -> f64 {
        self.per_node_hour() * f64::from(nodes) / 3_600.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::special::gamma_p;

    #[test]
    fn observation_adds_failures_and_hours() {
        let mut rate = RateBelief {
            failures: 0.5,
            node_hours: 1_000.0,
        };
        rate.observe(3, 9_000.0);
        assert_eq!(
            rate,
            RateBelief {
                failures: 3.5,
                node_hours: 10_000.0
            }
        );
        assert!((rate.mean() - 3.5e-4).abs() < 1e-18);
    }

    /// Published quantiles of chi-squared: with 2a degrees of freedom, a quantile is twice that of Gamma(a, 1).
    #[test]
    fn quantiles_are_those_of_the_chi_squared_tables() {
        for (degrees, p, chi) in [
            (2.0, 0.95, 5.991),
            (10.0, 0.05, 3.940),
            (10.0, 0.95, 18.307),
            (1.0, 0.5, 0.455),
            (100.0, 0.95, 124.342),
        ] {
            let rate = RateBelief {
                failures: degrees / 2.0,
                node_hours: 1.0,
            };
            assert!(
                (2.0 * rate.quantile(p) - chi).abs() < 6e-4,
                "{degrees} {p}: {}",
                2.0 * rate.quantile(p)
            );
        }
    }

    proptest! {
        #[test]
        fn quantiles_rise_and_are_undone_by_the_distribution(a in 0.01..300.0_f64, b in 1.0..1e7_f64, p in 0.001..0.98_f64) {
            let rate = RateBelief { failures: a, node_hours: b };
            let low = rate.quantile(p);
            let high = rate.quantile(p + 0.01);
            prop_assert!(low < high, "{low} {high}");
            prop_assert!((gamma_p(a, low * b) - p).abs() < 1e-8);
        }

        /// Enough observations outweigh a prior of any strength.
        #[test]
        fn the_record_outweighs_the_prior(prior in 1e-6..1.0_f64, truth in 1e-5..1.0_f64) {
            let mut rate = RateBelief { failures: 2.0, node_hours: 2.0 / prior };
            let hours = 1e4 / truth.min(prior);
            rate.observe((truth * hours) as u64, hours);
            prop_assert!((rate.mean() / truth - 1.0).abs() < 0.01);
        }
    }
}
