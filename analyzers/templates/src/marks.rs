//! Sets of indexes into the list of streams or of runs of a profile.

use serde::{Deserialize, Serialize};

/// Set of small numbers as a bitmap; serialised as inclusive ranges in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<(u32, u32)>", try_from = "Vec<(u32, u32)>")]
pub(crate) struct NumberSet {
    /// Bits of the numbers, 64 a word. There are no trailing zero words, so that equal sets compare equal.
    words: Vec<u64>,
}

/// Exclusive bound of the numbers in a file, above the limits of streams and runs. It bounds the memory of a set.
const HIGHEST: u32 = 1 << 16;

impl NumberSet {
    /// Creates a set of one number.
    pub(crate) fn one(number: u32) -> Self {
        let mut marks = Self::default();
        marks.add(number);
        marks
    }

    pub(crate) fn add(&mut self, number: u32) {
        let word = number as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (number % 64);
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.words
            .get(number as usize / 64)
            .is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let bits = self.words.len() as u32 * 64;
        (0..bits).filter(|number| self.has(*number))
    }

    /// Adds all numbers of another set.
    pub(crate) fn unite(&mut self, other: &Self) {
        if other.words.len() > self.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }

    /// Returns the set with each number replaced by `numbers[number]`; numbers beyond the end of the list are dropped.
    pub(crate) fn renumbered(&self, numbers: &[u32]) -> Self {
        let mut marks = Self::default();
        for number in self.iter() {
            if let Some(new) = numbers.get(number as usize) {
                marks.add(*new);
            }
        }
        marks
    }

    /// Returns the highest number plus one; 0 for an empty set.
    pub(crate) fn end(&self) -> usize {
        self.iter().last().map_or(0, |last| last as usize + 1)
    }
}

impl From<NumberSet> for Vec<(u32, u32)> {
    fn from(marks: NumberSet) -> Self {
        let mut ranges: Self = Vec::new();
        for number in marks.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        ranges
    }
}

impl TryFrom<Vec<(u32, u32)>> for NumberSet {
    type Error = String;

    /// Returns an error for ranges that are out of order, overlap or reach [`HIGHEST`].
    fn try_from(ranges: Vec<(u32, u32)>) -> Result<Self, Self::Error> {
        let mut marks = Self::default();
        let mut next = 0;
        for (first, last) in ranges {
            if first < next || last < first || last >= HIGHEST {
                return Err(format!("range {first} to {last} is out of order or above {HIGHEST}"));
            }
            next = last + 1;
            (first..=last).for_each(|number| marks.add(number));
        }
        Ok(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::NumberSet;

    #[test]
    fn a_set_survives_being_written_as_ranges() {
        let mut marks = NumberSet::default();
        [3, 4, 5, 64, 200].into_iter().for_each(|n| marks.add(n));
        let ranges = Vec::from(marks.clone());
        assert_eq!(ranges, [(3, 5), (64, 64), (200, 200)]);
        assert_eq!(NumberSet::try_from(ranges), Ok(marks));
    }

    #[test]
    fn hostile_ranges_are_refused() {
        assert!(NumberSet::try_from(vec![(0, u32::MAX)]).is_err());
        assert!(NumberSet::try_from(vec![(5, 4)]).is_err());
        assert!(NumberSet::try_from(vec![(3, 5), (5, 6)]).is_err());
    }
}
