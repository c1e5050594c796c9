//! Tally of the images of each checkpoint attempt; an attempt is whole once every rank has one.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Generation, Rank, Step};
use serde::{Deserialize, Serialize};

use crate::pairs;

/// Maximum number of attempts that no retention rule names; the oldest is dropped first.
pub const MAX_ATTEMPTS: usize = 8;
/// Maximum number of attempts that a retention rule names, counted separately.
pub const MAX_WANTED: usize = 64;
/// Maximum number of void attempts retained, so that late images of them do not start a new attempt.
pub const MAX_VOID: usize = 64;

/// Images of one step of one generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CheckpointAttempt<S> {
    world_size: u32,
    /// True if a retention rule names the attempt; newer attempts without this flag do not evict it.
    wanted: bool,
    images: BTreeMap<Rank, S>,
}

/// All attempts in progress. `S` is the record of one image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptTracker<S> {
    #[serde(
        with = "pairs",
        bound(serialize = "S: Serialize", deserialize = "S: Deserialize<'de>")
    )]
    attempts: BTreeMap<(Generation, Step), CheckpointAttempt<S>>,
    void: BTreeSet<(Generation, Step)>,
    /// True if the newest whole attempt of a kind is not dropped for incomplete ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    retains_complete: bool,
}

impl<S> CheckpointAttempt<S> {
    fn is_complete(&self) -> bool {
        self.images.len() == self.world_size as usize
    }
}

impl<S> Default for AttemptTracker<S> {
    fn default() -> Self {
        Self {
            attempts: BTreeMap::new(),
            void: BTreeSet::new(),
            retains_complete: false,
        }
    }
}

impl<S> AttemptTracker<S> {
    /// Records an image. Returns true if the attempt is still valid. Ignores an image of a void attempt, and one that
    /// is older than all attempts once [`MAX_ATTEMPTS`] are retained: agents that reconnect after a long partition
    /// report their images one after the other, and the oldest ones of the last agent must not evict the newest of the
    /// others. An image that contradicts the others (another world size, or a rank beyond it) makes the attempt void.
    pub fn add_image(&mut self, generation: Generation, step: Step, rank: Rank, world_size: u32, image: S) -> bool {
        self.record_image((generation, step), (rank, world_size, image), false)
    }

    /// Records an image of an attempt that retention names by its step; otherwise as [`image`](Self::image). Such
    /// attempts and the others do not evict each other.
    pub fn add_retained_image(
        &mut self,
        generation: Generation,
        step: Step,
        rank: Rank,
        world_size: u32,
        image: S,
    ) -> bool {
        self.record_image((generation, step), (rank, world_size, image), true)
    }

    fn record_image(
        &mut self,
        key: (Generation, Step),
        (rank, world_size, image): (Rank, u32, S),
        wanted: bool,
    ) -> bool {
        let (generation, step) = key;
        if self.void.contains(&key) {
            return false;
        }
        if !self.attempts.contains_key(&key) && !self.make_room(key, wanted) {
            return false;
        }
        let attempt = self.attempts.entry(key).or_insert_with(|| CheckpointAttempt {
            world_size,
            wanted,
            images: BTreeMap::new(),
        });
        if attempt.world_size != world_size || rank.0 >= world_size {
            self.mark_void(generation, step);
            return false;
        }
        attempt.images.insert(rank, image);
        true
    }

    /// Retains the newest whole attempt of each kind until it is committed, however many incomplete ones follow: after
    /// the end of a peer, a rank may save many steps that never become whole.
    pub fn retain_complete(&mut self) {
        self.retains_complete = true;
    }

    /// Drops the oldest attempt of the same kind if the limit is reached. Returns false if the new attempt is older
    /// than that.
    fn make_room(&mut self, key: (Generation, Step), wanted: bool) -> bool {
        let most = if wanted { MAX_WANTED } else { MAX_ATTEMPTS };
        let alike = || self.attempts.iter().filter(|(_, attempt)| attempt.wanted == wanted);
        if alike().count() < most {
            return true;
        }
        let mut complete = alike().rev().filter(|(_, attempt)| attempt.is_complete());
        let retained = complete.next().map(|(newest, _)| *newest);
        let retained = retained.filter(|_| self.retains_complete);
        let mut others = alike()
            .map(|(other, _)| *other)
            .filter(|other| Some(*other) != retained);
        match others.next() {
            Some(oldest) if key < oldest => false,
            Some(oldest) => self.attempts.remove(&oldest).is_some(),
            None => true,
        }
    }

