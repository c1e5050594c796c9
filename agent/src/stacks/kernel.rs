//! Kernel state of a process: state letter, system call, wait channel, threads in uninterruptible sleep.
//!
//! The system call requires the right to attach to the process (ptrace), the kernel stack `CAP_SYS_ADMIN`; without them
//! these parts are absent. The wait channel requires only the right to read the process, the state letter none.

use std::fmt;
use std::fs;
use std::path::Path;

use super::task::{TaskStat, numbers, read};

/// Most threads that are read.
const THREADS: usize = 4_096;
/// Most blocked threads that are retained.
const BLOCKED: usize = 16;
/// Frames of a kernel stack that are retained, the innermost ones.
const FRAMES: usize = 8;

/// Kernel state of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KernelState {
    /// State letter in `/proc/PID/stat`: R, S, D, T, Z ...; `?` by default.
    pub(crate) state: char,
    /// System call of the main thread; `None` outside of one, or if it cannot be read.
    pub(crate) syscall: Option<String>,
    /// Kernel function in which the main thread waits; `None` if it does not wait, or if it cannot be read.
    pub(crate) wchan: Option<String>,
    /// Threads in uninterruptible sleep, which no signal can end; at most 16.
    pub(crate) blocked: Vec<BlockedThread>,
}

impl Default for KernelState {
    fn default() -> Self {
        Self {
            state: '?',
            syscall: None,
            wchan: None,
            blocked: Vec::new(),
        }
    }
}

/// Thread in uninterruptible sleep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockedThread {
    pub(crate) thread: u32,
    pub(crate) name: String,
    /// Kernel stack, innermost function first, at most 8; only the wait channel if the stack cannot be read.
    pub(crate) stack: Vec<String>,
}

impl fmt::Display for BlockedThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} ({})", self.thread, self.name)?;
        if !self.stack.is_empty() {
            write!(f, " in {}", self.stack.join(" < "))?;
        }
        Ok(())
    }
}

impl fmt::Display for KernelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            'R' => "running",
            'S' | 'I' => "sleeping",
            'D' => "blocked",
            'T' | 't' => "stopped",
            'Z' | 'X' => "dead",
            _ => "in a state that is not known",
        })?;
        match (&self.syscall, &self.wchan) {
            (Some(call), Some(place)) => write!(f, " in {call} ({place})"),
            (Some(one), None) | (None, Some(one)) => write!(f, " in {one}"),
            (None, None) => Ok(()),
        }
    }
}

impl KernelState {
    /// Reads the state of a process with its blocked threads; `None` if the process is gone.
    pub(crate) fn of(proc_root: &Path, pid: u32) -> Option<Self> {
        let folder = proc_root.join(pid.to_string());
        let mut own = Self::of_task(&folder)?;
        let mut threads = numbers(&folder.join("task"));
        threads.truncate(THREADS);
        for thread in threads {
            let folder = folder.join("task").join(thread.to_string());
            let Some(stat) = TaskStat::read(&folder).filter(|stat| stat.state == 'D') else {
                continue;
            };
            if own.blocked.len() < BLOCKED {
                let stack = kernel_stack(&folder);
                let name = stat.name;
                own.blocked.push(BlockedThread { thread, name, stack });
            }
        }
        Some(own)
    }

    /// Reads the state of one thread from its procfs folder, or of the main thread from that of the process. Blocked
    /// threads are not listed.
    pub(crate) fn of_task(folder: &Path) -> Option<Self> {
        Some(Self {
            state: TaskStat::read(folder)?.state,
            syscall: syscall(&read(&folder.join("syscall"))),
            wchan: wchan(folder),
            blocked: Vec::new(),
        })
    }
}

fn wchan(folder: &Path) -> Option<String> {
    let text = read(&folder.join("wchan"));
    // "0": the thread does not wait, or this user may not read it.
    Some(text.trim().to_owned()).filter(|place| !place.is_empty() && place != "0")
}

/// Reads a kernel stack, innermost function first, from lines such as `[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]`.
/// Without a stack only the wait channel is returned.
fn kernel_stack(thread: &Path) -> Vec<String> {
    let text = read(&thread.join("stack"));
    let frames = text.lines().filter_map(|line| {
        let line = line.split_once("] ").map_or(line, |(_, rest)| rest).trim();
        let frame = line.split('+').next().unwrap_or(line);
        (!frame.is_empty()).then(|| frame.to_owned())
    });
    let frames: Vec<String> = frames.take(FRAMES).collect();
    if frames.is_empty() {
        wchan(thread).into_iter().collect()
    } else {
        frames
    }
}

/// Returns the path of the file on which a thread's system call works; `None` for other calls, and for descriptors
/// without a path. The path is read from the link in `fd`, which queries no file system, so that a hung one does not
/// block the reader.
pub(crate) fn file_waited_for(folder: &Path) -> Option<String> {
    let text = read(&folder.join("syscall"));
    let name = syscall(&text)?;
    let first = text.split_ascii_whitespace().nth(1)?.strip_prefix("0x")?;
    let descriptor = u32::from_str_radix(first, 16)
        .ok()
        .filter(|_| OF_A_FILE.contains(&name.as_str()))?;
    let place = fs::read_link(folder.join("fd").join(descriptor.to_string())).ok()?;
    place.to_str().filter(|place| place.starts_with('/')).map(str::to_owned)
}

/// System calls among [`NAMES`] with an open file as first argument. Calls on sockets and directories are left out.
const OF_A_FILE: [&str; 9] = [
    "fcntl",
    "fdatasync",
    "flock",
    "fsync",
    "ioctl",
    "pread64",
    "pwrite64",
    "read",
    "write",
];

