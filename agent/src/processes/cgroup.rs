//! Control groups (version 2) of ranks, where the agent may create them: the kernel then ends a whole generation at
//! once.
//!
//! The groups have no controllers; they only group processes. In a hybrid hierarchy version 2 is mounted beside
//! version 1, at `/sys/fs/cgroup/unified`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rankguard_model::{Generation, JobId};
use rustix::process::{Pid, Signal, kill_process};

/// Pause between two checks of a group that is being ended.
const PAUSE: Duration = Duration::from_millis(2);

/// Prefix of the name of an agent's group.
const BASE_PREFIX: &str = "rankguard-";

/// Attempts to create a group while others are removed.
const CREATE_TRIES: u32 = 8;

fn is_base(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(BASE_PREFIX))
}

/// Control group below which an agent places ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupBase(PathBuf);

impl CgroupBase {
    /// Finds the path below the agent's own group and checks that it is usable; the error is the reason for which
    /// ranks get no group. The group itself is created with the first rank, so that an agent without ranks leaves
    /// none.
    pub(crate) fn find(id: &str) -> Result<Self, String> {
        let own = own_cgroup().ok_or("no cgroup v2 hierarchy is mounted")?;
        let path = own.join(format!("{BASE_PREFIX}{id}"));
        let made = fs::create_dir(&path).or_else(|problem| match problem.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(problem),
        });
        made.map_err(|problem| format!("cannot create {}: {problem}", path.display()))?;
        let base = Self(path);
        // Creation may be permitted where moving a process is not.
        let checked = base.check();
        base.remove();
        checked.map(|()| base)
    }

    fn check(&self) -> Result<(), String> {
        let procs = self.0.join("cgroup.procs");
        let opened = fs::OpenOptions::new().write(true).open(&procs);
        opened
            .map(drop)
            .map_err(|problem| format!("cannot write {}: {problem}", procs.display()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the group of a part of a generation, by its number from 0; it need not exist.
    pub(crate) fn part(&self, job: &JobId, generation: Generation, part: usize) -> ProcessCgroup {
        let digest = blake3::hash(job.as_str().as_bytes()).to_hex();
        let digest: String = digest.chars().take(16).collect();
        let name = match part {
            0 => format!("{digest}-g{generation}"),
            _ => format!("{digest}-g{generation}-{part}"),
        };
        ProcessCgroup(self.0.join(name))
    }

    /// Ends all processes in the group that an earlier agent of the same state directory used.
    pub(crate) fn end_left(path: &Path, id: &str, limit: Duration) -> BTreeSet<u32> {
        // That agent wrote the path; a group with another name must not be ended.
        let is_ours = path
            .file_name()
            .is_some_and(|name| *name == *format!("{BASE_PREFIX}{id}"));
        if !is_ours || !path.join("cgroup.procs").exists() {
            return BTreeSet::new();
        }
        let group = ProcessCgroup(path.to_owned());
        let ended = group.end(limit);
        group.remove();
        ended
    }

    /// Removes the group and all empty groups below it.
    pub(crate) fn remove(&self) {
        ProcessCgroup(self.0.clone()).remove();
    }
}

/// Group of processes that end together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessCgroup(PathBuf);

impl ProcessCgroup {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a group below this one.
    pub(crate) fn below(&self, name: &str) -> Self {
        Self(self.0.join(name))
    }

    pub(crate) fn create(&self) -> io::Result<()> {
        let mut tries = 0;
        loop {
            match fs::create_dir_all(&self.0) {
                // A supervisor that ended may have removed a parent group meanwhile.
                Err(problem) if problem.kind() == io::ErrorKind::NotFound && tries < CREATE_TRIES => tries += 1,
                result => return result,
            }
        }
    }

    /// Ends all processes of the group and of those below it, and returns their ids. Waits until the kernel reports
    /// the group as empty, at most `limit`.
    pub(crate) fn end(&self, limit: Duration) -> BTreeSet<u32> {
        let until = Instant::now() + limit;
        let mut ended = BTreeSet::new();
        if !self.0.join("cgroup.procs").exists() {
            return ended;
        }
        loop {
            let members = self.members();
            ended.extend(members.iter().copied());
            if fs::write(self.0.join("cgroup.kill"), "1").is_err() {
                // Kernels before 5.14 have no `cgroup.kill`. A frozen process starts no other, and dies of SIGKILL.
                let _ = fs::write(self.0.join("cgroup.freeze"), "1");
                let members = self.members();
                for pid in members
                    .iter()
                    .filter_map(|pid| i32::try_from(*pid).ok())
                    .filter_map(Pid::from_raw)
                {
                    let _ = kill_process(pid, Signal::KILL);
                }
                ended.extend(members);
                let _ = fs::write(self.0.join("cgroup.freeze"), "0");
            }
            if !self.is_populated() || Instant::now() >= until {
                return ended;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn is_populated(&self) -> bool {
        let events = fs::read_to_string(self.0.join("cgroup.events")).unwrap_or_default();
        events.lines().any(|line| line.trim() == "populated 1")
    }

    fn members(&self) -> BTreeSet<u32> {
        let text = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let mut all: BTreeSet<u32> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        for child in children(&self.0) {
            all.extend(Self(child).members());
        }
        // Processes of another PID namespace are listed as 0.
        all.remove(&0);
        all
    }

    /// Removes the group, and its empty parents up to the agent's group.
    pub(crate) fn remove_with_parents(&self) {
        self.remove();
        for above in self.0.ancestors().skip(1).take(2) {
            let _ = fs::remove_dir(above);
            if is_base(above) {
                break;
            }
        }
    }

    /// Removes the group and those below it; a group with processes remains.
    pub(crate) fn remove(&self) {
        for child in children(&self.0) {
            Self(child).remove();
        }
        let _ = fs::remove_dir(&self.0);
    }
}

fn children(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Returns the folder of this process's own group in the version 2 hierarchy.
/// Moves a process into the group of this process.
pub(crate) fn enter_own_cgroup(pid: u32) -> io::Result<()> {
    let own = own_cgroup().ok_or(io::ErrorKind::NotFound)?;
    fs::write(own.join("cgroup.procs"), pid.to_string())
}

fn own_cgroup() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    own_cgroup_in(&groups, &mounts)
}

fn own_cgroup_in(groups: &str, mounts: &str) -> Option<PathBuf> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut fields = left.split(' ').skip(3);
        let root = fields.next()?;
        let point = fields.next()?;
        right.starts_with("cgroup2 ").then_some((root, point))
    })?;
    // Relative to the root of the mounted part of the hierarchy.
    let below = match mount.0 {
        "/" => own,
        root => own.strip_prefix(root)?,
    };
    Some(Path::new(mount.1).join(below.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_in_every_layout() {
        let unified = "34 24 0:29 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let hybrid =
            "33 24 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n35 33 0:30 / /sys/fs/cgroup/unified rw - cgroup2 c rw\n";
        let part = "34 24 0:29 /pod/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let find = |groups, mounts| own_cgroup_in(groups, mounts).map(|path| path.display().to_string());
        let agent = "12:cpu:/x\n0::/system.slice/a.service\n";
        assert_eq!(
            find(agent, unified).as_deref(),
            Some("/sys/fs/cgroup/system.slice/a.service")
        );
        assert_eq!(find("0::/\n", hybrid).as_deref(), Some("/sys/fs/cgroup/unified/"));
        assert_eq!(find("0::/pod/x/y\n", part).as_deref(), Some("/sys/fs/cgroup/y"));
        assert_eq!(find("0::/other\n", part), None);
        assert_eq!(find("12:cpu:/x\n", unified), None);
    }

    #[test]
    fn a_path_of_another_directory_is_not_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let none = BTreeSet::new();
        assert_eq!(CgroupBase::end_left(folder.path(), "abc", Duration::ZERO), none);
    }
}
