//! State directory of the controller. Only its user may access it; wider modes of an existing directory are restricted.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rankguard_journal::JOURNAL_FILE;

use crate::error::ControllerError;

const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Sticky bit: several users may write to the directory.
const SHARED: u32 = 0o1000;

/// Creates the directory if it does not exist, and restricts it and its journal to their user: the journal contains the
/// environment of jobs.
pub(crate) fn prepare_state_dir(dir: &Path) -> Result<(), ControllerError> {
    let failed = |what| {
        move |source| ControllerError::StateDir {
            what,
            path: dir.to_owned(),
            source,
        }
    };
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(DIR_MODE);
    builder.create(dir).map_err(failed("create"))?;
    let found = fs::metadata(dir).map_err(failed("read the mode of"))?;
    if found.mode() & SHARED != 0 {
        return Err(ControllerError::SharedDir { path: dir.to_owned() });
    }
    restrict(dir, found.mode(), DIR_MODE).map_err(failed("restrict"))?;
    let journal = dir.join(JOURNAL_FILE);
    if let Ok(found) = fs::metadata(&journal) {
        restrict(&journal, found.mode(), FILE_MODE).map_err(|source| ControllerError::StateDir {
            what: "restrict",
            path: journal,
            source,
        })?;
    }
    Ok(())
}

/// Removes the permissions of others; permissions that the owner lacks are not added.
fn restrict(path: &Path, mode: u32, most: u32) -> std::io::Result<()> {
    if mode & 0o777 & !most == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").mode() & 0o7777
    }

    #[test]
    fn rg_13_a_directory_and_a_journal_that_others_could_read_are_restricted() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("state");
        fs::create_dir(&state).expect("room");
        fs::write(state.join(JOURNAL_FILE), "").expect("room");
        fs::set_permissions(&state, Permissions::from_mode(0o755)).expect("ours");
        fs::set_permissions(state.join(JOURNAL_FILE), Permissions::from_mode(0o644)).expect("ours");
        prepare_state_dir(&state).expect("ours");
        assert_eq!((mode(&state), mode(&state.join(JOURNAL_FILE))), (0o700, 0o600));
        prepare_state_dir(&dir.path().join("new/deeper")).expect("ours");
        assert_eq!(mode(&dir.path().join("new/deeper")), 0o700);
    }

    #[test]
    fn a_directory_that_several_users_write_to_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).expect("ours");
        let error = prepare_state_dir(dir.path()).expect_err("shared").to_string();
        assert!(error.contains("a directory of its own"), "{error}");
        assert_eq!(mode(dir.path()), 0o1777);
    }
}
