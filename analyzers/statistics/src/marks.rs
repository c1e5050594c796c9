//! Which of some values have something that nobody can guess: all are asked, several at a time, and those that have it named.

/// Values that are asked together.
pub(crate) const TOGETHER: usize = u64::BITS as usize;

/// The bit of each.
const BITS: [u64; TOGETHER] = {
    let mut bits = [1; TOGETHER];
    let mut at = 1;
    while at < TOGETHER {
        bits[at] = bits[at - 1] << 1;
        at += 1;
    }
    bits
};

/// The places of those that have it, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks(u64);

impl Marks {
    /// Of what no more values than are asked together answered.
    pub(crate) fn of(answers: impl Iterator<Item = bool>) -> Self {
        // Bits out of a table, and none where the answer is no: to shift each to its place is slower.
        let marks = BITS.iter().zip(answers).map(|(bit, is)| if is { *bit } else { 0 });
        Self(marks.fold(0, |all, mark| all | mark))
    }

    /// The places of those that differ from the one before them, and of the first that does not belong to these if the last of
    /// these has it; `last` is whether the one before all these has it, and then whether the last has.
    pub(crate) fn changes(self, last: &mut bool) -> Self {
        let before = self.0 << 1 | u64::from(*last);
        *last = self.0 >> (TOGETHER - 1) != 0;
        Self(self.0 ^ before)
    }
}

impl Iterator for Marks {
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
        let places = |answers: &[bool]| Marks::of(answers.iter().copied()).collect::<Vec<_>>();
        assert_eq!(places(&[false, true, true, false, true]), [1, 2, 4]);
        assert_eq!(places(&[true; TOGETHER]), (0..TOGETHER).collect::<Vec<_>>());
        assert_eq!(places(&[]), [0; 0]);
    }
}
