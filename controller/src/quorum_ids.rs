//! Ids of torchft quorums that no earlier controller start has used.
//!
//! [`QUORUM_IDS_FILE`] in the state directory holds the first id that was not reserved. Ids are reserved in blocks, and a
//! block is on disk before its first id is used, so a controller that is killed skips the rest of its block.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Name of the file in the state directory: a decimal number and a line end.
pub(crate) const QUORUM_IDS_FILE: &str = "torchft.quorum-ids";
/// Ids that one write reserves.
const BLOCK: i64 = 1_000;

/// Reservation of quorum ids.
#[derive(Debug)]
pub(crate) struct QuorumIds {
    path: PathBuf,
    /// First id that is not reserved.
    reserved: i64,
    is_restart: bool,
}

impl QuorumIds {
    /// Reads the reservation of earlier starts. A file without a number is an error: ids could be used again.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(QUORUM_IDS_FILE);
        let (reserved, is_restart) = match fs::read_to_string(&path) {
            Ok(text) => {
                let number = text.trim().parse::<i64>().ok().filter(|number| *number > 0);
                let invalid = || io::Error::new(io::ErrorKind::InvalidData, "it does not hold a quorum id");
                (number.ok_or_else(invalid)?, true)
            }
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => (1, false),
            Err(problem) => return Err(problem),
        };
        Ok(Self {
            path,
            reserved,
            is_restart,
        })
    }

    /// Returns the first id of this start.
    pub(crate) fn first(&self) -> i64 {
        self.reserved
    }

    /// Returns true if an earlier start used ids.
    pub(crate) fn is_restart(&self) -> bool {
        self.is_restart
    }

    /// Reserves the id, which may then be used.
    pub(crate) fn reserve(&mut self, id: i64) -> io::Result<()> {
        if id < self.reserved {
            return Ok(());
        }
        let reserved = id.saturating_add(BLOCK);
        let temp = self.path.with_extension("part");
        let mut file = File::create(&temp)?;
        writeln!(file, "{reserved}")?;
        file.sync_all()?;
        fs::rename(&temp, &self.path)?;
        if let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        self.reserved = reserved;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_is_used_by_two_starts() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut used = 0;
        for start in 0..3 {
            let mut ids = QuorumIds::open(dir.path()).expect("readable");
            assert_eq!(ids.is_restart(), start > 0);
            assert!(ids.first() > used, "{} after {used}", ids.first());
            for id in ids.first()..ids.first() + 2_500 {
                ids.reserve(id).expect("writable");
                used = id;
            }
        }
    }

    #[test]
    fn a_file_without_a_number_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for text in ["", "soon", "-4", "0"] {
            fs::write(dir.path().join(QUORUM_IDS_FILE), text).expect("writable");
            let error = QuorumIds::open(dir.path()).expect_err(text);
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
