//! Ranks that use a failing file system. Without this, an unused disk would be blamed for every later failure.
//!
//! A search runs only when a file system fails, on a thread with a short deadline: a list of mappings can block on a
//! process that is stuck in this very file system. A result is reused for a few seconds, however often a disk fails.
//!
//! There are three results: the ranks that use it; none of the ranks here; or unknown (another user's processes,
//! programs that work in containers, a rank that has just ended), which adds no field. Files that a job will open later
//! are known only if its command, its environment or its checkpoint store names them.

mod process;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rankguard_model::{Classification, LaunchOrder, RankRef};

use crate::roster::RankRoster;
use crate::stacks::ChildProcesses;
use process::IncompleteSearch;
pub(crate) use table::{MountEntry, MountTable, unescape};

/// Time limit of a search. One of ordinary ranks takes some milliseconds.
const DEADLINE: Duration = Duration::from_millis(300);
/// Time for which a result is reused.
const FRESH: Duration = Duration::from_secs(10);
/// Most results that are retained.
const KEPT: usize = 64;
/// Most words of a line that are tried as a disk name.
const WORDS: usize = 48;
/// Time for which an ended rank makes a result unknown: it may have ended because of the failure, and its process is
/// gone.
const JUST_ENDED: Duration = Duration::from_secs(10);

/// Failing file system, by one of its parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailingStorage {
    /// File system that holds this path.
    Place(String),
    /// Disk, by the kernel's name.
    Disk(String),
    /// File server, by host name.
    Server(String),
}

/// Finder of the ranks that use a file system. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct MountUsers(Arc<MountUsersShared>);

#[derive(Debug)]
struct MountUsersShared {
    proc_root: PathBuf,
    sysfs_root: PathBuf,
    roster: RankRoster,
    known: Mutex<BTreeMap<FailingStorage, (Instant, MountUse)>>,
    /// True while a search runs, so that a stuck one is not followed by another.
    looking: AtomicBool,
}

/// Result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct MountUse {
    mount: Option<MountEntry>,
    /// Ranks as `job/rank`, or `none`.
    by: Option<String>,
}

impl MountUsers {
    pub(crate) fn new(proc_root: &Path, sysfs_root: &Path, roster: &RankRoster) -> Self {
        Self(Arc::new(MountUsersShared {
            proc_root: proc_root.to_owned(),
            sysfs_root: sysfs_root.to_owned(),
            roster: roster.clone(),
            known: Mutex::default(),
            looking: AtomicBool::new(false),
        }))
    }

    /// Adds mount, device and users of the file system to a mark, as far as known.
    pub(crate) fn annotate_mark(&self, failing: FailingStorage, mark: &mut Classification) {
        let used = self.of(failing);
        let (place, device) = used.mount.map(|mount| (mount.place, mount.source)).unzip();
        for (name, value) in [("mount", place), ("device", device), ("used_by", used.by)] {
            if let Some(value) = value {
                // Fields that the line itself gave are not overwritten.
                mark.fields.fill(name, value);
            }
        }
    }

    /// Returns the disk that a line of the kernel names.
    pub(crate) fn disk_in(&self, text: &str) -> Option<String> {
        let blocks = self.0.sysfs_root.join("class/block");
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_'));
        let mut words = words.filter(|word| !word.is_empty()).take(WORDS);
        words.find(|word| blocks.join(word).exists()).map(str::to_owned)
    }

    fn of(&self, failing: FailingStorage) -> MountUse {
        let now = Instant::now();
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (at, _)| now.saturating_duration_since(*at) < FRESH);
        if let Some((_, used)) = known.get(&failing) {
            return used.clone();
        }
        drop(known);
        let used = self.look(&failing);
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < KEPT {
            known.insert(failing, (now, used.clone()));
        }
        used
    }

    fn look(&self, failing: &FailingStorage) -> MountUse {
        if self.0.looking.swap(true, Ordering::AcqRel) {
            return MountUse::default();
        }
        let (say, answer) = sync_channel(1);
        let inner = self.0.clone();
        let failing = failing.clone();
        let started = std::thread::Builder::new().name("uses".to_owned()).spawn(move || {
            let used = inner.used(&failing);
            inner.looking.store(false, Ordering::Release);
            let _ = say.send(used);
        });
        if started.is_err() {
            self.0.looking.store(false, Ordering::Release);
        }
        answer.recv_timeout(DEADLINE).unwrap_or_default()
    }
}

impl MountUsersShared {
    fn used(&self, failing: &FailingStorage) -> MountUse {
        let Some(host) = MountTable::read(&self.proc_root, "self") else {
            return MountUse::default();
        };
        let target = self.target(failing, &host);
        let mount = host.iter().find(|mount| target.is(mount)).cloned();
        let look = MountSearch {
            inner: self,
            host: &host,
            target: &target,
            children: ChildProcesses::new(&self.proc_root),
        };
        let mut users = Vec::new();
        let mut ranks = 0;
        let mut unknown = false;
        let mut seen = mount.is_some();
        for (rank, pid, launch) in self.roster.using(JUST_ENDED) {
            ranks += 1;
            match look.rank(pid, &launch, &mut seen) {
                Ok(true) => users.push(user(&rank)),
                Ok(false) => {}
                Err(IncompleteSearch) => unknown = true,
            }
        }
        // A disk that is not mounted anywhere visible is used in a way that is not searched.
        let by = match (users.is_empty(), unknown || !seen) {
            _ if ranks == 0 => None,
            (true, true) => None,
            (true, false) => Some("none".to_owned()),
            (false, unknown) => {
                users.extend(unknown.then(|| "?".to_owned()));
                Some(users.join(", "))
            }
        };
        MountUse { mount, by }
    }

