//! Counters of a window and the access rules that they imply.
//!
//! The rank counts the bytes that it filled, the agent those that it took out; neither count decreases while an image
//! passes. A byte is read only below the first count and written only less than a window above the second, and each
//! count is stored after the bytes that it covers. Generic over [`SharedCounter`], so that the tests run every interleaving of
//! this code.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Poll interval for the other side's count, which sends no notification. A disk writes half a piece in that time.
pub(super) const LOOK: Duration = Duration::from_micros(500);

/// Value of `freed` before the agent has read the description, which the rank must not change until then.
const NOT_BEGUN: u64 = u64::MAX;

/// Value of `freed` after the agent has stopped reading: all bytes have room.
const LET_PASS: u64 = u64::MAX - 1;

/// Atomic counter that one process changes and another polls.
pub(super) trait SharedCounter {
    /// Returns the value, with acquire ordering.
    fn get(&self) -> u64;
    /// Sets the value, with release ordering.
    fn set(&self, to: u64);
    /// Raises the value to `to`, or leaves it if it is higher.
    fn raise(&self, to: u64);
}

impl SharedCounter for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn set(&self, to: u64) {
        self.store(to, Ordering::Release);
    }

    fn raise(&self, to: u64) {
        self.fetch_max(to, Ordering::AcqRel);
    }
}

/// View of a window, used by both sides.
#[derive(Debug)]
pub(super) struct WindowView<'a, C = AtomicU64> {
    pub(super) filled: &'a C,
    pub(super) freed: &'a C,
    pub(super) bytes: u64,
}

impl<C: SharedCounter> WindowView<'_, C> {
    /// Rank: resets the counters before it announces an image.
    pub(super) fn open(&self) {
        self.freed.set(NOT_BEGUN);
        self.filled.set(0);
    }

    /// Agent: marks that it has read the description.
    pub(super) fn begin(&self) {
        self.freed.set(0);
    }

    /// True if the agent has read the description.
    pub(super) fn is_begun(&self) -> bool {
        self.freed.get() != NOT_BEGUN
    }

    /// Returns the number of bytes taken out, to detect progress.
    pub(super) fn freed(&self) -> u64 {
        self.freed.get()
    }

    /// True if the rank may fill all bytes before `to`.
    pub(super) fn has_room(&self, to: u64) -> bool {
        let freed = match self.freed.get() {
            NOT_BEGUN => 0,
            freed => freed,
        };
        to <= freed.saturating_add(self.bytes)
    }

    /// Rank: marks all bytes before `to` as filled.
    pub(super) fn fill(&self, to: u64) {
        self.filled.set(to);
    }

    /// Returns the number of bytes filled.
    pub(super) fn filled(&self) -> u64 {
        self.filled.get()
    }

    /// Agent: frees all bytes before `to`. Its threads may call this in any order.
    pub(super) fn free(&self, to: u64) {
        self.freed.raise(to);
    }

    /// Agent: stops reading and lets the rank finish.
    pub(super) fn let_pass(&self) {
        self.freed.set(LET_PASS);
    }
}

/// Parts that several threads filled in any order; reports the length filled without a gap.
#[derive(Debug, Default)]
pub(super) struct FillProgress {
    to: u64,
    /// Parts after a gap, as end by start.
    ahead: BTreeMap<u64, u64>,
}

impl FillProgress {
    /// Records a filled part; returns the length filled without a gap.
    pub(super) fn add(&mut self, from: u64, to: u64) -> u64 {
        self.ahead.insert(from, to);
        while let Some(to) = self.ahead.remove(&self.to) {
            self.to = to;
        }
        self.to
    }
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as Model;
    use loom::thread;

    use super::*;

    impl SharedCounter for Model {
        fn get(&self) -> u64 {
            self.load(Ordering::Acquire)
        }

        fn set(&self, to: u64) {
            self.store(to, Ordering::Release);
        }

        fn raise(&self, to: u64) {
            self.fetch_max(to, Ordering::AcqRel);
        }
    }

    /// Window of one position, and a description that the rank changes once the agent has read it.
    #[derive(Default)]
    struct Passing {
        filled: Model,
        freed: Model,
        place: Model,
        description: Model,
    }

    impl Passing {
        fn window(&self) -> WindowView<'_, Model> {
            WindowView {
                filled: &self.filled,
                freed: &self.freed,
                bytes: 1,
            }
        }
    }

    fn until(ready: impl Fn() -> bool) {
        while !ready() {
            thread::yield_now();
        }
    }

    #[test]
    fn what_is_taken_out_is_what_was_put_in_however_the_two_sides_run() {
        const PIECES: u64 = 2;
        loom::model(|| {
            let passing = Arc::new(Passing::default());
            passing.window().open();
            passing.description.store(1, Ordering::Relaxed);
            let rank = {
                let passing = passing.clone();
                thread::spawn(move || {
                    for nth in 0..PIECES {
                        until(|| passing.window().has_room(nth + 1));
                        passing.place.store(nth + 10, Ordering::Relaxed);
                        passing.window().fill(nth + 1);
                    }
                    until(|| passing.window().is_begun());
                    passing.description.store(2, Ordering::Relaxed);
                })
            };
            assert_eq!(
                passing.description.load(Ordering::Relaxed),
                1,
                "it changed before it was read"
            );
            passing.window().begin();
            for nth in 0..PIECES {
                until(|| passing.window().filled() > nth);
                assert_eq!(passing.place.load(Ordering::Relaxed), nth + 10, "piece {nth}");
                passing.window().free(nth + 1);
            }
            rank.join().expect("the rank's checks hold");
        });
    }

    #[test]
    fn an_agent_that_reads_nothing_any_more_holds_nobody_up() {
        let filled = AtomicU64::new(0);
        let freed = AtomicU64::new(0);
        let window = WindowView {
            filled: &filled,
            freed: &freed,
            bytes: 4,
        };
        window.open();
        assert!(window.has_room(4) && !window.has_room(5) && !window.is_begun());
        window.begin();
        assert!(window.has_room(4) && !window.has_room(5) && window.is_begun());
        window.let_pass();
        assert!(window.has_room(1 << 40) && window.is_begun());
    }

    #[test]
    fn parts_are_told_when_none_is_missing_before_them() {
        let mut filling = FillProgress::default();
        let told = [(4, 6), (0, 1), (3, 4), (1, 3), (6, 9)].map(|(from, to)| filling.add(from, to));
        assert_eq!(told, [0, 1, 1, 6, 9]);
    }
}
