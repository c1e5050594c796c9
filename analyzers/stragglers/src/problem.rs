//! What was wrong with the input: where, in which field, what to do. A problem never stops the rest.

use serde::Serialize;

/// Problems kept word for word; the rest is counted.
const KEPT: usize = 40;

/// One thing wrong with the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// File and row, such as `trace.csv line 17`.
    pub place: String,
    /// Column or key; empty where the whole row or file is meant.
    pub field: String,
    /// What is wrong, and what to do about it.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.field.as_str() {
            "" => write!(out, "{}: {}", self.place, self.what),
            field => write!(out, "{}, {field}: {}", self.place, self.what),
        }
    }
}

/// Problems in the order they were met: the first ones kept, all counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    kept: Vec<Problem>,
    /// How many there were in all.
    pub count: u64,
}

impl Problems {
    /// Adds one; the words are only made while there is room.
    pub(crate) fn add(&mut self, make: impl FnOnce() -> Problem) {
        self.count += 1;
        if self.kept.len() < KEPT {
            self.kept.push(make());
        }
    }

    /// Adds one that concerns a whole file or job.
    pub(crate) fn note(&mut self, place: &str, what: String) {
        self.add(|| Problem {
            place: place.to_owned(),
            field: String::new(),
            what,
        });
    }

    /// Takes over what another reader found.
    pub(crate) fn extend(&mut self, other: &Problems) {
        self.count += other.count;
        let room = KEPT.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.iter().take(room).cloned());
    }

    /// Those kept word for word.
    pub fn kept(&self) -> &[Problem] {
        &self.kept
    }

    /// One line a kept problem, and one for those that are only counted.
    pub fn lines(&self) -> Vec<String> {
        let more = self.count - self.kept.len() as u64;
        let rest = (more > 0).then(|| format!("{more} more problems are counted and not shown"));
        self.kept.iter().map(Problem::to_string).chain(rest).collect()
    }
}
