//! Kernel counters of processes: processor time, memory, reads.

use std::fs;
use std::io;

use super::AgentFigure;

/// Clock ticks per second in `/proc/PID/stat`: 100 on every Linux that this program runs on.
const TICKS: f64 = 100.0;

/// Counters of one process, or the sum of several.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProcessUsage {
    cpu_s: f64,
    rss_bytes: f64,
    /// Shared pages count in part for each process: the program's code, of which the agent runs twice.
    pss_bytes: f64,
    /// Without pages of files, which are shared with other processes of the same program.
    anonymous_bytes: f64,
    read_calls: f64,
    read_bytes: f64,
    disk_bytes: f64,
}

impl ProcessUsage {
    pub(super) fn of(pids: &[u32]) -> io::Result<Self> {
        let mut all = Self::default();
        for pid in pids {
            all = all.and(&Self::of_one(*pid)?);
        }
        Ok(all)
    }

    fn of_one(pid: u32) -> io::Result<Self> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let ticks = |place: usize| -> io::Result<f64> {
            let text = read("stat")?;
            // The name in parentheses may contain any character; the fields after it begin with the third.
            let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
            let field = fields
                .split_whitespace()
                .nth(place - 3)
                .and_then(|field| field.parse().ok());
            field.ok_or_else(|| io::Error::other("cannot read the processor time"))
        };
        let status = read("status")?;
        let counts = read("io")?;
        Ok(Self {
            cpu_s: (ticks(14)? + ticks(15)?) / TICKS,
            rss_bytes: number(&status, "VmRSS:") * 1024.0,
            pss_bytes: number(&read("smaps_rollup")?, "Pss:") * 1024.0,
            anonymous_bytes: number(&status, "RssAnon:") * 1024.0,
            read_calls: number(&counts, "syscr:"),
            read_bytes: number(&counts, "rchar:"),
            disk_bytes: number(&counts, "read_bytes:"),
        })
    }

    /// Adds two usages.
    pub(super) fn and(&self, other: &Self) -> Self {
        self.with(other, |one, two| one + two)
    }

    /// Returns the use since `before`; memory keeps its current value.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            rss_bytes: self.rss_bytes,
            pss_bytes: self.pss_bytes,
            anonymous_bytes: self.anonymous_bytes,
            ..self.with(before, |now, then| now - then)
        }
    }

    fn with(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            cpu_s: f(self.cpu_s, other.cpu_s),
            rss_bytes: f(self.rss_bytes, other.rss_bytes),
            pss_bytes: f(self.pss_bytes, other.pss_bytes),
            anonymous_bytes: f(self.anonymous_bytes, other.anonymous_bytes),
            read_calls: f(self.read_calls, other.read_calls),
            read_bytes: f(self.read_bytes, other.read_bytes),
            disk_bytes: f(self.disk_bytes, other.disk_bytes),
        }
    }

    /// Appends the usage as figures, with the agent's goals if `goals` is set.
    pub(super) fn figures(&self, subject: &'static str, seconds: f64, goals: bool, to: &mut Vec<AgentFigure>) {
        let mut put = |figure, value, unit, below: Option<f64>| {
            to.push(AgentFigure {
                subject,
                figure,
                value,
                unit,
                below: below.filter(|_| goals),
            });
        };
        put(
            "processor",
            self.cpu_s / seconds * 100.0,
            "percent of a core",
            Some(0.5),
        );
        put("memory", self.rss_bytes / 1e6, "MB", Some(40.0));
        put("memory, shared pages divided", self.pss_bytes / 1e6, "MB", None);
        put("memory of its own", self.anonymous_bytes / 1e6, "MB", None);
        put("reads", self.read_calls / seconds, "calls/s", None);
        put("bytes read", self.read_bytes / seconds / 1e3, "kB/s", None);
        put("bytes read from disks", self.disk_bytes / seconds / 1e3, "kB/s", None);
    }
}

/// Parses the number after `name`; 0 if the kernel does not report it.
fn number(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|rest| rest.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// Returns the ids of the child processes of `parent`.
pub(super) fn children(parent: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let of = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        if of == Some(parent) {
            found.push(pid);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_what_it_reads_is_counted() {
        let me = std::process::id();
        let before = ProcessUsage::of(&[me]).expect("there is /proc");
        fs::read("/proc/self/status").expect("there is /proc");
        let used = ProcessUsage::of(&[me]).expect("there is /proc").since(&before);
        assert!(used.rss_bytes > 1e6 && used.anonymous_bytes > 0.0, "{used:?}");
        assert!(used.read_calls >= 1.0 && used.read_bytes > 100.0, "{used:?}");
    }
}
