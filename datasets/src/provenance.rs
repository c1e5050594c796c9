//! Where rows come from: files, the rule of their clock, how many there were in all.

use std::fmt;

use serde::Serialize;

/// How times of a data set are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ClockRule(pub String);

impl fmt::Display for ClockRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How many there were in all, failed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Population {
    /// How many.
    pub count: u64,
    /// Of what.
    pub unit: &'static str,
    /// Who says so.
    pub from: &'static str,
}

/// One file and what was read of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FileRead {
    /// Relative to what was opened.
    pub path: String,
    /// What it is to the source; empty where it was not read.
    pub role: &'static str,
    /// Of the file as it lies there.
    pub sha256: String,
    /// Its length as it lies there.
    pub bytes: u64,
    /// Rows looked at, headers not counted.
    pub rows_read: u64,
    /// Rows that could not be used; the problems say why.
    pub rows_skipped: u64,
}
