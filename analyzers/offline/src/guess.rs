//! Guesses of source, node and rank of a log file.

use std::path::Path;

use rankguard_faults::line::{self, LineClock, SyslogTag, YearHint};
use rankguard_model::{EvidenceSource, NodeId, Rank, Timestamp};

use crate::services;

/// Maximum number of lines that a guess reads.
pub const SAMPLE: usize = 300;

/// Returns the source of a log, by its name and its first lines.
pub fn source(path: &Path, lines: &[String]) -> EvidenceSource {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    let clock = LineClock::default();
    let filled: Vec<&String> = lines.iter().filter(|line| !line.trim().is_empty()).collect();
    let of_machine = |text: &str| {
        let cleaned = line::clean(text);
        let parsed = line::parse(&cleaned, &clock);
        // A system log names the host before the service.
        (
            parsed.kernel,
            parsed.host.is_some() && services::is_service_line(parsed.text),
            parsed.host.is_some() && SyslogTag::parse(parsed.text).is_some_and(|tag| tag.pid.is_some()),
        )
    };
    let kinds: Vec<(bool, bool, bool)> = filled.iter().map(|text| of_machine(text)).collect();
    let kernel = kinds.iter().filter(|(kernel, ..)| *kernel).count();
    let printed = filled.iter().filter(|text| is_printed_ring(text)).count();
    let machine = kinds.iter().filter(|(kernel, service, _)| *kernel || *service).count();
    let tagged = kinds
        .iter()
        .filter(|(kernel, service, tagged)| *kernel || *service || *tagged);
    let tagged = tagged.count();
    let booted = filled.iter().filter(|text| begins_with_uptime(text)).count();
    let is_console = name.contains("console") && booted * 3 > filled.len() * 2;
    if kernel * 3 > filled.len()
        || printed * 2 > filled.len()
        || is_console
        || machine > 0 && machine * 10 >= filled.len() * 9
        || machine > 0 && machine * 2 >= filled.len() && tagged * 10 >= filled.len() * 9
        || ["dmesg", "kmsg", "kern.log", "pstore"]
            .iter()
            .any(|part| name.contains(part))
    {
        return EvidenceSource::KernelLog;
    }
    if ["fabricmanager", "nvidia-smi", "dcgm", "ipmi", "mcelog"]
        .iter()
        .any(|part| name.contains(part))
    {
        return EvidenceSource::Host;
    }
    if ["slurmctld", "slurmd.", "slurmd-", "slurmdbd"]
        .iter()
        .any(|part| name.contains(part))
    {
        return EvidenceSource::Scheduler;
    }
    // The head of a table of `sacct`.
    let lists_jobs = |line: &&&String| line.contains("JobID") && line.contains("State") && line.contains("ExitCode");
    if filled.iter().take(3).any(|line| lists_jobs(&line)) {
        return EvidenceSource::Scheduler;
    }
    let speaks = |words: &[&str]| {
        filled
            .iter()
            .filter(|text| words.iter().any(|word| text.contains(word)))
            .count()
            * 5
            > filled.len()
    };
    if speaks(&[
        "slurmstepd",
        "srun: ",
        "sbatch: ",
        "default-scheduler",
        "kubelet",
        "Back-off",
        "FailedScheduling",
    ]) {
        return EvidenceSource::Scheduler;
    }
    if speaks(&[
        "torch.distributed.elastic",
        "torch.distributed.run",
        "torchrun",
        "mpirun",
        "horovodrun",
        "launch.py",
    ]) {
        return EvidenceSource::Launcher;
    }
    EvidenceSource::JobLog
}

/// Returns true for a line as `dmesg -T` prints it: `[Mon Oct 16 09:50:06 2017] Lustre: text`. Programs that write the same stamp
/// in brackets put a level in brackets after it.
fn is_printed_ring(text: &str) -> bool {
    let inside = text.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    let Some((stamp, message)) = inside.filter(|(stamp, _)| stamp.len() == PRINTED_STAMP) else {
        return false;
    };
    let starts_with_day = DAYS.iter().any(|day| stamp.starts_with(day));
    let ends_with_year = stamp.bytes().rev().take(4).all(|byte| byte.is_ascii_digit());
    starts_with_day && ends_with_year && !message.starts_with('[')
}

/// Length of the stamp `Mon Oct 16 09:50:06 2017`.
const PRINTED_STAMP: usize = 24;
const DAYS: [&str; 7] = ["Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun "];

/// Returns true for a line that begins with the time since boot, of any precision: `[  712.10] `.
fn begins_with_uptime(text: &str) -> bool {
    let seconds = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    seconds.is_some_and(|(seconds, _)| {
        let seconds = seconds.trim_start();
        seconds.contains('.') && seconds.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    })
}

/// Returns the rank that a path names: `rank-3.err`, `rank_3/stderr.log`, `rank3.log`.
pub fn rank(root: &Path, path: &Path) -> Option<Rank> {
    parts(root, path)
        .rev()
        .find_map(|part| number_after(&part, "rank"))
        .or_else(|| torchrun_rank(root, path))
        .map(Rank)
}

