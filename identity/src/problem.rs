//! Problems of an identity's files, each with its file and remedy.

use std::fmt;
use std::path::PathBuf;

/// Problem of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityProblem {
    pub file: PathBuf,
    /// Description of the problem, with its remedy.
    pub what: String,
}

impl fmt::Display for IdentityProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

/// All problems of the three files, at least one; one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityProblems(pub Vec<IdentityProblem>);

impl fmt::Display for IdentityProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, problem) in self.0.iter().enumerate() {
            let end = if nth == 0 { "" } else { "\n" };
            write!(f, "{end}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for IdentityProblems {}
