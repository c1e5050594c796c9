//! Records that belong to one incident: repeats within a window, and chains of failures.

use serde::Serialize;

use crate::marks::{Marks, TOGETHER};
use crate::order::InTime;

/// Tells which records are repeats. Records come in order; for each place the label and moment last seen are remembered, and
/// a record is a repeat when its place's last had the same label not more than `window` ago. A repeat moves the moment
/// forward (a sliding window); another label takes the place over. Moments are in the unit of the window; give whole
/// seconds where the published filter did.
#[derive(Debug, Clone)]
pub struct Repeats {
    window: f64,
    /// What each place had last; where it had none, the moment is no number, and within no window.
    last: Vec<Seen>,
}

type Seen = (u32, f64);

impl Repeats {
    /// No record came yet.
    pub fn new(window: f64) -> Self {
        Self {
            window,
            last: Vec::new(),
        }
    }

    /// How many of the records that come next, each a place, a label and a moment, are none. Places are numbered from 0:
    /// each number is a slot.
    pub fn left(&mut self, records: impl ExactSizeIterator<Item = (u32, u32, f64)> + Clone) -> usize {
        let places = records.clone().map(|(place, ..)| place as usize + 1).max().unwrap_or(0);
        self.last.resize(places.max(self.last.len()), (0, f64::NAN));
        let (window, last) = (self.window, &mut self.last[..]);
        let all = records.len();
        let repeats = records.map(|(place, label, time)| {
            let (before, at) = std::mem::replace(&mut last[place as usize], (label, time));
            usize::from((before == label) & (time - at <= window))
        });
        all - repeats.sum::<usize>()
    }
}

/// A chain of failures, each less than the window after the one before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Burst {
    /// The rank of its first member in [`Chains::order`].
    pub first: usize,
    /// How many members it has.
    pub members: usize,
    /// From the first to the last.
    pub duration: f64,
}

/// Failures in time order, and the chains among them.
#[derive(Debug, Clone, PartialEq)]
pub struct Chains {
    /// Failures in time order.
    pub order: InTime,
    /// The chains of at least two.
    pub bursts: Vec<Burst>,
}

impl Chains {
    /// Places of a chain's members in the caller's slice, in time order.
    pub fn members(&self, burst: &Burst) -> impl Iterator<Item = usize> {
        (burst.first..burst.first + burst.members).map(|rank| self.order.row(rank))
    }
}

/// Chains of at least two failures, each less than `window` after the one before; times that are not finite take no
/// part.
pub fn chains(times: &[f64], window: f64) -> Chains {
    let order = InTime::of(times);
    let bursts = of_ordered(&order.moments(times), window);
    Chains { order, bursts }
}

/// Chains among moments in order.
fn of_ordered(moments: &[f64], window: f64) -> Vec<Burst> {
    // Room at once: what grows is moved again and again.
    let mut bursts = Vec::with_capacity(moments.len() / 4);
    let mut begun = None;
    let mut turn = |rank: usize| match begun.take() {
        None => begun = Some(rank),
        Some(first) => bursts.push(Burst {
            first,
            members: rank - first + 1,
            duration: moments[rank] - moments[first],
        }),
    };
    let mut carried = false;
    let after = moments.get(1..).unwrap_or_default();
    for (at, (before, after)) in moments.chunks(TOGETHER).zip(after.chunks(TOGETHER)).enumerate() {
        // Whether the next belongs to the chain of each; where that changes, a chain begins or ends.
        let belongs = Marks::of(before.iter().zip(after).map(|(before, now)| now - before < window));
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
            Repeats::new(600.0).left(records)
        };
        let sliding = [(0, 'a', 0.0), (0, 'a', 600.0), (0, 'a', 1_200.0), (0, 'a', 1_801.0)];
        assert_eq!([2, 3, 4].map(|records| left(&sliding[..records])), [1, 1, 2]);
        assert_eq!(left(&[(0, 'a', 0.0), (0, 'b', 1.0), (0, 'a', 2.0)]), 3);
        assert_eq!(left(&[(0, 'a', 0.0), (1, 'a', 1.0), (0, 'a', 2.0)]), 2);
    }

    #[test]
    fn repeats_go_on_from_where_they_were() {
        let mut repeats = Repeats::new(600.0);
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
        // Two chains of the same length each, and 64 gaps are looked at together.
        for len in [2, 31, 32, 33, 64, 65, 70, 128, 129] {
            let times: Vec<f64> = (0..2 * len)
                .map(|at| f64::from(at) + f64::from(at / len) * 100.0)
                .collect();
            let found = chains(&times, 2.0).bursts;
            let told: Vec<_> = found
                .iter()
                .map(|burst| (burst.first, burst.members, burst.duration))
                .collect();
            let (members, duration) = (len as usize, f64::from(len - 1));
            assert_eq!(told, [(0, members, duration), (members, members, duration)]);
        }
    }
}
