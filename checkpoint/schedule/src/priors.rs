//! Published failure rates, as priors until a cluster has recorded failures of its own.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::rates::{FailureExtent, FailureRates, RateBelief};

/// Weight of a published figure, in failures. Small on purpose: after this many failures of its own, the cluster's
/// record weighs as much as the publication.
pub const PRIOR_WEIGHT: f64 = 2.0;

/// Failure rate of one published study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailurePrior {
    /// Name of the figure in settings, such as `llama3-2024`.
    pub id: String,
    /// Title of the publication.
    pub title: String,
    /// Address of the publication.
    pub url: String,
    /// Hardware, period and figure that the study counted.
    pub population: String,
    /// Number of counted failures.
    pub failures: f64,
    /// Observation time, node-hours.
    pub node_hours: f64,
    /// Author and method of the split over scopes; `None` if there is no split.
    #[serde(default)]
    pub split: Option<String>,
    /// Failures by scope; empty if the source does not report them.
    #[serde(default, rename = "scope")]
    scopes: Vec<ScopeFailures>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeFailures {
    scope: FailureExtent,
    /// Number of counted failures of this scope.
    failures: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriorsFile {
    prior: Vec<FailurePrior>,
}

impl FailurePrior {
    /// Returns all built-in priors. The first has a split over scopes and is the default.
    pub fn all() -> &'static [Self] {
        static SHELF: OnceLock<Vec<FailurePrior>> = OnceLock::new();
        SHELF.get_or_init(|| {
            let shelf: PriorsFile = toml::from_str(include_str!("../data/priors.toml"))
                .expect("the built-in figures are read by this crate's tests");
            shelf.prior
        })
    }

    /// Returns the prior with this id.
    pub fn by_id(id: &str) -> Option<&'static Self> {
        Self::all().iter().find(|prior| prior.id == id)
    }

    /// Returns the failures per node-hour over all scopes.
    pub fn per_node_hour(&self) -> f64 {
        self.failures / self.node_hours
    }

    /// Returns the share of this scope in all failures, 0 to 1. A study without a split uses that of the first prior.
    pub fn share(&self, scope: FailureExtent) -> f64 {
        let told = if self.scopes.is_empty() {
            &Self::all()[0].scopes
        } else {
            &self.scopes
        };
        let all: f64 = told.iter().map(|share| share.failures).sum();
        let here: f64 = told
            .iter()
            .filter(|share| share.scope == scope)
            .map(|share| share.failures)
            .sum();
        here / all
    }

    /// Returns the published rate of each scope as a belief with a total weight of [`PRIOR_WEIGHT`] failures.
    pub fn rates(&self) -> FailureRates {
        let hours = PRIOR_WEIGHT / self.per_node_hour();
        let mut rates = FailureRates::default();
        for scope in FailureExtent::ALL {
            rates.insert(
                scope,
                RateBelief {
                    failures: PRIOR_WEIGHT * self.share(scope),
                    node_hours: hours,
                },
            );
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_figures_are_read_and_add_up() {
        let all = FailurePrior::all();
        assert!(all.len() >= 3);
        for prior in all {
            let sum: f64 = prior.scopes.iter().map(|share| share.failures).sum();
            assert!(
                prior.scopes.is_empty() || (sum - prior.failures).abs() < 1e-9,
                "{}",
                prior.id
            );
            let shares: f64 = FailureExtent::ALL.into_iter().map(|scope| prior.share(scope)).sum();
            assert!((shares - 1.0).abs() < 1e-12, "{}", prior.id);
            assert!(prior.url.starts_with("https://"), "{}", prior.id);
            let rates = prior.rates();
            assert!((rates.per_node_hour() / prior.per_node_hour() - 1.0).abs() < 1e-12);
        }
    }

    /// Published projections: 1.8 h at 16,384 GPUs, 0.23 h at 131,072. The observed times, 47.7 days at 8 GPUs and
    /// 7.9 h at 1,024, are not proportional to the number of nodes.
    #[test]
    fn the_rate_of_rsc_1_is_near_the_published_times_between_failures() {
        let rate = FailurePrior::by_id("meta-rsc-1").expect("built in").per_node_hour();
        let hours = |gpus: f64| 1.0 / (rate * gpus / 8.0);
        assert!((hours(16_384.0) - 1.8).abs() < 0.05, "{}", hours(16_384.0));
        assert!((hours(131_072.0) - 0.23).abs() < 0.01, "{}", hours(131_072.0));
        // One failure in three hours, as reported for the Llama 3 run.
        let llama = FailurePrior::by_id("llama3-2024").expect("built in").per_node_hour();
        assert!((1.0 / (llama * 2_048.0) - 3.1).abs() < 0.05);
    }
}
