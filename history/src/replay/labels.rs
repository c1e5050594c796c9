//! Labels of the lines of a log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of labels of a file.
const LABELS: usize = 50_000_000;

/// Labels by line number from 1. A line without an entry has none.
#[derive(Debug, Clone)]
pub(super) struct LineLabels(Arc<BTreeMap<u64, String>>);

impl LineLabels {
    /// Reads CSV of `NUMBER,LABEL`; a first line without a number is a header.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut labels = BTreeMap::new();
        let wrong =
            |line: usize, what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("line {line}: {what}"));
        for (at, line) in BufReader::new(File::open(path)?).lines().enumerate() {
            let line = line?;
            let Some((number, label)) = line.split_once(',') else {
                return Err(wrong(at + 1, "no comma"));
            };
            match number.trim().parse() {
                Ok(number) if labels.len() < LABELS => drop(labels.insert(number, label.trim().to_owned())),
                Ok(_) => return Err(wrong(at + 1, "too many labels")),
                Err(_) if at == 0 => {}
                Err(_) => return Err(wrong(at + 1, "the first field is not a line number")),
            }
        }
        Ok(Self(Arc::new(labels)))
    }

    /// Returns the largest line number with a label.
    pub(super) fn last_line(&self) -> u64 {
        self.0.keys().next_back().copied().unwrap_or_default()
    }

    pub(super) fn of(&self, line: u64) -> Option<&str> {
        self.0.get(&line).map(String::as_str).filter(|label| *label != "-")
    }
}
