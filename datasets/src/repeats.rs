//! Rows of a file that are the same as an earlier one, found when all of them were seen.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use crate::digested::{Digested, digest};

type Digests = HashSet<u64, BuildHasherDefault<Digested>>;

/// Shares into which digests are dealt.
const SHARES: usize = 1 << 8;
/// How many rows of a file are remembered.
const REMEMBERED: usize = 20_000_000;

/// The rows of a file, as digests, and where each stands.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    digests: Vec<u64>,
    /// From which row on lines are those that follow this one: nearly every line is a row.
    lines: Vec<(usize, u64)>,
}

impl Repeats {
    /// One more row.
    pub(crate) fn add(&mut self, row: &[u8], line: u64) {
        if self.digests.len() < REMEMBERED {
            self.stands(line);
            self.digests.push(digest(row));
        }
    }

    /// The next row stands in this line.
    fn stands(&mut self, line: u64) {
        let row = self.digests.len();
        let follows = self.lines.last().map(|(first, at)| at + (row - first) as u64);
        if follows != Some(line) {
            self.lines.push((row, line));
        }
    }

    /// The rows of the part that follows.
    pub(crate) fn join(&mut self, mut part: Self) {
        let before = self.digests.len();
        part.digests.truncate(REMEMBERED - before);
        self.digests.append(&mut part.digests);
        let lines = part.lines.into_iter().map(|(row, line)| (before + row, line));
        self.lines.extend(lines);
    }

    /// The lines of rows that are the same as an earlier one, in order.
    pub(crate) fn lines(&self) -> Vec<u64> {
        let twice = self.twice();
        if twice.is_empty() {
            return Vec::new();
        }
        let mut seen = Digests::default();
        let rows = self.digests.iter().enumerate();
        let again = rows.filter(|(_, digest)| twice.contains(*digest) && !seen.insert(**digest));
        again.map(|(row, _)| self.line(row)).collect()
    }

    fn line(&self, row: usize) -> u64 {
        let behind = self.lines.partition_point(|(first, _)| *first <= row);
        let (first, line) = self.lines[behind - 1];
        line + (row - first) as u64
    }

    /// Digests that there are more than once. They are dealt into shares, so that those of one, and the table of what was
    /// seen among them, stay in the processor's cache.
    fn twice(&self) -> Digests {
        // By bits of which a table takes neither its places nor its marks.
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
        let (mut seen, mut twice) = (Digests::default(), Digests::default());
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
            let mut repeats = Repeats::default();
            rows.iter().for_each(|(row, line)| repeats.add(row.as_bytes(), *line));
            repeats
        };
        let mut all = of(&[("a", 2), ("b", 3), ("a", 5)]);
        all.join(of(&[("c", 6), ("b", 7), ("c", 8), ("a", 10)]));
        assert_eq!(all.lines(), [5, 7, 8, 10]);
        assert!(of(&[("a", 1), ("b", 2)]).lines().is_empty());
    }
}
