//! Logs of several job generations in one folder: the output that an agent stores below `jobs/<job>/g<generation>/`.
//!
//! Generations are separate incidents, even if their lines have no clocks: a restarted rank has another history.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rankguard_offline::{NamedDump, ReadStream};
use rankguard_reader::StreamSample;

/// Folder of files that a rank of another user writes itself.
const DUMPS: &str = "dumps";
/// Beginning of the names of files with the output of a rank. A folder `g1` with other files may be one of host `g1`.
const OUTPUT: &str = "rank-";

/// A generation of a job, by the names of its folders.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobGeneration {
    job: String,
    generation: u64,
}

/// Logs and dumps that are diagnosed together.
#[derive(Default)]
pub(super) struct LogGroup {
    pub(super) streams: Vec<ReadStream>,
    pub(super) dumps: Vec<NamedDump>,
    /// Lines for the second reader, if they were requested.
    pub(super) samples: Vec<StreamSample>,
}

/// Parts of the names of logs of a machine.
const MACHINE_LOGS: [&str; 8] = [
    "console", "dmesg", "ipmi", "journal", "kern", "messages", "sel.", "syslog",
];

/// Returns the folders that hold the log of a machine: a folder `g2` with `kern.log` is that of a host `g2`.
pub(super) fn host_folders(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let is_of_machine = |file: &&PathBuf| {
        let name = file.file_name().map(|name| name.to_string_lossy().to_lowercase());
        name.is_some_and(|name| {
            MACHINE_LOGS
                .iter()
                .any(|part| name.starts_with(part) || name.contains(&format!("-{part}")))
        })
    };
    let of_machines = files.iter().filter(is_of_machine);
    of_machines
        .filter_map(|file| file.parent().map(Path::to_path_buf))
        .collect()
}

/// Returns the generation that wrote a file of output: `<job>/g<generation>/<file>`. The same generation on several nodes is
/// one. If one of the folders beside it is that of a host (`hosts`), all are.
pub(super) fn generation_of(file: &Path, hosts: &BTreeSet<PathBuf>) -> Option<JobGeneration> {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let parent = file.parent()?;
    let folder = if name(parent)? == DUMPS {
        parent.parent()?
    } else if name(file)?.starts_with(OUTPUT) {
        parent
    } else {
        return None;
    };
    let generation = name(folder)?.strip_prefix('g')?.parse().ok()?;
    if hosts.iter().any(|host| host.parent() == folder.parent()) {
        return None;
    }
    Some(JobGeneration {
        job: name(folder.parent()?)?,
        generation,
    })
}

/// Returns the groups to diagnose. Other logs beside a single generation belong to it. Beside several they are
/// diagnosed on their own, which is added to `notes`.
pub(super) fn merged(mut groups: BTreeMap<Option<JobGeneration>, LogGroup>, notes: &mut Vec<String>) -> Vec<LogGroup> {
    if groups.len() == 2
        && let Some(others) = groups.remove(&None)
        && let Some(mut only) = groups.pop_first().map(|(_, group)| group)
    {
        only.streams.extend(others.streams);
        only.dumps.extend(others.dumps);
        only.samples.extend(others.samples);
        return vec![only];
    }
    if let (Some(others), true) = (groups.get(&None), groups.len() > 2) {
        notes.push(format!(
            "{} logs outside of the {} job generations are diagnosed on their own; name them with the folder of one \
             generation to diagnose both together",
            others.streams.len() + others.dumps.len(),
            groups.len() - 1
        ));
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_an_agent_has_a_job_and_a_generation() {
        let check = |file: &str, expect: Option<(&str, u64)>| {
            let found = generation_of(Path::new(file), &BTreeSet::new());
            let found = found.as_ref().map(|found| (found.job.as_str(), found.generation));
            assert_eq!(found, expect, "{file}");
        };
        check("/state/jobs/train/g3/rank-0.err", Some(("train", 3)));
        check("/state/jobs/train/g3/dumps/nccl_trace_rank_0", Some(("train", 3)));
        check("n1/train/g12/rank-1.out.zst", Some(("train", 12)));
        check("logs/gpu7/rank-0.err", None);
        check("logs/g1/syslog", None);
        check("g3/rank-0.err", None);
        check("rank-0.err", None);
    }

    #[test]
    fn folders_beside_that_of_a_host_are_hosts() {
        let files = [
            "/logs/a/g2/kern.log",
            "/logs/a/g2/rank-0.log",
            "/logs/a/g3/rank-8.log",
            "/logs/b/g1/rank-0.err",
        ];
        let files = files.map(PathBuf::from);
        let hosts = host_folders(&files);
        let found: Vec<bool> = files.iter().map(|file| generation_of(file, &hosts).is_some()).collect();
        assert_eq!(found, [false, false, false, true]);
    }
}
