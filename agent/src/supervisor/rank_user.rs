//! User that a rank runs as, looked up in the supervisor: a directory service that hangs must not block the agent.

use std::ffi::{CStr, CString};
use std::io;
use std::ptr;

/// Maximum groups of a user.
const GROUPS_MAX: usize = 65_536;

/// Maximum bytes of one entry of the user database.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// User of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RankUser {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// All groups, `gid` included.
    pub(super) groups: Vec<u32>,
    /// Account; `None` for an id without an entry in the user database.
    pub(super) account: Option<RankAccount>,
}

/// Entry of the user database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RankAccount {
    pub(super) name: String,
    pub(super) home: String,
    pub(super) shell: String,
}

impl RankUser {
    /// Looks a user up by name or id. An id without an entry is a user with a group of the same id.
    pub(super) fn find(name: &str) -> io::Result<Self> {
        if let Some(user) = lookup(&UserQuery::Name(name))? {
            return Ok(user);
        }
        let Ok(uid) = name.parse::<u32>() else {
            let text = format!("there is no user {name:?} on this node");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        // The largest id means "no change" to the kernel.
        if uid == u32::MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name} is no user number"),
            ));
        }
        Ok(lookup(&UserQuery::Number(uid))?.unwrap_or(Self {
            uid,
            gid: uid,
            groups: vec![uid],
            account: None,
        }))
    }
}

/// Checks that a user that ranks are to run as exists on this node, by name or number.
///
/// # Errors
///
/// The user is unknown, or the user database cannot be read.
pub fn check_rank_user(name: &str) -> io::Result<()> {
    RankUser::find(name).map(drop)
}

enum UserQuery<'a> {
    Name(&'a str),
    Number(u32),
}

fn lookup(query: &UserQuery<'_>) -> io::Result<Option<RankUser>> {
    let mut buffer: Vec<libc::c_char> = vec![0; 4096];
    loop {
        // SAFETY: the structure holds integers and pointers only, for which zero is valid.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found: *mut libc::passwd = ptr::null_mut();
        let space = buffer.as_mut_ptr();
        let length = buffer.len();
        let code = match query {
            UserQuery::Name(name) => {
                let name = CString::new(*name).map_err(io::Error::other)?;
                // SAFETY: all pointers are to live values, and the length is that of the buffer.
                unsafe { libc::getpwnam_r(name.as_ptr(), &raw mut entry, space, length, &raw mut found) }
            }
            // SAFETY: as above.
            UserQuery::Number(uid) => unsafe { libc::getpwuid_r(*uid, &raw mut entry, space, length, &raw mut found) },
        };
        match code {
            0 if found.is_null() => return Ok(None),
            0 => return user_of(&entry).map(Some),
            libc::ERANGE if buffer.len() < ENTRY_BYTES_MAX => buffer.resize(buffer.len() * 2, 0),
            // Some systems return these for a user that does not exist.
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            libc::EINTR => {}
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

fn user_of(entry: &libc::passwd) -> io::Result<RankUser> {
    let text = |pointer: *const libc::c_char| {
        if pointer.is_null() {
            return String::new();
        }
        // SAFETY: the C library ends every text of the entry with a zero, within the buffer that still lives.
        let text = unsafe { CStr::from_ptr(pointer) };
        text.to_string_lossy().into_owned()
    };
    Ok(RankUser {
        uid: entry.pw_uid,
        gid: entry.pw_gid,
        groups: groups_of(entry)?,
        account: Some(RankAccount {
            name: text(entry.pw_name),
            home: text(entry.pw_dir),
            shell: text(entry.pw_shell),
        }),
    })
}

fn groups_of(entry: &libc::passwd) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).map_err(io::Error::other)?;
        // SAFETY: the name ends with a zero, and `count` is the size of the array.
        let code = unsafe { libc::getgrouplist(entry.pw_name, entry.pw_gid, groups.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).map_err(io::Error::other)?;
        if code >= 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        if groups.len() >= GROUPS_MAX {
            return Err(io::Error::other("the user is in too many groups"));
        }
        groups.resize(count.max(groups.len() * 2).min(GROUPS_MAX), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let root = RankUser::find("root").expect("every system has it");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(RankUser::find("0").expect("the same"), root);
        let free = RankUser::find("3999999").expect("a number will do");
        assert_eq!(
            (free.uid, free.gid, free.groups.as_slice()),
            (3_999_999, 3_999_999, &[3_999_999][..])
        );
        assert_eq!(free.account, None);
    }

    #[test]
    fn an_unknown_name_is_refused_with_its_name() {
        for name in ["no-such-user-here", "4294967295", "-1", ""] {
            assert!(RankUser::find(name).is_err(), "{name:?}");
        }
        let problem = RankUser::find("no-such-user-here").expect_err("unknown");
        assert!(problem.to_string().contains("no-such-user-here"), "{problem}");
    }
}
