//! Failures that come close in time to another at the same place.

use crate::order::InTime;

/// For each of some windows, how many failures have another at the same place at most so far away, before or after.
/// Those without a place or a finite time are close to none. Places are numbered from 0; `places` and `times` are as long
/// as each other.
pub fn close(places: &[Option<u32>], times: &[f64], windows: &[f64]) -> Vec<usize> {
    let order = InTime::of(times);
    let mut counts = vec![0; windows.len()];
    let mut count = |nearest: f64| {
        for (count, window) in counts.iter_mut().zip(windows) {
            *count += usize::from(nearest <= *window);
        }
    };
    // The last failure of each place, and how far it is from the one before it: the one after it may be nearer.
    let mut last: Vec<(f64, f64)> = Vec::new();
    for rank in 0..order.len() {
        let row = order.row(rank);
        let Some(place) = places[row] else {
            continue;
        };
        let place = place as usize;
        if place >= last.len() {
            last.resize(place + 1, (f64::NEG_INFINITY, f64::INFINITY));
        }
        let (time, before) = last[place];
        let after = times[row] - time;
        // Of a place's first there is none before it to count.
        if time.is_finite() {
            count(after.min(before));
        }
        last[place] = (times[row], after);
    }
    last.iter().for_each(|(_, before)| count(*before));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_may_come_before_or_after_and_only_at_the_same_place() {
        // At place 2 they are 30, 5 and 5 away.
        let places = [Some(2), Some(0), Some(2), Some(2), None, Some(0)];
        let times = [10.0, 11.0, 40.0, 45.0, 45.0, f64::NAN];
        assert_eq!(close(&places, &times, &[30.0, 29.0, 4.0]), [3, 2, 0]);
        let backwards: Vec<_> = places.into_iter().rev().collect();
        let times: Vec<f64> = times.into_iter().rev().collect();
        assert_eq!(close(&backwards, &times, &[30.0, 29.0, 4.0]), [3, 2, 0]);
        assert_eq!(close(&[], &[], &[1.0]), [0]);
    }
}
