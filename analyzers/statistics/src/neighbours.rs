//! Failures close in time to another at the same place.

use crate::order::TimeOrder;

/// Counts, for each window, the failures with another at the same place at most that far before or after. Failures
/// without a place or a finite time are ignored. `of` holds the place of each failure (from 1, 0 for none) and has the
/// length of `times`.
pub fn close(of: &[impl Copy + Into<usize>], places: usize, times: &[f64], windows: &[f64]) -> Vec<usize> {
    let failure = |row: usize| (of[row].into(), times[row]);
    match TimeOrder::of(times).rows() {
        None => in_order(
            of.iter().map(|place| (*place).into()).zip(times.iter().copied()),
            places,
            windows,
        ),
        Some(rows) => in_order(rows.iter().map(|row| failure(*row as usize)), places, windows),
    }
}

/// Block size: distances in a block are compared vectorised.
const TOGETHER: usize = 256;

/// Counts close failures in sorted (place, time) pairs.
fn in_order(mut failures: impl Iterator<Item = (usize, f64)>, places: usize, windows: &[f64]) -> Vec<usize> {
    let mut counts = vec![0; windows.len()];
    let mut count = |distances: &[f64]| {
        for (count, window) in counts.iter_mut().zip(windows) {
            *count += distances.iter().filter(|distance| **distance <= *window).count();
        }
    };
    // Time of the last failure of each place and its distance to the previous one; the next one may be closer. NaN
    // marks a place without a failure: it is in no window.
    let mut last = vec![(f64::NAN, f64::NAN); places + 1];
    let mut distances = [0.0; TOGETHER];
    loop {
        let mut together = 0;
        for (distance, (place, at)) in distances.iter_mut().zip(failures.by_ref()) {
            together += 1;
            let last = &mut last[place];
            let (time, before) = *last;
            let after = at - time;
            // A failure without a place is close to none.
            *last = (if place == 0 { f64::NAN } else { at }, after);
            *distance = if before < after { before } else { after };
        }
        count(&distances[..together]);
        if together < TOGETHER {
            break;
        }
    }
    count(&last.into_iter().map(|(_, before)| before).collect::<Vec<f64>>());
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_may_come_before_or_after_and_only_at_the_same_place() {
        // At place 2 the distances are 30, 5 and 5.
        let places = [2_usize, 1, 2, 2, 0, 1];
        let times = [10.0, 11.0, 40.0, 45.0, 45.0, f64::NAN];
        assert_eq!(close(&places, 2, &times, &[30.0, 29.0, 4.0]), [3, 2, 0]);
        let backwards: Vec<_> = places.into_iter().rev().collect();
        let times: Vec<f64> = times.into_iter().rev().collect();
        assert_eq!(close(&backwards, 2, &times, &[30.0, 29.0, 4.0]), [3, 2, 0]);
        assert_eq!(close(&[0_usize; 0], 0, &[], &[1.0]), [0]);
    }

    #[test]
    fn whoever_is_alone_at_a_place_is_close_to_none_however_long_the_window() {
        let places = [3_usize, 1, 3];
        assert_eq!(close(&places, 3, &[0.0, 1.0, 9.0], &[f64::INFINITY]), [2]);
    }

    #[test]
    fn those_that_wait_are_counted_at_the_end_and_whenever_they_are_many() {
        for failures in [TOGETHER, TOGETHER + 1, 3 * TOGETHER] {
            let times: Vec<f64> = (0..failures as u32).map(f64::from).collect();
            assert_eq!(close(&vec![1_usize; failures], 1, &times, &[1.0, 0.5]), [failures, 0]);
        }
    }
}
