//! Logs of several job generations in one folder: the output that an agent stores below `jobs/<job>/g<generation>/`.
//!
//! Generations are separate incidents, even if their lines have no clocks: a restarted rank has another history.

use std::collections::BTreeMap;
use std::path::Path;

use rankguard_offline::{NamedDump, ReadStream};

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
}

/// Returns the generation that wrote a file of output: `<job>/g<generation>/<file>`. The same generation on several nodes is
/// one.
pub(super) fn generation_of(file: &Path) -> Option<JobGeneration> {
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
            let found = generation_of(Path::new(file));
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
}