    /// Records a whole attempt of which all images were found at once. Incomplete ones make room for it, also newer ones.
    pub fn add_complete(&mut self, generation: Generation, step: Step, images: BTreeMap<Rank, S>) {
        let key = (generation, step);
        let known = self.attempts.get(&key);
        if self.void.contains(&key) || known.is_some_and(CheckpointAttempt::is_complete) {
            return;
        }
        let wanted = known.is_some_and(|known| known.wanted);
        let mut alike = self.attempts.iter().filter(|(_, attempt)| attempt.wanted == wanted);
        let oldest = alike.next().map(|(oldest, _)| *oldest);
        if let Some(oldest) = oldest.filter(|_| known.is_none() && alike.count() + 1 >= MAX_ATTEMPTS) {
            self.attempts.remove(&oldest);
        }
        let attempt = CheckpointAttempt {
            world_size: u32::try_from(images.len()).unwrap_or(u32::MAX),
            wanted,
            images,
        };
        self.attempts.insert(key, attempt);
    }

    /// Makes the attempt void for good, because a rank took no image of this step or cannot retain it.
    pub fn mark_void(&mut self, generation: Generation, step: Step) {
        self.attempts.remove(&(generation, step));
        if self.void.len() >= MAX_VOID {
            self.void.pop_first();
        }
        self.void.insert((generation, step));
    }

    /// True if the attempt is known to be void.
    pub fn is_void(&self, generation: Generation, step: Step) -> bool {
        self.void.contains(&(generation, step))
    }

    /// Returns the attempts that are known to be void.
    pub fn void(&self) -> &BTreeSet<(Generation, Step)> {
        &self.void
    }

    /// Returns the step and the images of the newest whole attempt of a generation.
    pub fn newest_complete(&self, generation: Generation) -> Option<(Step, &BTreeMap<Rank, S>)> {
        let of = self
            .attempts
            .range((generation, Step(0))..=(generation, Step(u64::MAX)));
        of.rev()
            .find(|(_, attempt)| attempt.is_complete())
            .map(|((_, step), attempt)| (*step, &attempt.images))
    }

