//! Measured times from a plan to the first step of its generation.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::PlanKind;

/// Restarts retained, the newest.
const RESTARTS_MAX: usize = 16;
/// Assumed restart time before one has been measured, milliseconds.
pub(crate) const ASSUMED_RESTART_MS: u64 = 300_000;

/// Newest restarts of a job or of all jobs, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RestartRecord(VecDeque<(PlanKind, u64)>);

impl RestartRecord {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, kind: PlanKind, took_ms: u64) {
        if self.0.len() >= RESTARTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((kind, took_ms));
    }

    /// Returns the median restart time for a kind of plan, and the number of restarts behind it.
    fn median_of(&self, kind: PlanKind) -> Option<(u64, usize)> {
        median(self.0.iter().filter(|(of, _)| *of == kind).map(|(_, took)| *took))
    }

    /// Returns the median restart time, and the number of restarts behind it.
    fn median(&self) -> Option<(u64, usize)> {
        median(self.0.iter().map(|(_, took)| *took))
    }
}

fn median(times: impl Iterator<Item = u64>) -> Option<(u64, usize)> {
    let mut times: Vec<u64> = times.collect();
    times.sort_unstable();
    let count = times.len();
    Some((*times.get(count / 2)?, count))
}

/// Expected restart time with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RestartTime {
    pub(crate) millis: u64,
    pub(crate) is_assumed: bool,
    pub(crate) basis: String,
}

/// Returns the expected restart time of a job for a kind of plan: that of the job's own restarts, else of all jobs, else
/// an assumption.
pub(crate) fn restart_time(own: &RestartRecord, all: &RestartRecord, kind: PlanKind) -> RestartTime {
    let known = |(millis, count): (u64, usize), of: &str| RestartTime {
        millis,
        is_assumed: false,
        basis: format!("median of the newest {count} {of}"),
    };
    let same_kind = own.median_of(kind);
    let same_kind = same_kind.map(|found| known(found, &format!("starts of this job of kind {}", kind.describe())));
    same_kind
        .or_else(|| Some(known(own.median()?, "starts of this job")))
        .or_else(|| Some(known(all.median()?, "starts of all jobs")))
        .unwrap_or_else(|| RestartTime {
            millis: ASSUMED_RESTART_MS,
            is_assumed: true,
            basis: "no start has been measured".to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_measured_restarts_count() {
        let (mut own, mut all) = (RestartRecord::default(), RestartRecord::default());
        let time = |own: &RestartRecord, all: &RestartRecord| restart_time(own, all, PlanKind::Shrink);
        assert!(time(&own, &all).is_assumed);
        all.add(PlanKind::Start, 9_000);
        assert_eq!(time(&own, &all).millis, 9_000);
        for took in [40, 20, 30] {
            own.add(PlanKind::RestartInPlace, took);
        }
        assert_eq!(time(&own, &all).millis, 30);
        own.add(PlanKind::Shrink, 70);
        let shrink = time(&own, &all);
        assert_eq!((shrink.millis, shrink.is_assumed), (70, false));
    }
}
