//! Signs that are turned into noise.

use rankguard_diagnosis::{Sign, What};
use rankguard_model::Role;

use crate::stream::Seen;

/// Lines after a complaint in which it is told what becomes of it.
pub(super) const NEAR: u64 = 2;

/// Where an observation stands in its stream.
pub(super) struct Place {
    pub(super) first_line: u64,
    pub(super) last_line: u64,
    /// Whether the program itself says that it tries again.
    pub(super) retried: bool,
}

/// Turns the signs into noise of which this is true.
pub(super) fn silence(all: &mut [Seen], overcome: impl Fn(&Place, &Sign) -> bool) {
    for seen in all {
        let place = Place {
            first_line: seen.first_line,
            last_line: seen.last_line,
            retried: seen.retried,
        };
        for sign in &mut seen.signs {
            let silent = overcome(&place, sign);
            if let (true, What::Mark(mark)) = (silent, &mut sign.what) {
                mark.role = Role::Noise;
            }
        }
    }
}