    /// Iterates over all whole attempts, oldest first.
    pub fn complete_attempts(&self) -> impl Iterator<Item = (Generation, Step)> + '_ {
        let whole = self.attempts.iter().filter(|(_, attempt)| attempt.is_complete());
        whole.map(|(key, _)| *key)
    }

    /// Iterates over the steps of a generation that have at least one image, oldest first.
    pub fn steps(&self, generation: Generation) -> impl Iterator<Item = Step> + '_ {
        let of = self
            .attempts
            .range((generation, Step(0))..=(generation, Step(u64::MAX)));
        of.map(|((_, step), _)| *step)
    }

    /// Returns the images received so far for an attempt.
    pub fn images(&self, generation: Generation, step: Step) -> Option<&BTreeMap<Rank, S>> {
        self.attempts.get(&(generation, step)).map(|attempt| &attempt.images)
    }

    /// Drops all attempts up to the committed step, except whole attempts before it for which `still` returns true:
    /// these are committed as well.
    pub fn remove_committed(&mut self, step: Step, still: impl Fn(Generation, Step) -> bool) {
        self.attempts.retain(|(generation, of), attempt| {
            let late = *of < step && attempt.is_complete() && still(*generation, *of);
            *of > step || late
        });
    }

    /// Removes an attempt that no caller needs any more.
    pub fn forget(&mut self, generation: Generation, step: Step) {
        self.attempts.remove(&(generation, step));
    }

    /// Drops all attempts of older generations (RG-3), except the one that is being committed.
    pub fn fence(&mut self, generation: Generation, committing: Option<(Generation, Step)>) {
        self.attempts
            .retain(|key, _| key.0 >= generation || Some(*key) == committing);
        self.void.retain(|key| key.0 >= generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Generation = Generation(1);

    #[test]
    fn an_attempt_is_whole_with_one_image_of_each_rank_of_one_step() {
        let mut tally = AttemptTracker::default();
        assert!(tally.add_image(ONE, Step(5), Rank(0), 2, "a"));
        assert!(tally.add_image(ONE, Step(6), Rank(1), 2, "b"));
        assert!(tally.add_image(Generation(2), Step(5), Rank(1), 2, "c"));
        assert!(tally.add_image(ONE, Step(5), Rank(0), 2, "a again"));
        assert_eq!(tally.newest_complete(ONE), None);
        assert!(tally.add_image(ONE, Step(5), Rank(1), 2, "d"));
        assert_eq!(
            tally.newest_complete(ONE).map(|(step, images)| (step, images.len())),
            Some((Step(5), 2))
        );
        tally.remove_committed(Step(5), |_, _| true);
        assert_eq!(
            (
                tally.newest_complete(ONE),
                tally.images(ONE, Step(6)).map(BTreeMap::len)
            ),
            (None, Some(1))
        );
    }

    #[test]
    fn whole_attempts_that_were_overtaken_stay_where_they_are_wanted() {
        let mut tally = AttemptTracker::default();
        for step in 0..2 * MAX_ATTEMPTS as u64 {
            tally.add_image(ONE, Step(2 * step), Rank(0), 1, ());
            tally.add_retained_image(ONE, Step(2 * step + 1), Rank(0), if step == 3 { 2 } else { 1 }, ());
        }
        let steps = |tally: &AttemptTracker<()>| tally.complete_attempts().map(|(_, step)| step.0).collect::<Vec<_>>();
        assert_eq!(
            steps(&tally)[..4],
            [1, 3, 5, 9],
            "those that are wanted are not pushed out; 7 lacks a rank"
        );
        tally.remove_committed(Step(30), |_, step| step.0 % 6 == 1);
        assert_eq!(steps(&tally), [1, 13, 19, 25, 31]);
        tally.forget(ONE, Step(13));
        assert_eq!(steps(&tally), [1, 19, 25, 31]);
    }

    /// Rank 1 has ended, and rank 0 saves on: its steps never become whole.
    #[test]
    fn a_whole_attempt_is_not_dropped_for_later_incomplete_ones() {
        for retains in [false, true] {
            let mut tally = AttemptTracker::default();
            if retains {
                tally.retain_complete();
            }
            for step in 1..=2 {
                tally.add_image(ONE, Step(step), Rank(0), 2, ());
                tally.add_image(ONE, Step(step), Rank(1), 2, ());
            }
            for step in 3..=40 {
                tally.add_image(ONE, Step(step), Rank(0), 2, ());
            }
            let newest = tally.newest_complete(ONE).map(|(step, _)| step);
            assert_eq!(newest, retains.then_some(Step(2)));
            assert_eq!(tally.attempts.len(), MAX_ATTEMPTS);
        }
    }

    #[test]
    fn a_whole_attempt_that_is_found_at_once_takes_the_place_of_an_incomplete_one() {
        let mut tally = AttemptTracker::default();
        for step in 20..=40 {
            tally.add_image(ONE, Step(step), Rank(0), 2, ());
        }
        let both = || BTreeMap::from([(Rank(0), ()), (Rank(1), ())]);
        tally.mark_void(ONE, Step(12));
        tally.add_complete(ONE, Step(12), both());
        assert_eq!(tally.newest_complete(ONE), None, "a void one is none");
        tally.add_complete(ONE, Step(10), both());
        assert_eq!(tally.newest_complete(ONE).map(|(step, _)| step), Some(Step(10)));
        assert_eq!(tally.attempts.len(), MAX_ATTEMPTS);
    }

    #[test]
    fn void_is_for_good_and_a_contradiction_is_void() {
        let mut tally = AttemptTracker::default();
        tally.mark_void(ONE, Step(5));
        assert!(!tally.add_image(ONE, Step(5), Rank(0), 1, ()));
        assert!(tally.is_void(ONE, Step(5)) && tally.newest_complete(ONE).is_none());
        assert!(tally.add_image(ONE, Step(7), Rank(0), 2, ()));
        assert!(!tally.add_image(ONE, Step(7), Rank(1), 3, ()));
        assert!(!tally.add_image(ONE, Step(8), Rank(2), 2, ()));
        assert!(tally.is_void(ONE, Step(7)) && tally.is_void(ONE, Step(8)));
    }

    #[test]
    fn memory_is_bounded_and_a_fence_spares_only_what_is_being_committed() {
        let mut tally = AttemptTracker::default();
        for step in 0..1_000 {
            tally.add_image(ONE, Step(step), Rank(0), 2, ());
            tally.mark_void(ONE, Step(2_000 + step));
        }
        assert_eq!((tally.attempts.len(), tally.void.len()), (MAX_ATTEMPTS, MAX_VOID));
        tally.fence(Generation(2), Some((ONE, Step(999))));
        assert_eq!((tally.attempts.len(), tally.void.len()), (1, 0));
    }
}
