//! Memory, load and filesystems, as the system reports them.

use std::fs;
use std::path::Path;

/// Reads a number of `/proc/ID/status`, in bytes; 0 if the system does not report it.
fn told(status: &str, name: &str) -> u64 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

fn status(id: u32) -> String {
    fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default()
}

/// Returns the anonymous memory of a process, in bytes: pages that are neither of a file nor shared.
pub(super) fn private(id: u32) -> u64 {
    told(&status(id), "RssAnon")
}

/// Returns the memory-file (shmem) pages of a process, in bytes.
pub(super) fn shared(id: u32) -> u64 {
    told(&status(id), "RssShmem")
}

/// Peak of a process's private memory since a starting point.
#[derive(Debug)]
pub(super) struct PeakMemory {
    id: u32,
    start: String,
}

impl PeakMemory {
    pub(super) fn begin(id: u32) -> Self {
        // Resets the peak; if that is refused, the value at the end is used instead.
        let _ = fs::write(format!("/proc/{id}/clear_refs"), "5");
        Self { id, start: status(id) }
    }

    /// Returns the peak since the start. The system knows the peak of all pages together, so the growth of file pages
    /// (the program's own text at first use) is subtracted.
    pub(super) fn most(&self) -> u64 {
        let now = status(self.id);
        let (before, after) = (|name| told(&self.start, name), |name| told(&now, name));
        let begun_anew = before("VmHWM") <= before("VmRSS");
        let grown = if begun_anew {
            after("VmHWM").saturating_sub(before("VmRSS"))
        } else {
            0
        };
        let of_files = after("RssFile").saturating_sub(before("RssFile"));
        after("RssAnon").max(before("RssAnon") + grown.saturating_sub(of_files))
    }
}

/// Average number of running processes over the last minute.
pub(super) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_ascii_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or_default()
}

/// Type of the filesystem of `dir`: that of the longest matching mount point.
pub(super) fn filesystem(dir: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let here = fields.filter(|fields| fields.len() > 2 && dir.starts_with(fields[1]));
    let nearest = here.max_by_key(|fields| fields[1].len());
    nearest.map_or_else(
        || "unknown".to_owned(),
        |fields| format!("{} on {}", fields[2], fields[0]),
    )
}
