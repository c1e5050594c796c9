//! Rows of a file that are the same as an earlier one, found when all of them were seen.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::num::NonZero;
use std::thread;

use crate::digested::{Digested, digest};

/// How many rows of a file are remembered.
const REMEMBERED: usize = 20_000_000;

/// The rows of a file, as digests, and where each stands.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    digests: Vec<u64>,
    lines: Vec<u64>,
}

impl Repeats {
    /// One more row.
    pub(crate) fn add(&mut self, row: &[u8], line: u64) {
        if self.digests.len() < REMEMBERED {
            self.digests.push(digest(row));
            self.lines.push(line);
        }
    }

    /// The rows of the part that follows.
    pub(crate) fn join(&mut self, mut part: Self) {
        part.digests.truncate(REMEMBERED - self.digests.len());
        self.digests.append(&mut part.digests);
        part.lines.truncate(REMEMBERED - self.lines.len());
        self.lines.append(&mut part.lines);
    }

    /// The lines of rows that are the same as an earlier one, in order.
    pub(crate) fn lines(&self) -> Vec<u64> {
        let twice = self.twice();
        if twice.is_empty() {
            return Vec::new();
        }
        let mut seen: HashSet<u64, BuildHasherDefault<Digested>> = HashSet::default();
        let rows = self.digests.iter().zip(&self.lines);
        let again = rows.filter(|(digest, _)| twice.contains(*digest) && !seen.insert(**digest));
        again.map(|(_, line)| *line).collect()
    }

    /// Digests that there are more than once: sorted, equal ones stand together. Each core sorts its share.
    fn twice(&self) -> HashSet<u64, BuildHasherDefault<Digested>> {
        let shares = thread::available_parallelism().map_or(1, NonZero::get).min(16) as u64;
        let share = |which: u64| {
            let mine = self.digests.iter().filter(|digest| **digest % shares == which);
            let mut sorted: Vec<u64> = mine.copied().collect();
            sorted.sort_unstable();
            let pairs = sorted.windows(2).filter(|pair| pair[0] == pair[1]);
            pairs.map(|pair| pair[0]).collect::<Vec<u64>>()
        };
        thread::scope(|scope| {
            let rest: Vec<_> = (1..shares).map(|which| scope.spawn(move || share(which))).collect();
            let mut twice = share(0);
            // A share whose thread ended otherwise has no repeats to tell.
            rest.into_iter()
                .flat_map(|share| share.join())
                .for_each(|found| twice.extend(found));
            twice.into_iter().collect()
        })
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
        all.join(of(&[("c", 6), ("b", 7), ("a", 9)]));
        assert_eq!(all.lines(), [5, 7, 9]);
        assert!(of(&[("a", 1), ("b", 2)]).lines().is_empty());
    }
}
