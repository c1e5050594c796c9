//! What the system says of memory, load and filesystems.

use std::fs;
use std::path::Path;

/// Private and shared memory of a process, in bytes: its own share of every page that is no file's.
pub(super) fn of_process(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
    let kib = |line: &str| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
    let counted = |line: &&str| line.starts_with("Pss_Anon:") || line.starts_with("Pss_Shmem:");
    text.lines().filter(counted).filter_map(kib).sum::<u64>() * 1024
}

/// Running processes, averaged over the last minute.
pub(super) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_ascii_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or_default()
}

/// Type of the filesystem that `dir` is on: of the longest mount point that leads there.
pub(super) fn filesystem(dir: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let here = fields.filter(|fields| fields.len() > 2 && dir.starts_with(fields[1]));
    let nearest = here.max_by_key(|fields| fields[1].len());
    nearest.map_or_else(|| "unknown".to_owned(), |fields| format!("{} on {}", fields[2], fields[0]))
}
