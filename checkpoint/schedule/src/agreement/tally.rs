//! Which images there are of which attempt, and whether an attempt is whole.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_model::{Generation, Rank, Step};
use serde::{Deserialize, Serialize};

use crate::pairs;

/// Attempts that are remembered while incomplete; the oldest is given up first.
pub const MAX_ATTEMPTS: usize = 8;
/// As many again, of those that somebody wants whatever is newer.
pub const MAX_WANTED: usize = 64;
/// Void attempts that are remembered, so that what still arrives of them is not taken for a new attempt.
pub const MAX_VOID: usize = 64;

/// Images of one step of one generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Attempt<S> {
    world_size: u32,
    /// It is given up after those that are not.
    wanted: bool,
    images: BTreeMap<Rank, S>,
}

/// All attempts that are under way. `S` is what is known of an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tally<S> {
    #[serde(
        with = "pairs",
        bound(serialize = "S: Serialize", deserialize = "S: Deserialize<'de>")
    )]
    attempts: BTreeMap<(Generation, Step), Attempt<S>>,
    void: BTreeSet<(Generation, Step)>,
}

impl<S> Attempt<S> {
    fn is_whole(&self) -> bool {
        self.images.len() == self.world_size as usize
    }
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
        self.take((generation, step), (rank, world_size, image), false)
    }

    /// The same for an attempt that is wanted whatever is newer, as one that retention names by its step: those that are
    /// not do not push it out, nor it them.
    pub fn wanted(&mut self, generation: Generation, step: Step, rank: Rank, world_size: u32, image: S) -> bool {
        self.take((generation, step), (rank, world_size, image), true)
    }

    fn take(&mut self, key: (Generation, Step), (rank, world_size, image): (Rank, u32, S), wanted: bool) -> bool {
        let (generation, step) = key;
        if self.void.contains(&key) {
            return false;
        }
        if !self.attempts.contains_key(&key) && !self.make_room(key, wanted) {
            return false;
        }
        let attempt = self.attempts.entry(key).or_insert_with(|| Attempt {
            world_size,
            wanted,
            images: BTreeMap::new(),
        });
        if attempt.world_size != world_size || rank.0 >= world_size {
            self.void(generation, step);
            return false;
        }
        attempt.images.insert(rank, image);
        true
    }

    /// Gives up the oldest of its kind for a new attempt, where there are as many as are remembered; not for an older one.
    fn make_room(&mut self, key: (Generation, Step), wanted: bool) -> bool {
        let most = if wanted { MAX_WANTED } else { MAX_ATTEMPTS };
        let mut alike = self.attempts.iter().filter(|(_, attempt)| attempt.wanted == wanted);
        let oldest = alike.next().map(|(oldest, _)| *oldest);
        match oldest.filter(|_| alike.count() + 1 >= most) {
            Some(oldest) if key < oldest => false,
            Some(oldest) => self.attempts.remove(&oldest).is_some(),
            None => true,
        }
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
            .find(|(_, attempt)| attempt.is_whole())
            .map(|((_, step), attempt)| (*step, &attempt.images))
    }

    /// All whole attempts, oldest first.
    pub fn all_whole(&self) -> impl Iterator<Item = (Generation, Step)> + '_ {
        let whole = self.attempts.iter().filter(|(_, attempt)| attempt.is_whole());
        whole.map(|(key, _)| *key)
    }

    /// Steps of a generation of which there is an image, oldest first.
    pub fn steps(&self, generation: Generation) -> impl Iterator<Item = Step> + '_ {
        let of = self
            .attempts
            .range((generation, Step(0))..=(generation, Step(u64::MAX)));
        of.map(|((_, step), _)| *step)
    }

    /// The images of an attempt, so far.
    pub fn images(&self, generation: Generation, step: Step) -> Option<&BTreeMap<Rank, S>> {
        self.attempts.get(&(generation, step)).map(|attempt| &attempt.images)
    }

    /// Everything up to a step that was committed has become pointless, but for whole attempts that are to be committed
    /// all the same.
    pub fn committed(&mut self, step: Step, still: impl Fn(Generation, Step) -> bool) {
        self.attempts.retain(|(generation, of), attempt| {
            let late = *of < step && attempt.is_whole() && still(*generation, *of);
            *of > step || late
        });
    }

    /// Nobody wants this attempt any more.
    pub fn forget(&mut self, generation: Generation, step: Step) {
        self.attempts.remove(&(generation, step));
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
        tally.committed(Step(5), |_, _| true);
        assert_eq!(
            (tally.whole(ONE), tally.images(ONE, Step(6)).map(BTreeMap::len)),
            (None, Some(1))
        );
    }

    #[test]
    fn whole_attempts_that_were_overtaken_stay_where_they_are_wanted() {
        let mut tally = Tally::default();
        for step in 0..2 * MAX_ATTEMPTS as u64 {
            tally.image(ONE, Step(2 * step), Rank(0), 1, ());
            tally.wanted(ONE, Step(2 * step + 1), Rank(0), if step == 3 { 2 } else { 1 }, ());
        }
        let steps = |tally: &Tally<()>| tally.all_whole().map(|(_, step)| step.0).collect::<Vec<_>>();
        assert_eq!(
            steps(&tally)[..4],
            [1, 3, 5, 9],
            "those that are wanted are not pushed out; 7 lacks a rank"
        );
        tally.committed(Step(30), |_, step| step.0 % 6 == 1);
        assert_eq!(steps(&tally), [1, 13, 19, 25, 31]);
        tally.forget(ONE, Step(13));
        assert_eq!(steps(&tally), [1, 19, 25, 31]);
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
