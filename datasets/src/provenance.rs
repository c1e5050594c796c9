//! Provenance of a data set: its files, its clock, its population.

use std::fmt;

use serde::Serialize;

/// Description of a data set's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ClockRule(pub String);

impl fmt::Display for ClockRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Total number of nodes or devices, failed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Population {
    pub count: u64,
    /// Unit, such as nodes or GPUs.
    pub unit: &'static str,
    /// Origin of the number.
    pub from: &'static str,
}

/// File and the amount read from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FileRead {
    /// Path relative to the opened one.
    pub path: String,
    /// Role in the source; empty if it was not read.
    pub role: &'static str,
    /// SHA-256 of the stored file.
    pub sha256: String,
    /// Stored length in bytes.
    pub bytes: u64,
    /// Number of rows read, headers excluded.
    pub rows_read: u64,
    /// Number of rows that could not be used; the problems give the reasons.
    pub rows_skipped: u64,
}
