//! Signs that are turned into noise.

use rankguard_diagnosis::{Signal, SignalMeaning};
use rankguard_model::Role;

use crate::stream::PlacedObservation;

/// Number of lines after a complaint within which its outcome is reported.
pub(super) const NEAR: u64 = 2;

/// Place of an observation in its stream.
pub(super) struct ObservationSpan {
    pub(super) first_line: u64,
    pub(super) last_line: u64,
    /// True if the program itself reports a retry.
    pub(super) retried: bool,
}

/// Turns the signs for which `overcome` holds into noise.
pub(super) fn silence(all: &mut [PlacedObservation], overcome: impl Fn(&ObservationSpan, &Signal) -> bool) {
    for seen in all {
        let place = ObservationSpan {
            first_line: seen.first_line,
            last_line: seen.last_line,
            retried: seen.retried,
        };
        for sign in &mut seen.signs {
            let silent = overcome(&place, sign);
            if let (true, SignalMeaning::Mark(mark)) = (silent, &mut sign.what) {
                mark.role = Role::Noise;
            }
        }
    }
}
