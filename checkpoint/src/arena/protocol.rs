//! Transitions of a slot word by rank and agent: the atomic steps that all other arena code relies on.
//!
//! The rank claims a slot that is empty or has a durable image, copies, and seals with one compare-and-swap from its
//! own claim; the agent may take the slot back at any time. The claim carries the generation, so the seal of a stale
//! rank finds another word and fails (RG-3), independent of what happened to the slot meanwhile. Release ordering of
//! the seal orders the image before the word.
//!
//! Generic over [`AtomicWord`], so that the tests run every interleaving of this code.

use std::sync::atomic::{AtomicU64, Ordering};

use rankguard_model::Generation;

use crate::arena::state::{EMPTY, SlotState, pack, unpack};

/// Atomic word that two processes compete for.
pub(super) trait AtomicWord {
    /// Sets the word unconditionally. A read-modify-write like every other step, so that all steps form one release
    /// sequence.
    fn replace(&self, value: u64);
    /// Sets the word to `to` if it is `from`; otherwise returns its value.
    fn change(&self, from: u64, to: u64) -> Result<(), u64>;
    /// Returns the value.
    fn now(&self) -> u64;
}

impl AtomicWord for AtomicU64 {
    fn now(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn replace(&self, value: u64) {
        Self::swap(self, value, Ordering::AcqRel);
    }

    fn change(&self, from: u64, to: u64) -> Result<(), u64> {
        self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }
}

/// Claims an empty slot for `state`; returns the current word if the slot is not empty.
pub(super) fn claim(word: &impl AtomicWord, state: SlotState, generation: Generation) -> Result<(), u64> {
    word.change(EMPTY, pack(state, generation))
}

/// Claims a slot to fill: an empty one, one with a durable image or, if `replace`, one with a sealed image that is not
/// being written. Returns the current word otherwise.
pub(super) fn claim_over(word: &impl AtomicWord, generation: Generation, replace: bool) -> Result<(), u64> {
    let is = word.now();
    match unpack(is).0 {
        // Fails if the word has changed since.
        SlotState::Durable => word.change(is, pack(SlotState::Filling, generation)),
        SlotState::Sealed if replace => word.change(is, pack(SlotState::Filling, generation)),
        _ => claim(word, SlotState::Filling, generation),
    }
}

/// Marks the image that this generation sealed as being written, so that it is not overwritten until it is durable or
/// taken back. Returns false if it is gone.
pub(super) fn begin_write(word: &impl AtomicWord, generation: Generation) -> bool {
    let sealed = pack(SlotState::Sealed, generation);
    word.change(sealed, pack(SlotState::Writing, generation)).is_ok()
}

/// Returns an image to `Sealed` because it is not the one that was to be written.
pub(super) fn cancel_write(word: &impl AtomicWord, generation: Generation) {
    let writing = pack(SlotState::Writing, generation);
    let _ = word.change(writing, pack(SlotState::Sealed, generation));
}

/// Marks the image that was being written as durable. Returns false if it is gone.
pub(super) fn make_durable(word: &impl AtomicWord, generation: Generation) -> bool {
    let writing = pack(SlotState::Writing, generation);
    word.change(writing, pack(SlotState::Durable, generation)).is_ok()
}

/// Seals the claimed slot as a whole image. Returns false if the claim was lost.
pub(super) fn seal(word: &impl AtomicWord, generation: Generation) -> bool {
    let filling = pack(SlotState::Filling, generation);
    word.change(filling, pack(SlotState::Sealed, generation)).is_ok()
}

/// Releases a claimed slot if the claim is still valid: the agent may have taken it back and reassigned it.
pub(super) fn give_up(word: &impl AtomicWord, generation: Generation) {
    let _ = word.change(pack(SlotState::Filling, generation), EMPTY);
}

/// Empties a slot with a restored image of this generation; leaves any other word.
pub(super) fn discard_restored(word: &impl AtomicWord, generation: Generation) {
    let _ = word.change(pack(SlotState::Restored, generation), EMPTY);
}

/// Abandons an image that was passing through a window. The slot remains occupied until its reader notices and releases
/// it.
pub(super) fn abandon_stream(word: &impl AtomicWord, generation: Generation) {
    let _ = word.change(
        pack(SlotState::Filling, generation),
        pack(SlotState::Writing, generation),
    );
}

/// Empties a slot in any state.
pub(super) fn take_back(word: &impl AtomicWord) {
    word.replace(EMPTY);
}

/// Cleans up a slot after the agent exited, and usually its rank too: a sealed image is retained, also if it was being
/// written; everything else is discarded.
pub(super) fn inherit(word: &impl AtomicWord) {
    loop {
        let is = word.now();
        let to = match unpack(is) {
            (SlotState::Empty | SlotState::Sealed | SlotState::Durable, _) => return,
            (SlotState::Writing, generation) => pack(SlotState::Sealed, generation),
            _ => EMPTY,
        };
        // The rank may still run for a moment, and seal.
        if word.change(is, to).is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as Model;
    use loom::thread;

    use super::*;
    use crate::arena::state::unpack;

    impl AtomicWord for Model {
        fn now(&self) -> u64 {
            self.load(Ordering::Acquire)
        }

        fn replace(&self, value: u64) {
            Self::swap(self, value, Ordering::AcqRel);
        }

        fn change(&self, from: u64, to: u64) -> Result<(), u64> {
            self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
                .map(|_| ())
        }
    }

    /// Slot and its image, modelled as one number: the generation that wrote it.
    #[derive(Default)]
    struct Slot {
        word: Model,
        image: Model,
    }

    impl Slot {
        /// Fill by a rank: claims, copies, seals. Returns true if there is an image.
        fn fill(&self, generation: u64) -> bool {
            if claim(&self.word, SlotState::Filling, Generation(generation)).is_err() {
                return false;
            }
            self.image.store(generation, Ordering::Relaxed);
            seal(&self.word, Generation(generation))
        }

        /// Agent's read of a sealed slot: the generation that sealed it, and the image.
        fn read(&self) -> Option<(u64, u64)> {
            let (state, generation) = unpack(self.word.load(Ordering::Acquire));
            (state == SlotState::Sealed).then(|| (generation.0, self.image.load(Ordering::Relaxed)))
        }
    }

    #[test]
    fn rg_1_who_sees_the_seal_sees_the_image() {
        loom::model(|| {
            let slot = Arc::new(Slot::default());
            let rank = {
                let slot = slot.clone();
                thread::spawn(move || assert!(slot.fill(1)))
            };
            if let Some(seen) = slot.read() {
                assert_eq!(seen, (1, 1));
            }
            rank.join().expect("the rank's checks hold");
            assert_eq!(slot.read(), Some((1, 1)));
        });
    }

    #[test]
    fn rg_3_after_the_slot_was_taken_back_the_old_claim_seals_nothing() {
        loom::model(|| {
            let slot = Arc::new(Slot::default());
            assert!(claim(&slot.word, SlotState::Filling, Generation(1)).is_ok());
            let stale = {
                let slot = slot.clone();
                thread::spawn(move || {
                    if seal(&slot.word, Generation(1)) {
                        true
                    } else {
                        give_up(&slot.word, Generation(1));
                        false
                    }
                })
            };
            // The agent takes the slot back and a rank of the next generation fills it.
            take_back(&slot.word);
            assert!(slot.fill(2), "the stale rank disturbed the new one");
            stale.join().expect("the rank's checks hold");
            assert_eq!(slot.read(), Some((2, 2)), "the stale rank changed the new image's word");
        });
    }

    #[test]
    fn rg_1_what_a_new_agent_inherits_is_a_whole_image_or_nothing() {
        loom::model(|| {
            let slot = Arc::new(Slot::default());
            let rank = {
                let slot = slot.clone();
                thread::spawn(move || slot.fill(1))
            };
            inherit(&slot.word);
            if let Some(seen) = slot.read() {
                assert_eq!(seen, (1, 1));
            }
            let sealed = rank.join().expect("the rank's checks hold");
            assert_eq!(
                slot.read().is_some(),
                sealed,
                "the slot was taken from under a rank that sealed it"
            );
        });
    }

    #[test]
    fn a_write_that_was_begun_is_inherited_as_an_image() {
        let slot = AtomicU64::new(pack(SlotState::Writing, Generation(3)));
        inherit(&slot);
        assert_eq!(unpack(slot.now()), (SlotState::Sealed, Generation(3)));
        for left in [SlotState::Filling, SlotState::Restored, SlotState::Broken] {
            let slot = AtomicU64::new(pack(left, Generation(3)));
            inherit(&slot);
            assert_eq!(slot.now(), EMPTY, "{left}");
        }
        for stays in [SlotState::Sealed, SlotState::Durable] {
            let slot = AtomicU64::new(pack(stays, Generation(3)));
            inherit(&slot);
            assert_eq!(unpack(slot.now()), (stays, Generation(3)));
        }
    }

    #[test]
    fn of_two_that_want_a_slot_one_gets_it() {
        loom::model(|| {
            let slot = Arc::new(Slot::default());
            let rank = {
                let slot = slot.clone();
                thread::spawn(move || slot.fill(1))
            };
            let restored = claim(&slot.word, SlotState::Restored, Generation(1)).is_ok();
            let filled = rank.join().expect("the rank's checks hold");
            assert!(restored != filled, "both or neither has the slot");
        });
    }

    #[test]
    fn an_image_that_is_being_written_does_not_change_until_it_is_durable() {
        for replace in [false, true] {
            loom::model(move || {
                let slot = Arc::new(Slot::default());
                assert!(slot.fill(1));
                let rank = {
                    let slot = slot.clone();
                    thread::spawn(move || {
                        if claim_over(&slot.word, Generation(1), replace).is_ok() {
                            slot.image.store(2, Ordering::Relaxed);
                            assert!(seal(&slot.word, Generation(1)), "nobody else claims");
                        }
                    })
                };
                if begin_write(&slot.word, Generation(1)) {
                    let written = slot.image.load(Ordering::Relaxed);
                    let again = slot.image.load(Ordering::Relaxed);
                    assert_eq!(written, again, "the image changed while it was written");
                    assert!(make_durable(&slot.word, Generation(1)));
                } else {
                    assert!(replace, "the image went although it was not safe");
                }
                rank.join().expect("the rank's checks hold");
            });
        }
    }

    #[test]
    fn a_rank_that_gives_up_frees_only_its_own_claim() {
        loom::model(|| {
            let slot = Arc::new(Slot::default());
            assert!(claim(&slot.word, SlotState::Filling, Generation(1)).is_ok());
            let stale = {
                let slot = slot.clone();
                thread::spawn(move || give_up(&slot.word, Generation(1)))
            };
            take_back(&slot.word);
            let restored = claim(&slot.word, SlotState::Restored, Generation(2));
            stale.join().expect("the rank's checks hold");
            assert!(restored.is_ok());
            assert_eq!(
                unpack(slot.word.load(Ordering::Acquire)),
                (SlotState::Restored, Generation(2))
            );
        });
    }
}
