//! Grouping of records in time: repeats of a record within a window, and chains of failures.

use serde::Serialize;

use crate::marks::{MatchBits, TOGETHER};
use crate::order::TimeOrder;

/// Filter for repeated records with a sliding window. A record has a place (such as a node), a label (such as a
/// message) and a time. It is a repeat if the previous record of its place has the same label and is at most `window`
/// older. Each record replaces the previous one of its place, so repeats move the window forward. Times are in the unit
/// of the window; pass whole seconds if the published filter used them.
#[derive(Debug, Clone)]
pub struct RepeatFilter {
    window: f64,
    /// Last record of each place. The time is NaN for a place without a record, which is within no window.
    last: Vec<LastRecord>,
}

/// Label and time of a record.
type LastRecord = (u32, f64);

impl RepeatFilter {
    /// Creates a filter without records. `window` is the greatest time between a record and its repeat, inclusive.
    pub fn new(window: f64) -> Self {
        Self {
            window,
            last: Vec::new(),
        }
    }

    /// Adds records, which must be in order of time and after those of earlier calls, and returns the number of them
    /// that are not repeats. A record is a place, a label and a time. Places are array indexes, so they should be
    /// small.
    pub fn left(&mut self, records: impl ExactSizeIterator<Item = (u32, u32, f64)> + Clone) -> usize {
        let places = records.clone().map(|(place, ..)| place as usize + 1).max().unwrap_or(0);
        self.last.resize(places.max(self.last.len()), (0, f64::NAN));
        let window = self.window;
        let last = &mut self.last[..];
        let all = records.len();
        let repeats = records.map(|(place, label, time)| {
            let (before, at) = std::mem::replace(&mut last[place as usize], (label, time));
            usize::from((before == label) & (time - at <= window))
        });
        all - repeats.sum::<usize>()
    }
}

/// Chain of at least two failures, each less than the window after its predecessor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FailureBurst {
    /// Position of its first member in [`FailureChains::order`], from 0.
    pub first: usize,
    /// Number of members.
    pub members: usize,
    /// Time from the first to the last member, in the unit of the input.
    pub duration: f64,
}

/// Failures in time order, and the chains among them.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureChains {
    /// Order of the caller's failures by time.
    pub order: TimeOrder,
    /// Chains in order of time.
    pub bursts: Vec<FailureBurst>,
}

impl FailureChains {
    /// Returns the indexes of a chain's members in the caller's slice, in time order.
    pub fn members(&self, burst: &FailureBurst) -> impl Iterator<Item = usize> {
        (burst.first..burst.first + burst.members).map(|rank| self.order.row(rank))
    }
}

/// Finds chains of at least two failures, each less than `window` after its predecessor. Times are in any order, in the
/// unit of the window; those that are not finite are ignored.
pub fn chains(times: &[f64], window: f64) -> FailureChains {
    let order = TimeOrder::of(times);
    let bursts = of_ordered(&order.moments(times), window);
    FailureChains { order, bursts }
}

/// Finds chains among sorted times, in blocks of [`TOGETHER`] gaps.
fn of_ordered(moments: &[f64], window: f64) -> Vec<FailureBurst> {
    // Reserved in advance, because growth copies the content repeatedly.
    let mut bursts = Vec::with_capacity(moments.len() / 4);
    let mut begun = None;
    let mut turn = |rank: usize| match begun.take() {
        None => begun = Some(rank),
        Some(first) => bursts.push(FailureBurst {
            first,
            members: rank - first + 1,
            duration: moments[rank] - moments[first],
        }),
    };
    let mut carried = false;
    let after = moments.get(1..).unwrap_or_default();
    for (at, (before, after)) in moments.chunks(TOGETHER).zip(after.chunks(TOGETHER)).enumerate() {
        // Marks elements with a successor in the same chain; a chain starts or ends where the mark changes.
        let belongs = MatchBits::of(before.iter().zip(after).map(|(before, now)| now - before < window));
        belongs
            .changes(&mut carried)
            .for_each(|rank| turn(at * TOGETHER + rank));
    }
    if carried {
        turn(after.len());
    }
    bursts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_slides_and_a_place_remembers_one_label() {
        let left = |records: &[(u32, char, f64)]| {
            let records = records
                .iter()
                .map(|(place, label, time)| (*place, u32::from(*label), *time));
            RepeatFilter::new(600.0).left(records)
        };
        let sliding = [(0, 'a', 0.0), (0, 'a', 600.0), (0, 'a', 1_200.0), (0, 'a', 1_801.0)];
        assert_eq!([2, 3, 4].map(|records| left(&sliding[..records])), [1, 1, 2]);
        assert_eq!(left(&[(0, 'a', 0.0), (0, 'b', 1.0), (0, 'a', 2.0)]), 3);
        assert_eq!(left(&[(0, 'a', 0.0), (1, 'a', 1.0), (0, 'a', 2.0)]), 2);
    }

    #[test]
    fn repeats_go_on_from_where_they_were() {
        let mut repeats = RepeatFilter::new(600.0);
        let mut left = |time: f64| repeats.left([(0, 7, time)].into_iter());
        assert_eq!([left(0.0), left(600.0), left(1_201.0)], [1, 0, 1]);
    }

    #[test]
    fn a_chain_ends_where_the_gap_reaches_the_window() {
        let found = chains(&[1_800.0, 0.0, 899.0, 2_700.0, f64::NAN, 5_000.0, 5_000.0], 900.0);
        let told = |at: usize| {
            let burst = &found.bursts[at];
            (found.members(burst).collect::<Vec<usize>>(), burst.duration)
        };
        assert_eq!(found.bursts.len(), 2);
        assert_eq!((told(0), told(1)), ((vec![1, 2], 899.0), (vec![5, 6], 0.0)));
        assert!(chains(&[], 900.0).bursts.is_empty());
    }

    #[test]
    fn chains_go_on_over_moments_that_are_looked_at_together() {
        // Pairs of chains of equal length, around the block size of 64 gaps.
        for len in [2, 31, 32, 33, 64, 65, 70, 128, 129] {
            let times: Vec<f64> = (0..2 * len)
                .map(|at| f64::from(at) + f64::from(at / len) * 100.0)
                .collect();
            let found = chains(&times, 2.0).bursts;
            let told: Vec<_> = found
                .iter()
                .map(|burst| (burst.first, burst.members, burst.duration))
                .collect();
            let members = len as usize;
            let duration = f64::from(len - 1);
            assert_eq!(told, [(0, members, duration), (members, members, duration)]);
        }
    }
}
