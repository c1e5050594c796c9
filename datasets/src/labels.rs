//! Column of texts with many repetitions: each distinct text once, and a number for every row.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::digested::{DigestHasher, digest};
use crate::packed::PackedTexts;

/// Number of names above which a dictionary must pay off by [`ROWS_A_NAME`].
const MANY_NAMES: usize = 1 << 16;
/// Minimum rows a name of a dictionary with many names.
const ROWS_A_NAME: usize = 4;

/// Name of a row, as a number in half the space of an optional integer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowLabel(u32);

impl RowLabel {
    /// Label of a row without a text.
    const NONE: Self = Self(0);

    fn new(name: u32) -> Self {
        Self(name + 1)
    }

    /// Returns the index of the name; `None` if the row has no text.
    pub fn name(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}

/// Converts to an index at which 0 is a row without a text and names start at 1.
impl From<RowLabel> for usize {
    fn from(label: RowLabel) -> Self {
        label.0 as Self
    }
}

/// Column of texts with many repetitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelColumn {
    /// Distinct texts, in order of first occurrence.
    pub names: Vec<String>,
    /// Label of each row.
    pub of: Vec<RowLabel>,
    /// Number of rows of each text.
    counts: Vec<u64>,
}

impl LabelColumn {
    fn new(names: Vec<String>, of: Vec<RowLabel>) -> Self {
        let mut counts = vec![0; names.len()];
        let named = of.iter().filter_map(|label| label.name());
        named.for_each(|name| counts[name as usize] += 1);
        Self { names, of, counts }
    }

    /// Returns the number of rows of each text, in the order of the names.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the number of rows without a text.
    pub fn without(&self) -> u64 {
        self.of.len() as u64 - self.counts.iter().sum::<u64>()
    }

    /// Returns the text of each row.
    pub fn texts(&self) -> impl Iterator<Item = Option<&str>> {
        self.of
            .iter()
            .map(|label| label.name().map(|name| self.names[name as usize].as_str()))
    }
}

impl From<LabelColumn> for PackedTexts {
    fn from(labels: LabelColumn) -> Self {
        let mut packed = Self::default();
        packed.join(labels.texts());
        packed
    }
}

/// Distinct texts, numbered in order of first occurrence.
#[derive(Debug, Default, Clone)]
struct NameTable {
    texts: PackedTexts,
    /// Number of each name by its digest; a name with a digest in use has the next free digest.
    numbers: HashMap<u64, u32, BuildHasherDefault<DigestHasher>>,
}

impl NameTable {
    fn len(&self) -> usize {
        self.texts.len()
    }

    fn find(&self, mut digest: u64, text: &str) -> Option<u32> {
        loop {
            let number = *self.numbers.get(&digest)?;
            if self.texts.is(number as usize, text) {
                return Some(number);
            }
            digest = digest.wrapping_add(1);
        }
    }

    /// Adds a new name.
    fn add(&mut self, mut digest: u64, text: &str) -> u32 {
        while self.numbers.contains_key(&digest) {
            digest = digest.wrapping_add(1);
        }
        let number = self.len() as u32;
        self.numbers.insert(digest, number);
        self.texts.push(text);
        number
    }
}

/// Labels during loading.
#[derive(Debug, Default)]
pub(crate) struct LabelDictionary {
    /// Earlier names, shared by the dictionaries of [parts](Self::part).
    known: Arc<NameTable>,
    /// Names added since.
    new: NameTable,
    of: Vec<RowLabel>,
    last: Option<u32>,
}

