//! Path of the rank socket.
//!
//! The socket is in the state directory, unless its path is too long for a socket: then in a folder with a random name
//! that only this agent can have created, so that agents in containers that share a temporary folder do not collide.
//! The state directory records the folder; the next agent of the directory removes one that a killed agent left.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Maximum bytes of the socket's path; the kernel allows 108.
const PATH_BYTES_MAX: usize = 100;
const SOCKET: &str = "ranks.sock";
/// File with the path of the folder, if there is one.
const RECORD: &str = "ranks.sock.folder";
/// Prefix of the folder's name; 32 random hex digits follow.
const PREFIX: &str = "rankguard-";

/// Path of the rank socket, with the files that are removed after it.
#[derive(Debug)]
pub(super) struct SocketPath {
    pub(super) path: PathBuf,
    /// Separate folder of the socket, and the file that records it.
    folder: Option<(PathBuf, PathBuf)>,
}

impl SocketPath {
    /// Finds a path, and removes the leftovers of an earlier agent.
    pub(super) fn find(state_dir: &Path) -> io::Result<Self> {
        Self::find_beside(state_dir, &base())
    }

    fn find_beside(state_dir: &Path, base: &Path) -> io::Result<Self> {
        let record = state_dir.join(RECORD);
        if let Ok(left) = fs::read_to_string(&record) {
            remove_left(Path::new(left.trim_end()));
            let _ = fs::remove_file(&record);
        }
        let path = state_dir.join(SOCKET);
        // A directory has one agent: an earlier owner of the name has ended.
        let _ = fs::remove_file(&path);
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path, folder: None });
        }
        let random =
            rankguard_identity::secret::<16>().ok_or_else(|| io::Error::other("the system gives no random numbers"))?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let folder = base.join(format!("{PREFIX}{name}"));
        // Written first: a kill between the two leaves a record without a folder, and not a folder without a record.
        fs::write(&record, format!("{}\n", folder.display()))?;
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self {
            path: folder.join(SOCKET),
            folder: Some((folder, record)),
        })
    }

    /// Allows or denies connections of users other than the agent's.
    pub(super) fn allow_users(&self, others: bool) -> io::Result<()> {
        let (socket, folder) = if others { (0o666, 0o711) } else { (0o600, 0o700) };
        if let Some((path, _)) = &self.folder {
            fs::set_permissions(path, Permissions::from_mode(folder))?;
        }
        fs::set_permissions(&self.path, Permissions::from_mode(socket))
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        if let Some((folder, record)) = &self.folder {
            let _ = fs::remove_dir(folder);
            let _ = fs::remove_file(record);
        }
    }
}

/// Returns the user's runtime folder, or the one for temporary files.
fn base() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usable = own.filter(|path| path.is_absolute() && path.is_dir() && path.as_os_str().len() < PATH_BYTES_MAX / 2);
    usable.unwrap_or_else(std::env::temp_dir)
}

/// Removes the folder of an agent that was killed: only a folder of this user with such a name, and only if it holds
/// nothing but the socket, because any process that can write into the state directory could have written the record.
fn remove_left(folder: &Path) {
    let named = folder
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.strip_prefix(PREFIX));
    let random = named.is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let own = fs::symlink_metadata(folder)
        .is_ok_and(|about| about.is_dir() && about.uid() == rustix::process::getuid().as_raw());
    if random && own {
        let _ = fs::remove_file(folder.join(SOCKET));
        let _ = fs::remove_dir(folder);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_long_path_gets_a_folder_of_its_own_that_a_kill_does_not_leave_for_ever() {
        let base = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let deep = state.path().join("a".repeat(120));
        fs::create_dir(&deep).unwrap();
        let folders = || fs::read_dir(base.path()).unwrap().count();
        let first = SocketPath::find_beside(&deep, base.path()).unwrap();
        let path = first.path.clone();
        fs::write(&path, "").unwrap();
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        // It is killed, and the next agent starts.
        std::mem::forget(first);
        let second = SocketPath::find_beside(&deep, base.path()).unwrap();
        assert!(second.path != path && !path.exists() && folders() == 1);
        // Another agent that shares the temporary folder has a folder of its own.
        let other = state.path().join("b".repeat(120));
        fs::create_dir(&other).unwrap();
        let third = SocketPath::find_beside(&other, base.path()).unwrap();
        assert!(third.path != second.path && folders() == 2);
        drop((second, third));
        assert_eq!((folders(), fs::read_dir(&deep).unwrap().count()), (0, 0));
    }

    #[test]
    fn a_record_of_somebody_else_removes_nothing() {
        let base = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let foreign = base.path().join("rankguard-precious");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join(SOCKET), "").unwrap();
        fs::write(state.path().join(RECORD), foreign.display().to_string()).unwrap();
        drop(SocketPath::find_beside(state.path(), base.path()).unwrap());
        assert!(foreign.join(SOCKET).exists());
    }
}