/// Parses `attempt_0/3/stderr.log` of torchrun's log folder: the local rank, which is the global rank if the names
/// contain no name that may be a node.
fn torchrun_rank(root: &Path, path: &Path) -> Option<u32> {
    if named_node(root, path).is_some() || host_name(root, path).is_some() {
        return None;
    }
    let parts: Vec<String> = parts(root, path).collect();
    let [.., attempt, rank, _] = parts.as_slice() else {
        return None;
    };
    number_after(attempt, "attempt")?;
    rank.parse().ok()
}

/// Returns the newest time with a year among the lines of a log.
pub fn newest_moment(lines: &[String]) -> Option<Timestamp> {
    let clock = LineClock::default();
    let moments = lines.iter().filter_map(|text| {
        let cleaned = line::clean(text);
        let at = line::parse(&cleaned, &clock).at;
        at.or_else(|| summary_moment(&cleaned))
            .or_else(|| counted_moment(&cleaned))
    });
    moments.max()
}

/// Returns the time in a summary of torchrun: `  time      : 2026-11-23_10:04:13`.
fn summary_moment(cleaned: &str) -> Option<Timestamp> {
    let (name, value) = cleaned.split_once(" : ")?;
    let is_time = name.split_whitespace().next_back() == Some("time");
    line::parse(value.trim(), &LineClock::default()).at.filter(|_| is_time)
}

/// Greatest difference between the stamp of a line and a time in seconds since 1970 in its text, which belongs to the same
/// message: a day, because zones differ.
const SAME_MESSAGE_NS: u64 = 86_400_000_000_000;

/// Returns the time in seconds since 1970 that a line names in its text, if its stamp lacks the year and has the same day:
/// `Apr 30 13:50:16 n1 kernel: ... [sent 1619790610/real 1619790610]`.
fn counted_moment(cleaned: &str) -> Option<Timestamp> {
    let counts = cleaned
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| digits.len() == 10);
    let moments = counts.filter_map(|digits| digits.parse::<i64>().ok()?.checked_mul(1_000));
    let mut moments = moments.map(Timestamp::from_millis);
    moments.find(|at| {
        let near = LineClock {
            hint: Some(YearHint::Near(*at)),
            ..LineClock::default()
        };
        let stamp = line::parse(cleaned, &near).at;
        stamp.is_some_and(|stamp| stamp.0.abs_diff(at.0) <= SAME_MESSAGE_NS)
    })
}

/// Returns the hint for clocks without a year: a time of the same incident if there is one, else `modified`, the time at
/// which the file was last written.
pub fn year_hint(newest: Option<Timestamp>, modified: Option<Timestamp>) -> Option<YearHint> {
    newest.map(YearHint::Near).or(modified.map(YearHint::WrittenBy))
}

/// First words of numbered names that are not hosts.
const NO_HOSTS: &[&str] = &[
    "array",
    "attempt",
    "batch",
    "case",
    "checkpoint",
    "ckpt",
    "day",
    "dmesg",
    "epoch",
    "err",
    "error",
    "eval",
    "exp",
    "experiment",
    "file",
    "fold",
    "gen",
    "generation",
    "incident",
    "issue",
    "iter",
    "iteration",
    "job",
    "jobs",
    "kern",
    "kmsg",
    "local",
    "log",
    "logs",
    "loop",
    "messages",
    "none",
    "out",
    "output",
    "part",
    "phase",
    "pid",
    "proc",
    "process",
    "rank",
    "ranks",
    "restart",
    "run",
    "sample",
    "seed",
    "shard",
    "slurm",
    "stage",
    "stderr",
    "stdout",
    "step",
    "syslog",
    "task",
    "test",
    "ticket",
    "train",
    "trial",
    "try",
    "v",
    "version",
    "week",
    "xid",
];

/// Returns true if a folder, or a file without its extension, has the form of a host name: a word, and a number at
/// the end (`gpu-07`, `dgx-h100-007`, `ip-10-0-0-17`). File names need the dash: `gpu3.log` is the log of a device.
fn is_host_name(stem: &str, is_folder: bool) -> bool {
    let plain = stem
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let word: &str = stem.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
    let number = stem.rsplit('-').next().unwrap_or_default();
    let has_dash = number.len() < stem.len() && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let is_device = word == "gpu" && number.len() < 2;
    // One letter may stand for anything, such as a generation or a version.
    let is_node_word = word.len() > 1 || matches!(word, "h" | "n");
    plain
        && !word.is_empty()
        && stem.ends_with(|c: char| c.is_ascii_digit())
        && !NO_HOSTS.contains(&word)
        && (has_dash && (is_folder || !is_device) || is_folder && is_node_word && !is_device)
}

/// Name in a path that has the form of a host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostName {
    /// Names of the folders around it.
    pub(crate) parents: Vec<String>,
    pub(crate) name: String,
    /// True for a folder, false for a file.
    pub(crate) is_folder: bool,
}

