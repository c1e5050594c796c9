//! How rank and agent move a slot's word: the few atomic steps that everything else rests on.
//!
//! The rank claims a slot that is empty or whose image is durable, copies, and seals with one compare-and-swap from its own
//! claim; the agent may take the slot back at any moment. The claim carries the generation, so the seal of a rank that was overtaken finds another word and
//! fails (RG-3), whatever has happened to the slot meanwhile. The release of the seal orders the image before the word.
//!
//! Written over [`Word`], so that the tests run every interleaving of these very steps.

use std::sync::atomic::{AtomicU64, Ordering};

use rankguard_model::Generation;

use crate::arena::state::{EMPTY, SlotState, pack, unpack};

/// An atomic word that two processes race for.
pub(super) trait Word {
    /// Sets it, whatever it is. A read-modify-write like every other step, so that all of them are one chain.
    fn replace(&self, value: u64);
    /// Sets it to `to` if it is `from`; what it is otherwise.
    fn change(&self, from: u64, to: u64) -> Result<(), u64>;
    /// What it is.
    fn now(&self) -> u64;
}

impl Word for AtomicU64 {
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

/// Takes an empty slot for `state`; gives what the slot is where it is not empty.
pub(super) fn claim(word: &impl Word, state: SlotState, generation: Generation) -> Result<(), u64> {
    word.change(EMPTY, pack(state, generation))
}

/// Takes a slot to fill: an empty one, one whose image is safe elsewhere or, where that is allowed, one whose image nobody
/// has begun to write; gives what the slot is where it is none of these.
pub(super) fn claim_over(word: &impl Word, generation: Generation, replace: bool) -> Result<(), u64> {
    let is = word.now();
    match unpack(is).0 {
        // Should it be another by now, it is not taken.
        SlotState::Durable => word.change(is, pack(SlotState::Filling, generation)),
        SlotState::Sealed if replace => word.change(is, pack(SlotState::Filling, generation)),
        _ => claim(word, SlotState::Filling, generation),
    }
}

/// From here until it is durable or taken back, nobody fills over the image that this generation sealed. Says whether it
/// was there.
pub(super) fn begin_write(word: &impl Word, generation: Generation) -> bool {
    let sealed = pack(SlotState::Sealed, generation);
    word.change(sealed, pack(SlotState::Writing, generation)).is_ok()
}

/// The image is another than was to be written: it waits for its own turn.
pub(super) fn leave(word: &impl Word, generation: Generation) {
    let writing = pack(SlotState::Writing, generation);
    let _ = word.change(writing, pack(SlotState::Sealed, generation));
}

/// Says that the image that was being written is safe elsewhere. Says whether it was still there.
pub(super) fn make_durable(word: &impl Word, generation: Generation) -> bool {
    let writing = pack(SlotState::Writing, generation);
    word.change(writing, pack(SlotState::Durable, generation)).is_ok()
}

/// Makes the claimed slot a whole image. Says whether it was still ours.
pub(super) fn seal(word: &impl Word, generation: Generation) -> bool {
    let filling = pack(SlotState::Filling, generation);
    word.change(filling, pack(SlotState::Sealed, generation)).is_ok()
}

/// Gives a claimed slot back, if it is still ours: the agent may have taken it and given it away.
pub(super) fn give_up(word: &impl Word, generation: Generation) {
    let _ = word.change(pack(SlotState::Filling, generation), EMPTY);
}

/// Gives up what was passing through a window: it stays taken until its reader has noticed, and lets go.
pub(super) fn give_over(word: &impl Word, generation: Generation) {
    let _ = word.change(
        pack(SlotState::Filling, generation),
        pack(SlotState::Writing, generation),
    );
}

/// Makes a slot empty, whatever it was.
pub(super) fn take_back(word: &impl Word) {
    word.replace(EMPTY);
}

/// What is left in a slot whose agent is gone, and mostly its rank with it: an image that was sealed stays, whether it was
/// being written or not; everything else is worth nothing.
pub(super) fn inherit(word: &impl Word) {
    loop {
        let is = word.now();
        let to = match unpack(is) {
            (SlotState::Empty | SlotState::Sealed | SlotState::Durable, _) => return,
            (SlotState::Writing, generation) => pack(SlotState::Sealed, generation),
            _ => EMPTY,
        };
        // Its rank may be alive for a moment yet, and seal.
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

    impl Word for Model {
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

    /// A slot and its image, which is one number: the generation that wrote it.
    #[derive(Default)]
    struct Slot {
        word: Model,
        image: Model,
    }

    impl Slot {
        /// A rank's fill: claims, copies, seals. Says whether there is an image.
        fn fill(&self, generation: u64) -> bool {
            if claim(&self.word, SlotState::Filling, Generation(generation)).is_err() {
                return false;
            }
            self.image.store(generation, Ordering::Relaxed);
            seal(&self.word, Generation(generation))
        }

        /// What the agent reads of a sealed slot: who sealed it, and the image.
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
                thread::spawn(move || match seal(&slot.word, Generation(1)) {
                    true => true,
                    false => {
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
