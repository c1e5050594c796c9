//! The two counts of a window, and who may do what by them.
//!
//! The rank counts what it has filled, the agent what it has taken out; neither ever sinks while an image passes. A byte is
//! read only below the one count and written only less than a window above the other, and each count is stored behind the
//! bytes that it speaks of. Written over [`Count`], so that the tests run every interleaving of these very steps.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks at a count: the other side is another process and rings no bell. A disk writes half a piece meanwhile.
pub(super) const LOOK: Duration = Duration::from_micros(500);

/// In place of the agent's count before it has read what comes: the rank may not put anything else there until then.
const NOT_BEGUN: u64 = u64::MAX;

/// In place of it once nothing is read any more: everything has room.
const LET_PASS: u64 = u64::MAX - 1;

/// An atomic number that one process changes and another one looks at.
pub(super) trait Count {
    /// What it is; whatever was done before it was set has been done.
    fn get(&self) -> u64;
    /// Sets it, behind whatever was done before.
    fn set(&self, to: u64);
    /// The same, unless it is higher.
    fn raise(&self, to: u64);
}

impl Count for AtomicU64 {
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

/// A window, from either side.
#[derive(Debug)]
pub(super) struct Window<'a, C = AtomicU64> {
    pub(super) filled: &'a C,
    pub(super) freed: &'a C,
    pub(super) bytes: u64,
}

impl<C: Count> Window<'_, C> {
    /// The rank, before it says that something comes.
    pub(super) fn open(&self) {
        self.freed.set(NOT_BEGUN);
        self.filled.set(0);
    }

    /// The agent, once it has read what comes.
    pub(super) fn begin(&self) {
        self.freed.set(0);
    }

    /// Whether the agent has read what comes.
    pub(super) fn is_begun(&self) -> bool {
        self.freed.get() != NOT_BEGUN
    }

    /// How much was taken out; to see whether something moves.
    pub(super) fn freed(&self) -> u64 {
        self.freed.get()
    }

    /// Whether the rank may fill up to there.
    pub(super) fn has_room(&self, to: u64) -> bool {
        let freed = match self.freed.get() {
            NOT_BEGUN => 0,
            freed => freed,
        };
        to <= freed.saturating_add(self.bytes)
    }

    /// The rank: everything up to there is filled.
    pub(super) fn fill(&self, to: u64) {
        self.filled.set(to);
    }

    /// How far it is filled.
    pub(super) fn filled(&self) -> u64 {
        self.filled.get()
    }

    /// The agent: everything up to there may be filled over. Its threads may say so in any order.
    pub(super) fn free(&self, to: u64) {
        self.freed.raise(to);
    }

    /// The agent reads nothing any more: the rank comes to its end all the same.
    pub(super) fn let_pass(&self) {
        self.freed.set(LET_PASS);
    }
}

/// Parts that several threads have filled, in whatever order: what is filled without a gap is told.
#[derive(Debug, Default)]
pub(super) struct Filling {
    to: u64,
    /// Parts behind a gap, by their beginning.
    ahead: BTreeMap<u64, u64>,
}

impl Filling {
    /// A part is filled; gives how far everything is.
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

    impl Count for Model {
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

    /// A window of one place, and a description that the rank changes once the agent has read it.
    #[derive(Default)]
    struct Passing {
        filled: Model,
        freed: Model,
        place: Model,
        description: Model,
    }

    impl Passing {
        fn window(&self) -> Window<'_, Model> {
            Window {
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
        let (filled, freed) = (AtomicU64::new(0), AtomicU64::new(0));
        let window = Window {
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
        let mut filling = Filling::default();
        let told = [(4, 6), (0, 1), (3, 4), (1, 3), (6, 9)].map(|(from, to)| filling.add(from, to));
        assert_eq!(told, [0, 1, 1, 6, 9]);
    }
}