/// Returns the innermost name in a path that has the form of a host name: `gpu-07/`, `ip-10-0-0-17.log`.
pub(crate) fn host_name(root: &Path, path: &Path) -> Option<HostName> {
    let parts: Vec<String> = parts(root, path).collect();
    let last = parts.len().saturating_sub(1);
    parts.iter().enumerate().rev().find_map(|(at, part)| {
        let stem = part.split('.').next().unwrap_or(part);
        let is_folder = at < last;
        is_host_name(stem, is_folder).then(|| HostName {
            parents: parts[..at].to_vec(),
            name: stem.to_owned(),
            is_folder,
        })
    })
}

/// Names of logs of machines at the end of a file's name.
const MACHINE_LOGS: [&str; 6] = ["console", "dmesg", "journal", "kern", "messages", "syslog"];

/// Returns the names in a path that are hosts if lines below them name the same host, outermost first: folders and files
/// without their extensions.
pub(crate) fn possible_hosts(root: &Path, path: &Path) -> Vec<String> {
    let stems = parts(root, path).flat_map(|part| {
        let stem = part.split('.').next().unwrap_or(&part).to_owned();
        // The log of a machine beside the others: `gpu-07-dmesg.txt`.
        let of_machine = MACHINE_LOGS.iter().find_map(|log| {
            let stem = stem.strip_suffix(log)?;
            stem.strip_suffix(['-', '_']).map(str::to_owned)
        });
        std::iter::once(stem).chain(of_machine)
    });
    let is_possible = |stem: &String| {
        let word = stem.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
        let has_number = stem.bytes().any(|b| b.is_ascii_digit());
        has_number && !word.is_empty() && !NO_HOSTS.contains(&word)
    };
    stems.filter(is_possible).collect()
}

/// Returns the node that a path names with a word for it: `node-07/`, `worker-2.log`.
pub(crate) fn named_node(root: &Path, path: &Path) -> Option<NodeId> {
    parts(root, path).rev().find_map(|part| {
        let stem = part.split('.').next().unwrap_or(&part);
        ["node", "worker", "host"].iter().find_map(|word| {
            let at = stem.find(word)?;
            let rest = &stem[at + word.len()..];
            let digits = rest.trim_start_matches(['-', '_']);
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            (end > 0).then(|| NodeId::from(stem[at..stem.len() - (digits.len() - end)].to_owned()))
        })
    })
}

fn number_after(part: &str, word: &str) -> Option<u32> {
    let at = part.find(word)?;
    let rest = part[at + word.len()..].trim_start_matches(['-', '_', '=']);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Returns the names in a path without their endings, innermost first, in lower case.
pub(crate) fn stems(root: &Path, path: &Path) -> impl Iterator<Item = String> {
    let names: Vec<String> = parts(root, path).rev().collect();
    names.into_iter().flat_map(|name| {
        let stem = name.split('.').next().unwrap_or(&name).to_owned();
        [name, stem]
    })
}

/// Returns the names below `root`, and the last name of `root`, in lower case.
fn parts<'a>(root: &'a Path, path: &'a Path) -> impl DoubleEndedIterator<Item = String> + 'a {
    let below = path.strip_prefix(root).unwrap_or(path);
    let own = root.file_name().into_iter();
    own.chain(below.iter())
        .map(|part| part.to_string_lossy().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, rank_is: Option<u32>, node_is: Option<&str>) {
        let root = Path::new("/logs");
        let path = Path::new(path);
        assert_eq!(rank(root, path).map(|rank| rank.0), rank_is, "{path:?}");
        let node = named_node(root, path).map(|node| node.to_string());
        let node = node.or_else(|| host_name(root, path).map(|host| host.name));
        assert_eq!(node.as_deref(), node_is, "{path:?}");
    }

    #[test]
    fn ranks_and_nodes_are_read_from_names() {
        check("/logs/rank-3.err", Some(3), None);
        check("/logs/node-07/rank_12/stderr.log", Some(12), Some("node-07"));
        check("/logs/worker-2.log", None, Some("worker-2"));
        check("/logs/slurm-123.out", None, None);
        check("/logs/crank.log", None, None);
        check("/logs/none_x1/attempt_0/3/stderr.log", Some(3), None);
        check("/logs/node-1/attempt_0/3/stderr.log", None, Some("node-1"));
        check("/logs/gpu-07/syslog", None, Some("gpu-07"));
        check("/logs/dgx-h100-007.cluster.local/dmesg", None, Some("dgx-h100-007"));
        check("/logs/ip-10-0-0-17.log", None, Some("ip-10-0-0-17"));
        check("/logs/gpu3.log", None, None);
        check("/logs/run1/attempt-2/train.log", None, None);
        check("/logs/2026-11-23/out.log", None, None);
        check("/logs/tcn12/rank-3.err", Some(3), Some("tcn12"));
    }

    #[test]
    fn a_kernel_log_is_known_by_its_lines() {
        let lines = vec![
            "[   12.500001] NVRM: loading".to_owned(),
            "[   12.600002] usb 1-1: new device".to_owned(),
        ];
        assert_eq!(source(Path::new("x.txt"), &lines), EvidenceSource::KernelLog);
        assert_eq!(
            source(Path::new("x.txt"), &["epoch 1".to_owned()]),
            EvidenceSource::JobLog
        );
    }
}
