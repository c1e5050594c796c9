//! Seeded choices: the same seed strikes in the same order after the same pauses.

/// SplitMix64, which is enough to scatter faults (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
pub(super) struct Dice {
    state: u64,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number of `low..=high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        low + (mixed ^ (mixed >> 31)) % (high - low + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_choices_within_bounds() {
        let choices = |seed| {
            let mut dice = Dice::new(seed);
            (0..100).map(|_| dice.between(3, 9)).collect::<Vec<_>>()
        };
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
        assert!(choices(7).iter().all(|choice| (3..=9).contains(choice)));
    }
}