    fn target(&self, failing: &FailingStorage, host: &MountTable) -> TargetMounts {
        let mut target = TargetMounts::default();
        match failing {
            FailingStorage::Place(path) => target.devs.extend(host.holding(path).map(|mount| mount.dev.clone())),
            FailingStorage::Disk(name) => disk(&self.sysfs_root.join("class/block"), name, 0, &mut target),
            FailingStorage::Server(name) => target.server = Some(name.clone()),
        }
        target
    }
}

fn user(rank: &RankRef) -> String {
    format!("{}/{}", rank.job, rank.rank)
}

/// Greatest depth of stacked volumes.
const DEPTH: usize = 4;

/// Collects a disk, its partitions, and the volumes on them.
fn disk(blocks: &Path, name: &str, depth: usize, target: &mut TargetMounts) {
    target.sources.insert(format!("/dev/{name}"));
    let folder = blocks.join(name);
    let dev = std::fs::read_to_string(folder.join("dev")).unwrap_or_default();
    if !dev.trim().is_empty() {
        target.devs.insert(dev.trim().to_owned());
    }
    let below = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let parts = below(&folder).filter(|entry| entry.path().join("partition").exists());
    let holders = below(&folder.join("holders"));
    // A controller is not a disk itself: `nvme4` has `nvme4n1`.
    let spaces = below(blocks).filter(|entry| {
        let space = entry.file_name();
        let space = space.to_string_lossy();
        !folder.exists() && space.strip_prefix(name).is_some_and(|rest| rest.starts_with('n'))
    });
    if depth < DEPTH {
        for entry in parts.chain(holders).chain(spaces) {
            disk(blocks, &entry.file_name().to_string_lossy(), depth + 1, target);
        }
    }
}

/// Identifiers of the mounts of a file system.
#[derive(Debug, Default)]
struct TargetMounts {
    devs: BTreeSet<String>,
    sources: BTreeSet<String>,
    server: Option<String>,
}

impl TargetMounts {
    fn is(&self, mount: &MountEntry) -> bool {
        let serves = |server: &String| {
            let after = mount.source.strip_prefix(server.as_str());
            let named = after.is_some_and(|rest| rest.starts_with(':') || rest.starts_with('@'));
            named || mount.option("addr") == Some(server)
        };
        let device = self.devs.contains(&mount.dev) || self.sources.contains(&mount.source);
        device || self.server.as_ref().is_some_and(serves)
    }
}

/// Search through the ranks of this node.
struct MountSearch<'a> {
    inner: &'a MountUsersShared,
    host: &'a MountTable,
    target: &'a TargetMounts,
    children: ChildProcesses<'a>,
}

impl MountSearch<'_> {
    /// True if a rank uses it; sets `seen` if the rank's mount table contains it.
    fn rank(&self, pid: Option<u32>, launch: &LaunchOrder, seen: &mut bool) -> Result<bool, IncompleteSearch> {
        let own = pid.map(|pid| self.table(pid)).transpose();
        let table = own
            .as_ref()
            .ok()
            .and_then(Option::as_ref)
            .map(MountTableRef::table)
            .unwrap_or(self.host);
        *seen |= table.iter().any(|mount| self.target.is(mount));
        if paths(launch).any(|path| self.lies_on(table, path)) {
            return Ok(true);
        }
        let pid = pid.ok_or(IncompleteSearch)?;
        own?;
        for pid in process::family(&self.inner.proc_root, &self.children, pid)? {
            let folder = self.inner.proc_root.join(pid.to_string());
            let own = self.table(pid)?;
            if process::any_path(&folder, |path| self.lies_on(own.table(), path))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the mount table of a process: mostly that of the agent.
    fn table(&self, pid: u32) -> Result<MountTableRef<'_>, IncompleteSearch> {
        let namespace = |process: &str| std::fs::read_link(self.inner.proc_root.join(process).join("ns/mnt")).ok();
        let of = pid.to_string();
        if namespace(&of).is_some_and(|of| namespace("self") == Some(of)) {
            return Ok(MountTableRef::Agents(self.host));
        }
        MountTable::read(&self.inner.proc_root, &of)
            .map(MountTableRef::Other)
            .ok_or(IncompleteSearch)
    }

    fn lies_on(&self, table: &MountTable, path: &str) -> bool {
        let Some(mount) = table.holding(path) else { return false };
        let below = || mount.layers().into_iter().filter_map(|layer| self.host.holding(layer));
        self.target.is(mount) || below().any(|mount| self.target.is(mount))
    }
}

enum MountTableRef<'a> {
    Agents(&'a MountTable),
    Other(MountTable),
}

impl MountTableRef<'_> {
    fn table(&self) -> &MountTable {
        match self {
            Self::Agents(table) => table,
            Self::Other(table) => table,
        }
    }
}

/// Returns the absolute paths in the launch order of a rank.
fn paths(launch: &LaunchOrder) -> impl Iterator<Item = &str> {
    let words = launch.command.iter().chain(launch.env.values());
    let words = words.flat_map(|word| word.split(['=', ':', ',', ' ', '"', '\'']));
    let folders = launch
        .workdir
        .iter()
        .chain([&launch.checkpoint_store])
        .map(String::as_str);
    words.chain(folders).filter(|word| word.starts_with('/'))
}

#[cfg(test)]
mod tests;