/// Parses the name of a system call from `202 0x7f.. 0x80 ...`. Returns `None` for `running`, and for `-1 ...`, which
/// the kernel writes for a thread outside of a system call.
fn syscall(text: &str) -> Option<String> {
    let number: u32 = text.split_ascii_whitespace().next()?.parse().ok()?;
    let name = NAMES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
    Some(name.map_or_else(|| format!("system call {number}"), str::to_owned))
}

/// System calls in which processes are often found waiting, by their number on x86-64.
#[cfg(target_arch = "x86_64")]
const NAMES: &[(u32, &str)] = &[
    (0, "read"),
    (1, "write"),
    (7, "poll"),
    (16, "ioctl"),
    (17, "pread64"),
    (18, "pwrite64"),
    (23, "select"),
    (24, "sched_yield"),
    (34, "pause"),
    (35, "nanosleep"),
    (42, "connect"),
    (43, "accept"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (61, "wait4"),
    (72, "fcntl"),
    (73, "flock"),
    (74, "fsync"),
    (75, "fdatasync"),
    (202, "futex"),
    (208, "io_getevents"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (247, "waitid"),
    (257, "openat"),
    (262, "newfstatat"),
    (270, "pselect6"),
    (271, "ppoll"),
    (281, "epoll_pwait"),
    (288, "accept4"),
    (426, "io_uring_enter"),
    (449, "futex_waitv"),
];

/// System calls in which processes are often found waiting, by the kernel's generic numbers, as on arm64.
#[cfg(not(target_arch = "x86_64"))]
const NAMES: &[(u32, &str)] = &[
    (22, "epoll_pwait"),
    (29, "ioctl"),
    (32, "flock"),
    (56, "openat"),
    (63, "read"),
    (64, "write"),
    (67, "pread64"),
    (68, "pwrite64"),
    (72, "pselect6"),
    (73, "ppoll"),
    (79, "newfstatat"),
    (82, "fsync"),
    (83, "fdatasync"),
    (95, "waitid"),
    (98, "futex"),
    (101, "nanosleep"),
    (115, "clock_nanosleep"),
    (124, "sched_yield"),
    (202, "accept"),
    (203, "connect"),
    (206, "sendto"),
    (207, "recvfrom"),
    (211, "sendmsg"),
    (212, "recvmsg"),
    (260, "wait4"),
    (426, "io_uring_enter"),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn a_rank_that_waits_for_a_file_server_is_told_with_its_threads() {
        let root = tree(&[
            ("7/stat", "7 (python3 (x)) S 1 7 7 0\n"),
            ("7/syscall", "1073741824\n"),
            ("7/wchan", "futex_wait_queue"),
            ("7/task/7/stat", "7 (python3 (x)) S 1 7\n"),
            ("7/task/9/stat", "9 (pt_data_worker) D 1 7\n"),
            (
                "7/task/9/stack",
                "[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]\n[<0>] nfs_getattr+0x2a/0x1f0 [nfs]\n",
            ),
        ]);
        let standing = KernelState::of(root.path(), 7).unwrap();
        assert_eq!(
            standing.to_string(),
            "sleeping in system call 1073741824 (futex_wait_queue)"
        );
        let blocked: Vec<String> = standing.blocked.iter().map(ToString::to_string).collect();
        assert_eq!(
            blocked,
            ["thread 9 (pt_data_worker) in nfs_wait_bit_killable < nfs_getattr"]
        );
    }

    #[test]
    fn what_may_not_be_read_and_what_is_garbage_is_absent() {
        let root = tree(&[
            ("7/stat", "7 (a) R 1 7\n"),
            ("7/syscall", "running\n"),
            ("7/wchan", "0"),
        ]);
        let standing = KernelState::of(root.path(), 7).unwrap();
        assert_eq!(standing.to_string(), "running");
        for text in ["", "garbage", "7 (a", "7 (a) ", ") (", "7 (a) S x"] {
            fs::write(root.path().join("7/stat"), text).unwrap();
            assert_eq!(KernelState::of(root.path(), 7), None, "{text:?}");
        }
        assert_eq!(KernelState::of(root.path(), 8), None);
    }

    #[test]
    fn the_file_of_a_call_is_known_and_of_a_socket_or_another_call_none() {
        let root = tree(&[("7/stat", "7 (a) D 1 7\n"), ("7/fd/x", "")]);
        let folder = root.path().join("7");
        let link = |to: &str| {
            let _ = fs::remove_file(folder.join("fd/5"));
            std::os::unix::fs::symlink(to, folder.join("fd/5")).unwrap();
        };
        let number = |name: &str| NAMES.iter().find(|(_, known)| *known == name).unwrap().0;
        for (call, to, file) in [
            ("fsync", "/scratch/step-9.pt", Some("/scratch/step-9.pt")),
            ("write", "socket:[7]", None),
            ("futex", "/scratch/step-9.pt", None),
        ] {
            link(to);
            fs::write(
                folder.join("syscall"),
                format!("{} 0x5 0x0 0x7ffc 0x7f\n", number(call)),
            )
            .unwrap();
            assert_eq!(file_waited_for(&folder).as_deref(), file, "{call}");
        }
        for text in ["running\n", "-1 0x7 0x8\n", ""] {
            fs::write(folder.join("syscall"), text).unwrap();
            assert_eq!(file_waited_for(&folder), None);
        }
    }

    #[test]
    fn a_real_child_that_sleeps_is_seen() {
        let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let standing = loop {
            let standing = KernelState::of(Path::new("/proc"), sleeper.id()).unwrap();
            if standing.state == 'S' || std::time::Instant::now() > deadline {
                break standing;
            }
            std::thread::yield_now();
        };
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(standing.state, 'S');
        assert!(standing.blocked.is_empty(), "{standing:?}");
    }
}
