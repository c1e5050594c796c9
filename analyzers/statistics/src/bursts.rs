//! Records that belong to one incident: repeats within a window, and chains of failures.

use serde::Serialize;

/// Which records are kept when repeats are dropped. Records come in order; for each `place` the label and moment last
/// seen are remembered, and a record is a repeat when its place's last had the same label not more than `window` ago.
/// A repeat moves the moment forward (a sliding window); another label takes the place over. Moments are in the unit of
/// the window; give whole seconds where the published filter did. Places are numbered from 0: each number is a slot.
pub fn coalesce(records: impl IntoIterator<Item = (u32, u32, i64)>, window: i64) -> Vec<bool> {
    let mut last: Vec<Option<(u32, i64)>> = Vec::new();
    records
        .into_iter()
        .map(|(place, label, time)| {
            let place = place as usize;
            if place >= last.len() {
                last.resize(place + 1, None);
            }
            let before = last[place].replace((label, time));
            !before.is_some_and(|(seen, at)| seen == label && time.saturating_sub(at) <= window)
        })
        .collect()
}

/// A chain of failures, each less than the window after the one before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Burst {
    /// The place of its first member in [`Chains::order`].
    pub first: usize,
    /// How many members it has.
    pub members: usize,
    /// From the first to the last.
    pub duration: f64,
}

/// Failures in time order, and the chains among them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Chains {
    /// Places in the caller's slice, in time order.
    pub order: Vec<usize>,
    /// The chains of at least two.
    pub bursts: Vec<Burst>,
}

impl Chains {
    /// Places of a chain's members in the caller's slice, in time order.
    pub fn members(&self, burst: &Burst) -> &[usize] {
        &self.order[burst.first..burst.first + burst.members]
    }
}

/// Chains of at least two failures, each less than `window` after the one before; times that are not finite take no
/// part.
pub fn chains(times: &[f64], window: f64) -> Chains {
    let mut order = Vec::with_capacity(times.len());
    order.extend((0..times.len()).filter(|at| times[*at].is_finite()));
    order.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
    let mut bursts = Vec::new();
    let mut first = 0;
    for members in order.chunk_by(|a, b| times[*b] - times[*a] < window) {
        if let [start, .., end] = members {
            bursts.push(Burst {
                first,
                members: members.len(),
                duration: times[*end] - times[*start],
            });
        }
        first += members.len();
    }
    Chains { order, bursts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_slides_and_a_place_remembers_one_label() {
        let at = |place: u32, label: char, time: i64| (place, u32::from(label), time);
        let sliding = [at(0, 'a', 0), at(0, 'a', 600), at(0, 'a', 1_200), at(0, 'a', 1_801)];
        assert_eq!(coalesce(sliding, 600), [true, false, false, true]);
        let alternating = [at(0, 'a', 0), at(0, 'b', 1), at(0, 'a', 2)];
        assert_eq!(coalesce(alternating, 600), [true; 3]);
        let places = [at(0, 'a', 0), at(1, 'a', 1), at(0, 'a', 2)];
        assert_eq!(coalesce(places, 600), [true, true, false]);
    }

    #[test]
    fn a_chain_ends_where_the_gap_reaches_the_window() {
        let found = chains(&[1_800.0, 0.0, 899.0, 2_700.0, f64::NAN, 5_000.0, 5_000.0], 900.0);
        let told = |at: usize| (found.members(&found.bursts[at]), found.bursts[at].duration);
        assert_eq!(found.bursts.len(), 2);
        assert_eq!((told(0), told(1)), ((&[1, 2][..], 899.0), (&[5, 6][..], 0.0)));
    }
}
