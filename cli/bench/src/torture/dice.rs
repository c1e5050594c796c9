//! Pseudo-random numbers that are the same for the same seed, on every machine.

/// SplitMix64 with one word of state: sufficient for choosing places, and a case can be repeated from its number alone.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns the generator of case `case` of `kind`. Cases do not depend on earlier ones: a failed case is repeated
    /// by its seed, kind and number.
    pub(crate) fn of(seed: u64, kind: &str, case: u64) -> Self {
        let name = kind
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| mix(hash ^ u64::from(byte)));
        Self(mix(seed) ^ mix(name).rotate_left(17) ^ mix(case.wrapping_add(0x9E37_79B9)).rotate_left(41))
    }

    /// Returns the next word.
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The bias of the remainder is one in 2^40, which does not matter here.
        self.word().checked_rem(end).unwrap_or(0)
    }

    /// Picks an element of `all`, which must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// Returns true or false with equal probability.
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
        let first = |seed, kind, case| SplitMix64::of(seed, kind, case).word();
        assert_eq!(first(1, "bit-flip", 7), first(1, "bit-flip", 7));
        let others = [
            first(2, "bit-flip", 7),
            first(1, "truncation", 7),
            first(1, "bit-flip", 8),
        ];
        assert!(others.iter().all(|word| *word != first(1, "bit-flip", 7)));
    }
}