impl LabelDictionary {
    /// Creates a dictionary for the next `rows` rows, to be [joined](Self::join) to this one.
    pub(crate) fn part(&mut self, rows: usize) -> Self {
        if self.new.len() > 0 {
            // Earlier parts were joined and dropped, so this is the only reference and nothing is copied.
            let known = Arc::make_mut(&mut self.known);
            for name in std::mem::take(&mut self.new).texts.texts() {
                let name = name.unwrap_or_default();
                known.add(digest(name.as_bytes()), name);
            }
        }
        Self {
            known: Arc::clone(&self.known),
            of: Vec::with_capacity(rows),
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    pub(crate) fn grow_to(&mut self, rows: usize) {
        self.of.resize(rows, RowLabel::NONE);
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, text: &str) {
        let same = |number: &u32| {
            let (names, at) = self.names_of(*number);
            names.texts.is(at, text)
        };
        let number = self.last.filter(same).unwrap_or_else(|| self.number(text));
        self.last = Some(number);
        self.of.push(RowLabel::new(number));
    }

    /// Returns the names that contain this number, and its index there.
    fn names_of(&self, number: u32) -> (&NameTable, usize) {
        let number = number as usize;
        match number.checked_sub(self.known.len()) {
            None => (&self.known, number),
            Some(new) => (&self.new, new),
        }
    }

    fn number(&mut self, text: &str) -> u32 {
        let digest = digest(text.as_bytes());
        let before = self.known.len() as u32;
        self.known.find(digest, text).unwrap_or_else(|| {
            let new = self.new.find(digest, text);
            before + new.unwrap_or_else(|| self.new.add(digest, text))
        })
    }

    /// Adds the rows of a [part](Self::part), or of a dictionary without earlier names.
    pub(crate) fn join(&mut self, behind: Self) {
        let known = behind.known.len();
        let names = behind.new.texts.texts();
        let numbers: Vec<u32> = names.map(|name| self.number(name.unwrap_or_default())).collect();
        let numbered = |number: u32| match (number as usize).checked_sub(known) {
            None => number,
            Some(new) => numbers[new],
        };
        let here = |label: RowLabel| {
            label
                .name()
                .map_or(RowLabel::NONE, |name| RowLabel::new(numbered(name)))
        };
        self.of.extend(behind.of.into_iter().map(here));
    }

    fn names(&self) -> usize {
        self.known.len() + self.new.len()
    }

    /// Returns true if so many texts differ that a dictionary is larger than the texts.
    pub(crate) fn is_useless(&self) -> bool {
        self.names() > MANY_NAMES && self.names() > self.of.len() / ROWS_A_NAME
    }

    pub(crate) fn into_labels(self) -> LabelColumn {
        let names = self.known.texts.texts().chain(self.new.texts.texts());
        let names = names.map(|name| name.unwrap_or_default().to_owned());
        LabelColumn::new(names.collect(), self.of)
    }
}

impl<'a> FromIterator<Option<&'a str>> for LabelColumn {
    fn from_iter<I: IntoIterator<Item = Option<&'a str>>>(texts: I) -> Self {
        let mut dictionary = LabelDictionary::default();
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
        let labels: LabelColumn = [Some("b"), None, Some("a"), Some("a"), Some("b")].into_iter().collect();
        assert_eq!(labels.names, ["b", "a"]);
        let of: Vec<Option<u32>> = labels.of.iter().map(|label| label.name()).collect();
        assert_eq!(of, [Some(0), None, Some(1), Some(1), Some(0)]);
        assert_eq!((labels.counts(), labels.without()), (&[2, 2][..], 1));
        assert_eq!(labels.texts().flatten().collect::<Vec<_>>(), ["b", "a", "a", "b"]);
    }

    #[test]
    fn what_is_joined_is_what_would_have_been_read_at_once() {
        let mut joined = LabelDictionary::default();
        for rows in ["b a", "c a a d", "d b e", "e a"] {
            // Two concurrent parts share the same names.
            let mut parts = [joined.part(4), joined.part(4)];
            for (text, part) in rows.split(' ').zip([0, 0, 1, 1]) {
                parts[part].push(text);
            }
            parts[0].grow_to(parts[0].len() + 1);
            parts.into_iter().for_each(|part| joined.join(part));
        }
        let rows = "b a - c a - a d d b - e e a -".split(' ');
        let whole: LabelColumn = rows.map(|text| Some(text).filter(|text| *text != "-")).collect();
        assert_eq!(joined.into_labels(), whole);
        assert_eq!((whole.counts(), whole.without()), (&[2, 4, 1, 2, 2][..], 4));
    }

    #[test]
    fn two_names_with_one_digest_are_two() {
        let mut dictionary = LabelDictionary::default();
        dictionary.push("one");
        // Simulates equal digests of "two" and "one".
        let taken = dictionary.new.numbers.remove(&digest(b"one")).expect("it was pushed");
        dictionary.new.numbers.insert(digest(b"two"), taken);
        dictionary.push("two");
        dictionary.push("two");
        assert_eq!(dictionary.into_labels().of, [0, 1, 1].map(RowLabel::new));
    }
}
