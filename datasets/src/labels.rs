//! A column of texts of which many are equal: each different text once, and a number for every row.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;

use crate::digested::{Digested, digest};

/// A dictionary with more names than this is one only where names are few among the rows.
const MANY_NAMES: usize = 1 << 16;
/// Rows a name, at the least, of a dictionary with many names.
const ROWS_A_NAME: usize = 4;

/// A column of texts of which many are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// The different texts, in the order in which they come first.
    pub names: Vec<String>,
    /// Which of them each row has; none where the row has no text.
    pub of: Vec<Option<u32>>,
}

impl Labels {
    /// How many rows have each text, in the order of the names, and how many have none.
    pub fn counts(&self) -> (Vec<u64>, u64) {
        // Neighbouring rows often have the same text: four sets of counters do not wait for each other.
        let mut counts = [(); 4].map(|()| vec![0_u64; self.names.len() + 1]);
        let place = |label: Option<u32>| label.map_or(0, |label| label as usize + 1);
        let (whole, rest) = self.of.as_chunks::<4>();
        for four in whole {
            for (counts, label) in counts.iter_mut().zip(four) {
                counts[place(*label)] += 1;
            }
        }
        rest.iter().for_each(|label| counts[0][place(*label)] += 1);
        let [first, more @ ..] = &mut counts;
        for more in more {
            first.iter_mut().zip(more).for_each(|(sum, count)| *sum += *count);
        }
        (first.split_off(1), first[0])
    }

    /// The text of each row.
    pub fn texts(&self) -> impl Iterator<Item = Option<&str>> {
        self.of
            .iter()
            .map(|label| label.map(|label| self.names[label as usize].as_str()))
    }
}

/// Labels while they are being read.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    labels: Labels,
    /// The number of each name by the name's digest; of two names with one digest the later has the next free digest.
    numbers: HashMap<u64, u32, BuildHasherDefault<Digested>>,
    last: Option<u32>,
}

impl Dictionary {
    pub(crate) fn len(&self) -> usize {
        self.labels.of.len()
    }

    pub(crate) fn grow_to(&mut self, rows: usize) {
        self.labels.of.resize(rows, None);
    }

    /// One more row.
    pub(crate) fn push(&mut self, text: &str) {
        let same = |number: &u32| self.labels.names[*number as usize] == text;
        let number = self.last.filter(same).unwrap_or_else(|| self.number(text));
        self.last = Some(number);
        self.labels.of.push(Some(number));
    }

    fn number(&mut self, text: &str) -> u32 {
        let names = &mut self.labels.names;
        let mut key = digest(text.as_bytes());
        loop {
            match self.numbers.entry(key) {
                Entry::Occupied(known) if names[*known.get() as usize] == text => return *known.get(),
                Entry::Occupied(_) => key = key.wrapping_add(1),
                Entry::Vacant(free) => {
                    names.push(text.to_owned());
                    return *free.insert(names.len() as u32 - 1);
                }
            }
        }
    }

    /// Adds rows.
    pub(crate) fn join(&mut self, behind: Labels) {
        let numbers: Vec<u32> = behind.names.iter().map(|name| self.number(name)).collect();
        let numbered = behind
            .of
            .into_iter()
            .map(|label| label.map(|label| numbers[label as usize]));
        self.labels.of.extend(numbered);
    }

    /// Whether so many texts differ that a dictionary is larger than the texts themselves.
    pub(crate) fn is_useless(&self) -> bool {
        self.labels.names.len() > MANY_NAMES && self.labels.names.len() > self.labels.of.len() / ROWS_A_NAME
    }

    pub(crate) fn into_labels(self) -> Labels {
        self.labels
    }
}

impl<'a> FromIterator<Option<&'a str>> for Labels {
    fn from_iter<I: IntoIterator<Item = Option<&'a str>>>(texts: I) -> Self {
        let mut dictionary = Dictionary::default();
        for text in texts {
            match text {
                Some(text) => dictionary.push(text),
                None => dictionary.grow_to(dictionary.len() + 1),
            }
        }
        dictionary.into_labels()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_order_in_which_they_come_first() {
        let labels: Labels = [Some("b"), None, Some("a"), Some("a"), Some("b")].into_iter().collect();
        assert_eq!(labels.names, ["b", "a"]);
        assert_eq!(labels.of, [Some(0), None, Some(1), Some(1), Some(0)]);
        assert_eq!(labels.counts(), (vec![2, 2], 1));
        assert_eq!(labels.texts().flatten().collect::<Vec<_>>(), ["b", "a", "a", "b"]);
    }

    #[test]
    fn two_names_with_one_digest_are_two() {
        let mut dictionary = Dictionary::default();
        dictionary.push("one");
        // As if "two" had the digest of "one".
        let taken = dictionary.numbers.remove(&digest(b"one")).expect("it was pushed");
        dictionary.numbers.insert(digest(b"two"), taken);
        dictionary.push("two");
        dictionary.push("two");
        assert_eq!(dictionary.into_labels().of, [Some(0), Some(1), Some(1)]);
    }
}
