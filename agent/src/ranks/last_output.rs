//! Time of a rank's last output before a signal ended it.
//!
//! A program may print a traceback that it handles, and go on. What it wrote afterwards shows that it did not end of
//! it.

use std::fs;
use std::path::Path;

use rankguard_faults::classes;
use rankguard_model::{Classification, LAST_OUTPUT, OUTPUT_AGE_FIELD, ProcessExit, Role, Timestamp};

use super::environment::RankFiles;
use crate::pending_evidence::mark;

/// Returns a mark with the time from the last output of a rank to its end; `None` if no signal ended it, or if its
/// output is unknown.
pub(super) fn last_output(files: &RankFiles, exit: ProcessExit, ended_at: Timestamp) -> Option<Classification> {
    let ProcessExit::Signal(_) = exit else { return None };
    let outputs = [&files.stdout, &files.stderr];
    let newest = outputs.into_iter().filter_map(|path| written_at(path)).max()?;
    let age = ended_at.since(newest);
    let mut found = mark(classes::NONE, Role::Noise, 0.0, LAST_OUTPUT);
    found.fields = [(OUTPUT_AGE_FIELD, age.as_millis().to_string())].into();
    Some(found)
}

/// Returns the time of the last write to a file; `None` for an empty file, or one that the rank replaced by a link.
fn written_at(path: &Path) -> Option<Timestamp> {
    let found = fs::symlink_metadata(path).ok()?;
    if !found.is_file() || found.len() == 0 {
        return None;
    }
    let since = found.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Timestamp(i64::try_from(since.as_nanos()).ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[test]
    fn the_newest_of_both_streams_counts_and_only_for_a_signal() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let files = RankFiles {
            stdout: dir.path().join("out"),
            stderr: dir.path().join("err"),
            dumps: dir.path().to_owned(),
        };
        let killed = ProcessExit::Signal(9);
        let at = clock::now().after(Duration::from_secs(5));
        assert_eq!(last_output(&files, killed, at), None, "no output");
        fs::write(&files.stdout, "").expect("written");
        fs::write(&files.stderr, "a line\n").expect("written");
        let found = last_output(&files, killed, at).expect("a mark");
        let age = found
            .fields
            .get(OUTPUT_AGE_FIELD)
            .and_then(|age| age.parse::<u64>().ok());
        assert!(age.is_some_and(|age| (4_000..=5_100).contains(&age)), "{age:?}");
        assert_eq!(last_output(&files, ProcessExit::Code(1), at), None);
    }
}
