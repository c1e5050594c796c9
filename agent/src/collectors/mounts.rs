//! File systems: mounts that do not answer, and the free space of those that matter.
//!
//! A `statvfs` on a network file system with a dead server does not return, and its thread cannot be ended. Each mount
//! is queried on its own thread and not again before it has answered: a mount that hangs costs one thread, however long
//! it hangs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use crate::mount_users::unescape;

/// Time limit for the answer of a file system. A server that is merely busy answers within a second.
const DEADLINE: Duration = Duration::from_secs(10);
/// Most file systems that are queried.
const MOUNTS: usize = 128;

/// File system types that are backed by another machine or process.
const REMOTE: [&str; 18] = [
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "ocfs2",
    "orangefs",
    "panfs",
    "smb3",
    "virtiofs",
    "wekafs",
];

/// Free space of a file system, as parts of the total, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FreeSpace {
    pub(super) blocks: f64,
    /// Free inodes; 1 for file systems that do not count them.
    pub(super) inodes: f64,
    pub(super) bytes: u64,
}

/// Result for one file system.
#[derive(Debug, PartialEq)]
pub(super) enum MountReport {
    /// No answer for this long; reported once.
    Hangs(PathBuf, Duration),
    /// Answer after a reported hang.
    Answers(PathBuf, Duration),
    /// Free space of a file system that answered.
    Has(PathBuf, FreeSpace),
}

type SpaceQuery = Arc<dyn Fn(&Path) -> io::Result<FreeSpace> + Send + Sync>;

/// Pending query of one file system.
struct PendingQuery {
    since: Instant,
    answer: Receiver<io::Result<FreeSpace>>,
    told: bool,
}

/// Pending queries by mount point.
pub(super) struct MountQueries {
    ask: SpaceQuery,
    open: BTreeMap<PathBuf, PendingQuery>,
}

impl Default for MountQueries {
    fn default() -> Self {
        Self::asking(Arc::new(room))
    }
}

impl MountQueries {
    fn asking(ask: SpaceQuery) -> Self {
        Self {
            ask,
            open: BTreeMap::new(),
        }
    }

    /// Receives answers and queries again the mounts that have answered. The answer to a query is taken at the next
    /// poll.
    pub(super) fn look(&mut self, paths: &[PathBuf], now: Instant) -> Vec<MountReport> {
        let mut told = Vec::new();
        self.open.retain(|path, asked| {
            let lasts = now.saturating_duration_since(asked.since);
            match asked.answer.try_recv() {
                Ok(answer) => {
                    if asked.told {
                        told.push(MountReport::Answers(path.clone(), lasts));
                    }
                    if let Ok(room) = answer {
                        told.push(MountReport::Has(path.clone(), room));
                    }
                    false
                }
                Err(TryRecvError::Disconnected) => false,
                Err(TryRecvError::Empty) => {
                    if lasts >= DEADLINE && !std::mem::replace(&mut asked.told, true) {
                        told.push(MountReport::Hangs(path.clone(), lasts));
                    }
                    true
                }
            }
        });
        for path in paths.iter().take(MOUNTS) {
            if !self.open.contains_key(path)
                && let Some(asked) = self.question(path, now)
            {
                self.open.insert(path.clone(), asked);
            }
        }
        told
    }

    fn question(&self, path: &Path, now: Instant) -> Option<PendingQuery> {
        let (say, answer) = sync_channel(1);
        let ask = self.ask.clone();
        let path = path.to_owned();
        let started = std::thread::Builder::new()
            .name("mount".to_owned())
            .spawn(move || drop(say.send(ask(&path))));
        // If no thread can be started, the next poll tries again.
        started.ok().map(|_| PendingQuery {
            since: now,
            answer,
            told: false,
        })
    }
}

fn room(path: &Path) -> io::Result<FreeSpace> {
    let told = rustix::fs::statvfs(path)?;
    let part = |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
    Ok(FreeSpace {
        blocks: part(told.f_bavail, told.f_blocks),
        inodes: part(told.f_favail, told.f_files),
        bytes: told.f_bavail.saturating_mul(told.f_frsize),
    })
}

