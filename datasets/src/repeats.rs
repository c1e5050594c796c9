//! Detection of repeated rows of a file, after all rows were read.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use crate::digested::{DigestHasher, digest};

type DigestSet = HashSet<u64, BuildHasherDefault<DigestHasher>>;

/// Number of partitions of the digests.
const SHARES: usize = 1 << 8;
/// Maximum number of rows of a file that are recorded.
const REMEMBERED: usize = 20_000_000;

/// Rows of a file as digests, with their lines.
#[derive(Debug, Default)]
pub(crate) struct RowDigests {
    digests: Vec<u64>,
    /// Row and line from which on lines are consecutive: nearly every line is a row.
    lines: Vec<(usize, u64)>,
}

impl RowDigests {
    /// Adds a row.
    pub(crate) fn add(&mut self, row: &[u8], line: u64) {
        if self.digests.len() < REMEMBERED {
            self.stands(line);
            self.digests.push(digest(row));
        }
    }

    /// Records the line of the next row.
    fn stands(&mut self, line: u64) {
        let row = self.digests.len();
        let follows = self.lines.last().map(|(first, at)| at + (row - first) as u64);
        if follows != Some(line) {
            self.lines.push((row, line));
        }
    }

    /// Appends the rows of the following part.
    pub(crate) fn join(&mut self, mut part: Self) {
        let before = self.digests.len();
        part.digests.truncate(REMEMBERED - before);
        self.digests.append(&mut part.digests);
        let lines = part.lines.into_iter().map(|(row, line)| (before + row, line));
        self.lines.extend(lines);
    }

    /// Returns the lines of rows that equal an earlier one, in order.
    pub(crate) fn lines(&self) -> Vec<u64> {
        let twice = self.twice();
        if twice.is_empty() {
            return Vec::new();
        }
        let mut seen = DigestSet::default();
        let rows = self.digests.iter().enumerate();
        let again = rows.filter(|(_, digest)| twice.contains(*digest) && !seen.insert(**digest));
        again.map(|(row, _)| self.line(row)).collect()
    }

    fn line(&self, row: usize) -> u64 {
        let behind = self.lines.partition_point(|(first, _)| *first <= row);
        let (first, line) = self.lines[behind - 1];
        line + (row - first) as u64
    }

    /// Returns the digests that occur more than once. They are partitioned, so that each partition and its table fit
    /// the processor's cache.
    fn twice(&self) -> DigestSet {
        // Uses bits that a hash table uses neither for slots nor for tags.
        let share = |digest: &u64| (digest >> 40) as usize % SHARES;
        let mut begins = [0; SHARES + 1];
        self.digests.iter().for_each(|digest| begins[share(digest) + 1] += 1);
        for at in 1..begins.len() {
            begins[at] += begins[at - 1];
        }
        let mut next = begins;
        let mut dealt = vec![0; self.digests.len()];
        for digest in &self.digests {
            let next = &mut next[share(digest)];
            dealt[*next] = *digest;
            *next += 1;
        }
        let mut seen = DigestSet::default();
        let mut twice = DigestSet::default();
        for bounds in begins.windows(2) {
            seen.clear();
            let again = dealt[bounds[0]..bounds[1]]
                .iter()
                .filter(|digest| !seen.insert(**digest));
            twice.extend(again);
        }
        twice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_comes_thrice_repeats_twice_whatever_part_it_is_in() {
        let of = |rows: &[(&str, u64)]| {
            let mut repeats = RowDigests::default();
            rows.iter().for_each(|(row, line)| repeats.add(row.as_bytes(), *line));
            repeats
        };
        let mut all = of(&[("a", 2), ("b", 3), ("a", 5)]);
        all.join(of(&[("c", 6), ("b", 7), ("c", 8), ("a", 10)]));
        assert_eq!(all.lines(), [5, 7, 8, 10]);
        assert!(of(&[("a", 1), ("b", 2)]).lines().is_empty());
    }
}
