//! Failures that come close in time to another at the same place.

use crate::order::InTime;

/// For each of some windows, how many failures have another at the same place at most so far away, before or after.
/// Those without a place or a finite time are close to none. Places are numbered from 0; `places` and `times` are as long
/// as each other.
pub fn close(places: &[Option<u32>], times: &[f64], windows: &[f64]) -> Vec<usize> {
    let of_row = |row: usize| (places[row], times[row]);
    match InTime::of(times).rows() {
        None => in_order(places.iter().copied().zip(times.iter().copied()), windows),
        Some(rows) => in_order(rows.iter().map(|row| of_row(*row as usize)), windows),
    }
}

/// The same of failures in order of time: the place and the moment of each.
fn in_order(failures: impl Iterator<Item = (Option<u32>, f64)>, windows: &[f64]) -> Vec<usize> {
    let mut nearest = Nearest::new(windows);
    // The last failure of each place, and how far it is from the one before it: the one after it may be nearer. Where there is
    // none it is no number, which is no nearer than any and within no window.
    let mut last: Vec<(f64, f64)> = Vec::new();
    for (place, at) in failures {
        let Some(place) = place else { continue };
        let place = place as usize;
        if place >= last.len() {
            last.resize(place + 1, (f64::NAN, f64::NAN));
        }
        let of_place = &mut last[place];
        let (time, before) = *of_place;
        let after = at - time;
        *of_place = (at, after);
        nearest.add(if before < after { before } else { after });
    }
    last.iter().for_each(|(_, before)| nearest.add(*before));
    nearest.counted()
}

/// How many distances are at most as long as each of some windows.
struct Nearest<'a> {
    windows: &'a [f64],
    counts: Vec<usize>,
    /// Those that wait to be counted together.
    waiting: [f64; TOGETHER],
    waits: usize,
}

/// Distances that are counted together: several are compared at a time.
const TOGETHER: usize = 256;

impl<'a> Nearest<'a> {
    fn new(windows: &'a [f64]) -> Self {
        Self {
            windows,
            counts: vec![0; windows.len()],
            waiting: [0.0; TOGETHER],
            waits: 0,
        }
    }

    fn add(&mut self, distance: f64) {
        self.waiting[self.waits] = distance;
        self.waits += 1;
        if self.waits == TOGETHER {
            self.count();
        }
    }

    fn count(&mut self) {
        let waiting = &self.waiting[..std::mem::take(&mut self.waits)];
        for (count, window) in self.counts.iter_mut().zip(self.windows) {
            *count += waiting.iter().filter(|distance| **distance <= *window).count();
        }
    }

    fn counted(mut self) -> Vec<usize> {
        self.count();
        self.counts
    }
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

    #[test]
    fn whoever_is_alone_at_a_place_is_close_to_none_however_long_the_window() {
        let places = [Some(3), Some(1), Some(3)];
        assert_eq!(close(&places, &[0.0, 1.0, 9.0], &[f64::INFINITY]), [2]);
    }

    #[test]
    fn those_that_wait_are_counted_at_the_end_and_whenever_they_are_many() {
        for failures in [TOGETHER, TOGETHER + 1, 3 * TOGETHER] {
            let times: Vec<f64> = (0..failures as u32).map(f64::from).collect();
            assert_eq!(close(&vec![Some(0); failures], &times, &[1.0, 0.5]), [failures, 0]);
        }
    }
}
