//! Numbers that look random and are the same for the same seed, on every machine.

/// SplitMix64: one word of state, good enough for choosing places, and a case can be made again from its number alone.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The dice of case `case` of the kind called `kind`: cases do not depend on the ones before them, so one that went
    /// wrong is made again by its seed, kind and number.
    pub(crate) fn of(seed: u64, kind: &str, case: u64) -> Self {
        let name = kind
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| mix(hash ^ u64::from(byte)));
        Self(mix(seed) ^ mix(name).rotate_left(17) ^ mix(case.wrapping_add(0x9E37_79B9)).rotate_left(41))
    }

    /// Any word.
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `end`; 0 when that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The bias of the remainder is one in 2^40 here and nobody bets on it.
        self.word().checked_rem(end).unwrap_or(0)
    }

    /// One of `all`, which is not empty.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// Heads or tails.
    pub(crate) fn coin(&mut self) -> bool {
        self.word() & 1 == 1
    }
}

/// Spreads a word's bits over the whole word.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rg_8_a_case_is_the_same_whenever_it_is_made_and_differs_from_its_neighbours() {
        let first = |seed, kind, case| Dice::of(seed, kind, case).word();
        assert_eq!(first(1, "bit-flip", 7), first(1, "bit-flip", 7));
        let others = [
            first(2, "bit-flip", 7),
            first(1, "truncation", 7),
            first(1, "bit-flip", 8),
        ];
        assert!(others.iter().all(|word| *word != first(1, "bit-flip", 7)));
    }
}
