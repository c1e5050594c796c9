//! Which images there are of which attempt, and whether an attempt is whole.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Generation, Rank, Step};
use serde::Serialize;

/// Attempts that are remembered while incomplete; the oldest is given up first.
pub const MAX_ATTEMPTS: usize = 8;
/// Void attempts that are remembered, so that what still arrives of them is not taken for a new attempt.
pub const MAX_VOID: usize = 64;

/// Images of one step of one generation.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Attempt<S> {
    world_size: u32,
    images: BTreeMap<Rank, S>,
}

/// All attempts that are under way. `S` is what is known of an image.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tally<S> {
    attempts: BTreeMap<(Generation, Step), Attempt<S>>,
    void: BTreeSet<(Generation, Step)>,
}

impl<S> Default for Tally<S> {
    fn default() -> Self {
        Self {
            attempts: BTreeMap::new(),
            void: BTreeSet::new(),
        }
    }
}

impl<S> Tally<S> {
    /// Takes in an image. One of a void attempt is not taken, nor one that is older than all of as many attempts as are
    /// remembered: agents that were alone for long tell what they have one after the other, and the last to come must not
    /// push out with its oldest what the others have told of the newest. One that contradicts the others (another world size,
    /// or a rank beyond it) makes the attempt void. Says whether the attempt is still good.
    pub fn image(&mut self, generation: Generation, step: Step, rank: Rank, world_size: u32, image: S) -> bool {
        let key = (generation, step);
        if self.void.contains(&key) {
            return false;
        }
        if self.attempts.len() >= MAX_ATTEMPTS && !self.attempts.contains_key(&key) {
            if self.attempts.first_key_value().is_some_and(|(oldest, _)| key < *oldest) {
                return false;
            }
            self.attempts.pop_first();
        }
        let attempt = self.attempts.entry(key).or_insert_with(|| Attempt {
            world_size,
            images: BTreeMap::new(),
        });
        if attempt.world_size != world_size || rank.0 >= world_size {
            self.void(generation, step);
            return false;
        }
        attempt.images.insert(rank, image);
        true
    }

    /// A rank takes no image of this step, or cannot keep it: the attempt is void for good.
    pub fn void(&mut self, generation: Generation, step: Step) {
        self.attempts.remove(&(generation, step));
        if self.void.len() >= MAX_VOID {
            self.void.pop_first();
        }
        self.void.insert((generation, step));
    }

    /// Whether an attempt is known to be void.
    pub fn is_void(&self, generation: Generation, step: Step) -> bool {
        self.void.contains(&(generation, step))
    }

    /// The newest whole attempt of a generation: its step and the image of every rank.
    pub fn whole(&self, generation: Generation) -> Option<(Step, &BTreeMap<Rank, S>)> {
        let of = self
            .attempts
            .range((generation, Step(0))..=(generation, Step(u64::MAX)));
        of.rev()
            .find(|(_, attempt)| attempt.images.len() == attempt.world_size as usize)
            .map(|((_, step), attempt)| (*step, &attempt.images))
    }

    /// The images of an attempt, so far.
    pub fn images(&self, generation: Generation, step: Step) -> Option<&BTreeMap<Rank, S>> {
        self.attempts.get(&(generation, step)).map(|attempt| &attempt.images)
    }

    /// Everything up to a step that was committed has become pointless.
    pub fn committed(&mut self, step: Step) {
        self.attempts.retain(|(_, of), _| *of > step);
    }

    /// Older generations may not complete anything more (RG-3), but for one attempt that is being committed.
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
        let mut tally = Tally::default();
        assert!(tally.image(ONE, Step(5), Rank(0), 2, "a"));
        assert!(tally.image(ONE, Step(6), Rank(1), 2, "b"));
        assert!(tally.image(Generation(2), Step(5), Rank(1), 2, "c"));
        assert!(tally.image(ONE, Step(5), Rank(0), 2, "a again"));
        assert_eq!(tally.whole(ONE), None);
        assert!(tally.image(ONE, Step(5), Rank(1), 2, "d"));
        assert_eq!(
            tally.whole(ONE).map(|(step, images)| (step, images.len())),
            Some((Step(5), 2))
        );
        tally.committed(Step(5));
        assert_eq!(
            (tally.whole(ONE), tally.images(ONE, Step(6)).map(BTreeMap::len)),
            (None, Some(1))
        );
    }

    #[test]
    fn void_is_for_good_and_a_contradiction_is_void() {
        let mut tally = Tally::default();
        tally.void(ONE, Step(5));
        assert!(!tally.image(ONE, Step(5), Rank(0), 1, ()));
        assert!(tally.is_void(ONE, Step(5)) && tally.whole(ONE).is_none());
        assert!(tally.image(ONE, Step(7), Rank(0), 2, ()));
        assert!(!tally.image(ONE, Step(7), Rank(1), 3, ()));
        assert!(!tally.image(ONE, Step(8), Rank(2), 2, ()));
        assert!(tally.is_void(ONE, Step(7)) && tally.is_void(ONE, Step(8)));
    }

    #[test]
    fn memory_is_bounded_and_a_fence_spares_only_what_is_being_committed() {
        let mut tally = Tally::default();
        for step in 0..1_000 {
            tally.image(ONE, Step(step), Rank(0), 2, ());
            tally.void(ONE, Step(2_000 + step));
        }
        assert_eq!((tally.attempts.len(), tally.void.len()), (MAX_ATTEMPTS, MAX_VOID));
        tally.fence(Generation(2), Some((ONE, Step(999))));
        assert_eq!((tally.attempts.len(), tally.void.len()), (1, 0));
    }
}
