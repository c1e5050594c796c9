//! State word of a slot: state and generation change together, in one atomic operation.

use std::fmt;

use rankguard_model::Generation;

/// Life cycle state of a slot. Heading `Life of a slot` of [`crate::arena`] lists the transitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotState {
    /// The slot is free.
    Empty,
    /// A rank is copying.
    Filling,
    /// A whole image with its description.
    Sealed,
    /// An image that the agent restored for the rank.
    Restored,
    /// A whole image that the agent is writing: it is neither removed nor changed meanwhile.
    Writing,
    /// A whole image that is also stored elsewhere: readable, and the rank may overwrite it.
    Durable,
    /// An invalid code: the header was corrupted.
    Broken,
}

impl SlotState {
    /// True if the slot holds a whole image with its description.
    pub fn is_image(self) -> bool {
        matches!(self, Self::Sealed | Self::Writing | Self::Durable)
    }
}

impl fmt::Display for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Empty => "empty",
            Self::Filling => "filling",
            Self::Sealed => "sealed",
            Self::Restored => "restored",
            Self::Writing => "writing",
            Self::Durable => "durable",
            Self::Broken => "broken",
        })
    }
}

/// The word of an empty slot.
pub(super) const EMPTY: u64 = 0;

/// Highest generation that fits in the word; a job would need ten million restarts a second for two centuries.
pub(super) const MAX_GENERATION: u64 = (1 << 56) - 1;

pub(super) fn pack(state: SlotState, generation: Generation) -> u64 {
    let code = match state {
        SlotState::Empty => 0,
        SlotState::Filling => 1,
        SlotState::Sealed => 2,
        SlotState::Restored => 3,
        SlotState::Writing => 4,
        SlotState::Durable => 5,
        SlotState::Broken => 0xff,
    };
    generation.0 << 8 | code
}

pub(super) fn unpack(word: u64) -> (SlotState, Generation) {
    let state = match word & 0xff {
        0 => SlotState::Empty,
        1 => SlotState::Filling,
        2 => SlotState::Sealed,
        3 => SlotState::Restored,
        4 => SlotState::Writing,
        5 => SlotState::Durable,
        _ => SlotState::Broken,
    };
    (state, Generation(word >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_keeps_state_and_generation() {
        for state in [
            SlotState::Filling,
            SlotState::Sealed,
            SlotState::Restored,
            SlotState::Writing,
            SlotState::Durable,
        ] {
            for generation in [Generation(0), Generation(7), Generation(MAX_GENERATION)] {
                assert_eq!(unpack(pack(state, generation)), (state, generation));
            }
        }
        assert_eq!(unpack(EMPTY), (SlotState::Empty, Generation(0)));
        assert_eq!(unpack(0x77).0, SlotState::Broken);
    }
}
