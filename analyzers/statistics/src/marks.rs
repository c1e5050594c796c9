//! Bit sets over blocks of values: a predicate is evaluated for a whole block without branches, and the indexes that
//! match are iterated.

/// Number of values in a block.
pub(crate) const TOGETHER: usize = u64::BITS as usize;

/// Bit of each index.
const BITS: [u64; TOGETHER] = {
    let mut bits = [1; TOGETHER];
    let mut at = 1;
    while at < TOGETHER {
        bits[at] = bits[at - 1] << 1;
        at += 1;
    }
    bits
};

/// Iterator over the matching indexes in ascending order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchBits(u64);

impl MatchBits {
    /// Collects the answers for at most [`TOGETHER`] values.
    pub(crate) fn of(answers: impl Iterator<Item = bool>) -> Self {
        // A table lookup is faster than a shift for each value.
        let marks = BITS.iter().zip(answers).map(|(bit, is)| if is { *bit } else { 0 });
        Self(marks.fold(0, |all, mark| all | mark))
    }

    /// Returns the indexes that differ from their predecessor. `last` carries the answer of the last value of the
    /// previous block, and is updated to that of this block.
    pub(crate) fn changes(self, last: &mut bool) -> Self {
        let before = self.0 << 1 | u64::from(*last);
        *last = self.0 >> (TOGETHER - 1) != 0;
        Self(self.0 ^ before)
    }
}

impl Iterator for MatchBits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let next = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_those_that_have_it_come_in_order() {
        let places = |answers: &[bool]| MatchBits::of(answers.iter().copied()).collect::<Vec<_>>();
        assert_eq!(places(&[false, true, true, false, true]), [1, 2, 4]);
        assert_eq!(places(&[true; TOGETHER]), (0..TOGETHER).collect::<Vec<_>>());
        assert_eq!(places(&[]), [0; 0]);
    }
}
