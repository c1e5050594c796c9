//! Absences of nodes, and the expected return of a lost node.
//!
//! The distribution of absences is the product-limit estimate of Kaplan and Meier (1958): absences that have not ended
//! count as longer than they have lasted so far.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Absences retained, the newest.
const ABSENCES_MAX: usize = 64;
/// Measured returns from which on a forecast may decide about a wait.
pub(crate) const RETURNS_MIN: usize = 3;
/// Assumed absence of a lost node before enough returns have been measured, milliseconds.
pub(crate) const ASSUMED_ABSENCE_MS: u64 = 1_800_000;

/// Ended absence of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeAbsence {
    /// Time from the loss to the return or removal, milliseconds.
    pub(crate) lasted_ms: u64,
    /// True if the node returned; false if it was removed.
    pub(crate) is_return: bool,
}

/// Newest ended absences of the cluster's nodes, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct AbsenceRecord(VecDeque<NodeAbsence>);

impl AbsenceRecord {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, absence: NodeAbsence) {
        if self.0.len() >= ABSENCES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(absence);
    }

    /// Returns the forecast for a node that has been lost for `elapsed_ms`; `ongoing` are the ages of other absences.
    pub(crate) fn forecast(&self, elapsed_ms: u64, ongoing: &[u64]) -> ReturnForecast {
        let open = ongoing.iter().map(|age| NodeAbsence {
            lasted_ms: *age,
            is_return: false,
        });
        let absences: Vec<NodeAbsence> = self.0.iter().copied().chain(open).collect();
        let measured = absences.iter().filter(|absence| absence.is_return).count();
        if measured < RETURNS_MIN {
            return ReturnForecast {
                steps: vec![(ASSUMED_ABSENCE_MS, 1.0)],
                measured,
            };
        }
        let forecast = ReturnForecast {
            steps: product_limit(&absences),
            measured,
        };
        forecast.after(elapsed_ms)
    }
}

/// Expected return of one lost node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReturnForecast {
    /// Times from now, ascending, milliseconds, each with the probability that the node has returned by then.
    pub(crate) steps: Vec<(u64, f64)>,
    /// Number of measured returns behind it; below [`RETURNS_MIN`] the forecast is an assumption.
    pub(crate) measured: usize,
}

impl ReturnForecast {
    pub(crate) fn is_measured(&self) -> bool {
        self.measured >= RETURNS_MIN
    }

    /// Returns the forecast once a further time has passed without the return.
    pub(crate) fn after(&self, elapsed_ms: u64) -> Self {
        let passed = self.probability_by(elapsed_ms);
        let later = self.steps.iter().filter(|(at, _)| *at > elapsed_ms);
        let rest = 1.0 - passed;
        let steps = later.map(|(at, by)| (at - elapsed_ms, if rest > 0.0 { (by - passed) / rest } else { 0.0 }));
        Self {
            steps: steps.collect(),
            measured: self.measured,
        }
    }

    /// Returns the forecast for the last of several nodes that return independently.
    pub(crate) fn of_all(&self, nodes: u32) -> Self {
        let all = |by: f64| (0..nodes.min(POWER_MAX)).fold(1.0, |product, _| product * by);
        Self {
            steps: self.steps.iter().map(|(at, by)| (*at, all(*by))).collect(),
            measured: self.measured,
        }
    }

    /// Returns the probability of a return within a time.
    pub(crate) fn probability_by(&self, within_ms: u64) -> f64 {
        let reached = self.steps.iter().take_while(|(at, _)| *at <= within_ms);
        reached.last().map_or(0.0, |(_, by)| *by)
    }

    /// Returns the expected time until the return, or until `limit_ms` if that is sooner, milliseconds.
    pub(crate) fn expected_ms(&self, limit_ms: u64) -> f64 {
        let mut expected = 0.0;
        let mut from = 0;
        let mut absent = 1.0;
        for (at, by) in self.steps.iter().take_while(|(at, _)| *at < limit_ms) {
            expected += absent * (at - from) as f64;
            from = *at;
            absent = 1.0 - by;
        }
        expected + absent * (limit_ms - from) as f64
    }
}

/// Nodes beyond which a forecast for all of them no longer changes the decision.
const POWER_MAX: u32 = 1_000;

/// Returns the product-limit estimate: times, each with the probability of a return by then.
fn product_limit(absences: &[NodeAbsence]) -> Vec<(u64, f64)> {
    let mut times: Vec<u64> = absences
        .iter()
        .filter(|absence| absence.is_return)
        .map(|absence| absence.lasted_ms)
        .collect();
    times.sort_unstable();
    times.dedup();
    let mut absent = 1.0;
    let mut steps = Vec::new();
    for time in times {
        let at_risk = absences.iter().filter(|absence| absence.lasted_ms >= time).count();
        let returned = absences
            .iter()
            .filter(|absence| absence.is_return && absence.lasted_ms == time);
        absent *= 1.0 - returned.count() as f64 / at_risk as f64;
        steps.push((time, 1.0 - absent));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(absences: &[(u64, bool)]) -> AbsenceRecord {
        let mut record = AbsenceRecord::default();
        for (lasted_ms, is_return) in absences {
            record.add(NodeAbsence {
                lasted_ms: *lasted_ms,
                is_return: *is_return,
            });
        }
        record
    }

    /// Figures computed by hand: of 4 absences, one was cut off at 150.
    #[test]
    fn absences_without_an_end_count_as_longer_than_they_lasted() {
        let forecast = record(&[(100, true), (200, true), (300, true), (150, false)]).forecast(0, &[]);
        let expected = [(100, 0.25), (200, 0.25 + 0.75 / 2.0), (300, 1.0)];
        assert_eq!(forecast.steps.len(), expected.len());
        for ((at, by), (wanted_at, wanted)) in forecast.steps.iter().zip(expected) {
            assert_eq!(*at, wanted_at);
            assert!((by - wanted).abs() < 1e-12, "{by} instead of {wanted}");
        }
        // 100 + 0.75 * 100 + 0.375 * 50
        assert!((forecast.expected_ms(250) - 193.75).abs() < 1e-9);
    }

    #[test]
    fn time_without_a_return_changes_the_forecast() {
        let record = record(&[(100, true), (200, true), (400, true), (400, true)]);
        let later = record.forecast(150, &[]);
        assert_eq!(later.steps.len(), 2);
        assert_eq!(later.steps[0].0, 50);
        assert!((later.steps[0].1 - 1.0 / 3.0).abs() < 1e-12, "{later:?}");
        assert!((later.of_all(2).probability_by(60) - 1.0 / 9.0).abs() < 1e-12);
        assert!(record.forecast(400, &[]).steps.is_empty());
    }

    #[test]
    fn too_few_returns_give_an_assumption() {
        let few = record(&[(100, true), (100, true), (100, false)]).forecast(0, &[]);
        assert!(!few.is_measured());
        assert_eq!(few.steps, [(ASSUMED_ABSENCE_MS, 1.0)]);
    }
}
