//! Identification of the process at the other end of a rank's connection, by its kernel credentials (RG-13).
//!
//! A connection may act for a rank if its process is the rank's own or one that the rank started: a descendant, or a
//! member of its process group, which it leads. A process that lost its ancestors (a daemon, a program in a container
//! that another service started) is attributed by its environment, but only if it belongs to no other rank. Every peer
//! must run as the user of the rank.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rankguard_model::{RankRef, RunningRank};

use crate::settings::RankPeerPolicy;

/// Maximum ancestors that are followed; deeper trees are cut off.
const DEPTH_MAX: usize = 256;
/// Maximum bytes of an environment that are read.
const ENVIRONMENT_MAX: u64 = 1 << 20;

/// Process at the other end of a connection, as it was when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerProcess {
    pid: u32,
    uid: u32,
}

/// Check of peers against the ranks that run here.
#[derive(Debug, Clone)]
pub(super) struct PeerCheck {
    proc_root: PathBuf,
    peers: RankPeerPolicy,
}

impl PeerProcess {
    /// Reads the peer's credentials from the kernel. The process id is 0 if the process is in a namespace that is not
    /// visible here.
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("a dozen bytes");
        // SAFETY: the descriptor is open for as long as `stream` is borrowed, and the kernel writes at most `length`
        // bytes into `peer`, which is as long and for which all bytes are valid. rustix represents the process id as a
        // non-zero number, but it may be zero here.
        let asked = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut length,
            )
        };
        if asked != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            pid: u32::try_from(peer.pid).unwrap_or(0),
            uid: peer.uid,
        })
    }
}

impl PeerProcess {
    /// Returns its process id; 0 if the process is in a namespace that is not visible here.
    pub(super) fn pid(self) -> u32 {
        self.pid
    }

    /// Returns true if this is the process of the rank itself, and not one that it started.
    pub(super) fn is_process_of(self, rank: &RankRef, running: &[RunningRank]) -> bool {
        let mut running = running.iter();
        running.any(|running| running.rank == *rank && running.pid == self.pid)
    }
}

impl PeerCheck {
    pub(super) fn new(peers: RankPeerPolicy) -> Self {
        Self {
            // The kernel's process ids refer to this process's own /proc, even where collectors read another tree.
            proc_root: PathBuf::from("/proc"),
            peers,
        }
    }

    /// Returns the reason for which a peer may not act for a rank; `None` if it may.
    pub(super) fn objection(&self, peer: PeerProcess, rank: &RankRef, running: &[RunningRank]) -> Option<String> {
        // The agent itself needs no check.
        if peer.pid == std::process::id() {
            return None;
        }
        let own = rustix::process::getuid().as_raw();
        let pid = running
            .iter()
            .find(|running| running.rank == *rank)
            .map(|running| running.pid);
        let user = pid.and_then(|pid| self.user_of(pid)).unwrap_or(own);
        if ![user, own, 0].contains(&peer.uid) {
            let uid = peer.uid;
            return Some(format!(
                "process {} runs as user {uid}, and the rank runs as user {user}",
                peer.pid
            ));
        }
        if self.peers == RankPeerPolicy::SameUser {
            return None;
        }
        match self.rank_of(peer.pid, running) {
            Some(found) if found == rank => None,
            Some(found) => Some(format!(
                "process {} belongs to rank {} of job {} (generation {})",
                peer.pid, found.rank, found.job, found.generation
            )),
            None if self.environment_names(peer.pid, rank) => None,
            None => Some(format!(
                "process {} was not started by the rank; set `agent.rank_peers = \"same-user\"` where ranks are started by \
                 another service",
                peer.pid
            )),
        }
    }

    /// Returns the rank of the nearest ancestor, or of the group's leader.
    fn rank_of<'a>(&self, pid: u32, running: &'a [RunningRank]) -> Option<&'a RankRef> {
        let started = |pid: u32| {
            running
                .iter()
                .find(|running| running.pid == pid)
                .map(|running| &running.rank)
        };
        let mut next = pid;
        let mut group = None;
        for _ in 0..DEPTH_MAX {
            if let Some(rank) = started(next) {
                return Some(rank);
            }
            let status = ProcessStatus::read(&self.proc_root, next)?;
            group.get_or_insert(status.group);
            if status.parent <= 1 {
                break;
            }
            next = status.parent;
        }
        group.and_then(started)
    }

    fn user_of(&self, pid: u32) -> Option<u32> {
        let status = fs::read_to_string(self.proc_root.join(pid.to_string()).join("status")).ok()?;
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        users.split_whitespace().nth(1)?.parse().ok()
    }

    /// Returns true if the initial environment of a process is that of the rank.
    fn environment_names(&self, pid: u32, rank: &RankRef) -> bool {
        use std::io::Read as _;
        let path = self.proc_root.join(pid.to_string()).join("environ");
        let mut bytes = Vec::new();
        let read = fs::File::open(path).and_then(|file| file.take(ENVIRONMENT_MAX).read_to_end(&mut bytes));
        let wanted = [
            format!("RANKGUARD_JOB={}", rank.job),
            format!("RANKGUARD_GENERATION={}", rank.generation),
            format!("RANK={}", rank.rank),
        ];
        let has = |variable: &String| bytes.split(|byte| *byte == 0).any(|one| one == variable.as_bytes());
        read.is_ok() && wanted.iter().all(has)
    }
}