/// Returns the mount points of remote file systems from the text of `/proc/self/mounts`.
pub(super) fn remote(text: &str) -> Vec<PathBuf> {
    let found = text.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let place = words.next()?;
        let kind = words.next()?;
        // Automounters are left out: a query would mount a file system that is not in use.
        let is_remote = REMOTE.contains(&kind) || kind.starts_with("fuse.") && kind != "fuse.lxcfs";
        is_remote.then(|| PathBuf::from(unescape(place)))
    });
    let mut found: Vec<PathBuf> = found.collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc::Sender;
    use std::sync::{Mutex, mpsc};

    use super::*;

    const FULL: FreeSpace = FreeSpace {
        blocks: 0.5,
        inodes: 0.25,
        bytes: 7,
    };

    /// Returns mounts that answer once per release, with the list of queries.
    fn held() -> (MountQueries, Sender<()>, Arc<Mutex<Vec<PathBuf>>>) {
        let (release, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let ask = move |path: &Path| {
            log.lock().unwrap().push(path.to_owned());
            if path == Path::new("/nfs") {
                let _ = wait.lock().unwrap().recv();
            }
            Ok(FULL)
        };
        (MountQueries::asking(Arc::new(ask)), release, asked)
    }

    /// Polls until something is reported.
    fn until(mounts: &mut MountQueries, paths: &[PathBuf], now: Instant) -> Vec<MountReport> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let told = mounts.look(paths, now);
            if !told.is_empty() || Instant::now() > deadline {
                return told;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_that_hangs_is_told_once_is_asked_once_and_holds_up_nobody() {
        let (mut mounts, release, asked) = held();
        let start = Instant::now();
        let nfs = PathBuf::from("/nfs");
        let disk = PathBuf::from("/disk");
        let paths = [nfs.clone(), disk.clone()];
        mounts.look(&paths, start);
        assert_eq!(until(&mut mounts, &paths[..1], start), [MountReport::Has(disk, FULL)]);
        let late = start + Duration::from_secs(11);
        let told = until(&mut mounts, &[], late);
        assert_eq!(told, [MountReport::Hangs(nfs.clone(), Duration::from_secs(11))]);
        for second in 12..100 {
            let told = mounts.look(&paths[..1], start + Duration::from_secs(second));
            assert_eq!(told, []);
        }
        release.send(()).unwrap();
        let back = start + Duration::from_secs(100);
        let told = until(&mut mounts, &[], back);
        let lasted = Duration::from_secs(100);
        assert_eq!(
            told,
            [
                MountReport::Answers(nfs.clone(), lasted),
                MountReport::Has(nfs.clone(), FULL)
            ]
        );
        // A mount that answered was queried; before that its thread may not have run.
        let questions = asked.lock().unwrap().iter().filter(|path| **path == nfs).count();
        assert_eq!(questions, 1);
    }

    #[test]
    fn this_file_system_answers_and_a_missing_folder_has_no_room() {
        let mut mounts = MountQueries::default();
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let paths = [here.clone(), PathBuf::from("/nowhere/at/all")];
        mounts.look(&paths, Instant::now());
        let told = until(&mut mounts, &[], Instant::now());
        let [MountReport::Has(path, room)] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(path, &here);
        assert!((0.0..=1.0).contains(&room.blocks) && (0.0..=1.0).contains(&room.inodes));
    }

    #[test]
    fn what_lies_on_other_machines_is_found() {
        let text = "/dev/sda1 / ext4 rw 0 0\nserver:/x /mnt/my\\040data nfs4 rw 0 0\nfs /scratch lustre rw 0 0\n\
                    lxcfs /p fuse.lxcfs rw 0 0\nstore /data fuse rw 0 0\nbucket /s3 fuse.s3fs rw 0 0\n\
                    auto /net autofs rw 0 0\nserver:/x /b\\9 nfs\n\ngarbage\n";
        let wanted = ["/b\\9", "/data", "/mnt/my data", "/s3", "/scratch"].map(PathBuf::from);
        assert_eq!(remote(text), wanted);
    }
}
