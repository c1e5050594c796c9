//! Problems of the input: position, field and remedy. A problem never stops the analysis.

use serde::Serialize;

/// Maximum number of problems that are retained; further ones are counted.
const KEPT: usize = 40;

/// Problem of the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputProblem {
    /// File and row, such as `trace.csv line 17`.
    pub place: String,
    /// Column or key; empty for the whole row or file.
    pub field: String,
    /// Description and remedy.
    pub what: String,
}

impl std::fmt::Display for InputProblem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.field.as_str() {
            "" => write!(out, "{}: {}", self.place, self.what),
            field => write!(out, "{}, {field}: {}", self.place, self.what),
        }
    }
}

/// Problems in the order found: the first ones are retained, all are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProblemList {
    kept: Vec<InputProblem>,
    /// Total number, including those not retained.
    pub count: u64,
}

impl ProblemList {
    /// Adds a problem; `make` is called only while there is room.
    pub(crate) fn add(&mut self, make: impl FnOnce() -> InputProblem) {
        self.count += 1;
        if self.kept.len() < KEPT {
            self.kept.push(make());
        }
    }

    /// Adds a problem of a whole file or job.
    pub(crate) fn note(&mut self, place: &str, what: String) {
        self.add(|| InputProblem {
            place: place.to_owned(),
            field: String::new(),
            what,
        });
    }

    /// Adds the problems of another reader.
    pub(crate) fn extend(&mut self, other: &ProblemList) {
        self.count += other.count;
        let room = KEPT.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.iter().take(room).cloned());
    }

    /// Returns the retained problems.
    pub fn kept(&self) -> &[InputProblem] {
        &self.kept
    }

    /// Returns one line for each retained problem, and one for the number of others.
    pub fn lines(&self) -> Vec<String> {
        let more = self.count - self.kept.len() as u64;
        let rest = (more > 0).then(|| format!("{more} more problems are counted and not shown"));
        self.kept.iter().map(InputProblem::to_string).chain(rest).collect()
    }
}
