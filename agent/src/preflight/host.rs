//! Checks of memory, shared memory, limits and the clock of this node.

use std::fs;
use std::path::{Path, PathBuf};

use rankguard_faults::classes;
use rustix::process::{Resource, getrlimit};

use super::{CheckVerdict, JobRequirements, PreflightCheck};
use crate::clock::{KernelClock, kernel_clock};
use crate::collectors::nic::rdma_ports;
use crate::memory_holders;
use crate::quantities::gib;

/// Default size of a container's shared memory, bytes (Docker's `--shm-size`).
const SHM_DEFAULT: u64 = 64 << 20;
/// Default limit of open files of a process (the kernel's `INR_OPEN_CUR`).
const FILES_DEFAULT: u64 = 1024;
/// Clock error that is visible between the logs of two nodes, microseconds.
const CLOCK_ERROR: i64 = 1_000_000;

pub(super) fn checks(need: &JobRequirements) -> Vec<PreflightCheck> {
    let mut checks = vec![memory(need), shared_memory(need), open_files()];
    if !rdma_ports(&need.sysfs_root).is_empty() {
        checks.push(locked_memory());
    }
    checks.push(clock(kernel_clock()));
    checks
}

/// Compares the memory that the ranks need with the host's and the cgroup's available memory.
fn memory(need: &JobRequirements) -> PreflightCheck {
    let check = PreflightCheck::new("memory", "host", classes::HOST_OOM_KILL);
    let Some(free) = available(&need.proc_root, &need.sysfs_root) else {
        return check.bad(
            CheckVerdict::Unknown,
            format!(
                "cannot read the available memory from {}",
                need.proc_root.join("meminfo").display()
            ),
            "check that agent.proc_root is the procfs of a Linux host",
        );
    };
    let (bytes, by) = free;
    match need.memory_bytes {
        Some(wanted) if bytes < wanted => {
            let holders = memory_holders::of_memory().map(|holders| format!("; {holders}"));
            let short = format!("{} available {by}; {} required", gib(bytes), gib(wanted));
            check.bad(
                CheckVerdict::Fail,
                short + &holders.unwrap_or_default(),
                "end remaining processes of other jobs, or use fewer ranks on this node, less state per rank or a larger limit",
            )
        }
        _ => check.ok(format!("{} available {by}", gib(bytes))),
    }
}

/// Returns the least of the host's available memory and the room in each cgroup above this process, with its source.
pub(crate) fn available(proc_root: &Path, sysfs_root: &Path) -> Option<(u64, String)> {
    let meminfo = fs::read_to_string(proc_root.join("meminfo")).ok()?;
    let line = meminfo.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let host = (kib.saturating_mul(1024), "on the host".to_owned());
    let limits = cgroups(proc_root, sysfs_root).into_iter().filter_map(|folder| {
        let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        // "max" is not a number and means no limit.
        let room = number("memory.max")?.saturating_sub(number("memory.current")?);
        Some((room, format!("in the cgroup {}", folder.display())))
    });
    limits.chain([host]).min_by_key(|(bytes, _)| *bytes)
}

/// Returns the folders of this process's cgroup (version 2) and of its ancestors.
fn cgroups(proc_root: &Path, sysfs_root: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(proc_root.join("self/cgroup")).unwrap_or_default();
    let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let root = sysfs_root.join("fs/cgroup");
    let own = Path::new(own.trim());
    own.ancestors().map(|path| root.join(path)).collect()
}

fn shared_memory(need: &JobRequirements) -> PreflightCheck {
    let check = PreflightCheck::new("shm", need.shm_root.display().to_string(), classes::SHM_EXHAUSTED);
    let advice =
        "enlarge /dev/shm: `--shm-size` of the container, an emptyDir of medium Memory, or `mount -o remount,size=`";
    let space = match rustix::fs::statvfs(&need.shm_root) {
        Ok(space) => space,
        Err(problem) => return check.bad(CheckVerdict::Warn, std::io::Error::from(problem).to_string(), advice),
    };
    let size = space.f_blocks.saturating_mul(space.f_frsize);
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let found = format!("{} free of {}", gib(free), gib(size));
    match need.shm_bytes {
        Some(wanted) if free < wanted => {
            check.bad(CheckVerdict::Fail, format!("{found}; {} required", gib(wanted)), advice)
        }
        None if size <= SHM_DEFAULT => check.bad(
            CheckVerdict::Warn,
            format!("{found}, the default of containers; data loader workers need more"),
            advice,
        ),
        _ => check.ok(found),
    }
}

fn open_files() -> PreflightCheck {
    let check = PreflightCheck::new("limit", "open files", classes::TOO_MANY_OPEN_FILES);
    match getrlimit(Resource::Nofile).current {
        None => check.ok("no limit"),
        Some(limit) if limit <= FILES_DEFAULT => check.bad(
            CheckVerdict::Warn,
            format!("{limit} per process, the default of the kernel"),
            "raise LimitNOFILE of the service, or run `ulimit -n` before the job",
        ),
        Some(limit) => check.ok(format!("{limit} per process")),
    }
}

/// Checks the locked-memory limit, because RDMA pins the memory that it works on.
fn locked_memory() -> PreflightCheck {
    let check = PreflightCheck::new("limit", "locked memory", classes::IB_RDMA_ERROR);
    match getrlimit(Resource::Memlock).current {
        None => check.ok("no limit"),
        Some(bytes) => check.bad(
            CheckVerdict::Warn,
            format!("{} on a node with RDMA adapters, which pin memory", gib(bytes)),
            "set LimitMEMLOCK=infinity of the service, or run `ulimit -l unlimited`",
        ),
    }
}

fn clock(kernel: Option<KernelClock>) -> PreflightCheck {
    let check = PreflightCheck::new("clock", "kernel", classes::CLOCK_SKEW);
    let advice = "start chrony, ntpd or systemd-timesyncd; otherwise the order of events between nodes is unknown";
    match kernel {
        None => check.bad(
            CheckVerdict::Unknown,
            "cannot read the clock state of the kernel",
            advice,
        ),
        Some(state) if !state.synchronised => check.bad(CheckVerdict::Warn, "clock is not NTP-synchronised", advice),
        Some(state) if state.max_error_us > CLOCK_ERROR => check.bad(
            CheckVerdict::Warn,
            format!("maximum error {} ms", state.max_error_us / 1000),
            advice,
        ),
        Some(state) => check.ok(format!("synchronised, maximum error {} ms", state.max_error_us / 1000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsynchronised_clock_is_a_warning() {
        let state = |synchronised, max_error_us| {
            clock(Some(KernelClock {
                synchronised,
                max_error_us,
                offset_us: 0,
            }))
            .verdict
        };
        assert_eq!(state(true, 5_000), CheckVerdict::Ok);
        assert_eq!(state(false, 5_000), CheckVerdict::Warn);
        assert_eq!(state(true, 16_000_000), CheckVerdict::Warn);
        assert_eq!(clock(None).verdict, CheckVerdict::Unknown);
    }
}