/// Parent and group of a process.
struct ProcessStatus {
    parent: u32,
    group: u32,
}

impl ProcessStatus {
    /// Reads `/proc/PID/stat`; the process's name may hold any text, so fields are counted from its last parenthesis.
    fn read(proc_root: &Path, pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(proc_root.join(pid.to_string()).join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace().skip(1);
        Some(Self {
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rankguard_model::{Generation, JobId, Rank};

    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn process(&self, pid: u32, parent: u32, group: u32, environ: &str) {
            let folder = self.0.path().join(pid.to_string());
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("stat"), format!("{pid} (a) b ) S {parent} {group} 1 0")).unwrap();
            fs::write(
                folder.join("status"),
                format!("Name:\tx\nUid:\t{0}\t{0}\t{0}\t{0}\n", own()),
            )
            .unwrap();
            fs::write(folder.join("environ"), environ.replace(' ', "\0")).unwrap();
        }
    }

    fn own() -> u32 {
        rustix::process::getuid().as_raw()
    }

    fn rank(number: u32) -> RankRef {
        RankRef {
            job: JobId::from("llm"),
            generation: Generation(3),
            rank: Rank(number),
        }
    }

    #[test]
    fn a_rank_is_spoken_for_by_its_own_processes() {
        let tree = Tree(tempfile::tempdir().unwrap());
        // Ranks 0 and 1, a worker of rank 0 in a session of its own, an orphan in the group of rank 1, and unrelated
        // processes.
        tree.process(4_000_100, 1, 4_000_100, "");
        tree.process(4_000_200, 1, 4_000_200, "");
        tree.process(
            4_000_101,
            4_000_100,
            4_000_101,
            "RANK=1 RANKGUARD_JOB=llm RANKGUARD_GENERATION=3",
        );
        tree.process(4_000_201, 1, 4_000_200, "");
        tree.process(4_000_300, 1, 4_000_300, "PATH=/bin");
        tree.process(
            4_000_301,
            1,
            4_000_301,
            "RANK=1 RANKGUARD_JOB=llm RANKGUARD_GENERATION=3",
        );
        tree.process(
            4_000_302,
            1,
            4_000_302,
            "RANK=1 RANKGUARD_JOB=llm RANKGUARD_GENERATION=2",
        );
        let running = [(0, 4_000_100), (1, 4_000_200)].map(|(number, pid)| RunningRank {
            rank: rank(number),
            pid,
            step: None,
        });
        let mut check = PeerCheck::new(RankPeerPolicy::OwnProcesses);
        check.proc_root = tree.0.path().to_owned();
        let objection = |check: &PeerCheck, pid: u32, number: u32| {
            check.objection(PeerProcess { pid, uid: own() }, &rank(number), &running)
        };
        let may = |pid: u32, number: u32| objection(&check, pid, number).is_none();
        assert!(may(4_000_100, 0) && may(4_000_101, 0) && may(4_000_200, 1) && may(4_000_201, 1));
        assert!(!may(4_000_100, 1), "one rank for another");
        assert!(
            !may(4_000_101, 1),
            "a worker of one rank with the environment of another"
        );
        assert!(!may(4_000_300, 0) && !may(4_000_300, 1) && !may(0, 0), "strangers");
        assert!(
            may(4_000_301, 1) && !may(4_000_301, 0),
            "it lost its ancestors and kept its environment"
        );
        assert!(!may(4_000_302, 1), "of an older generation");
        let told = objection(&check, 4_000_200, 0).unwrap();
        assert!(told.contains("belongs to rank 1 of job llm"), "{told}");
        check.peers = RankPeerPolicy::SameUser;
        assert!(objection(&check, 4_000_300, 0).is_none());
        let stranger = PeerProcess {
            pid: 4_000_100,
            uid: own() + 4_711,
        };
        assert!(check.objection(stranger, &rank(0), &running).is_some(), "another user");
    }
}
