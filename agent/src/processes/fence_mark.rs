//! Environment mark of every process of an agent's ranks. It identifies processes that an earlier agent of the same
//! state directory left when both it and its supervisor were killed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use rankguard_model::{JobId, RankRef};
use serde::{Deserialize, Serialize};

use super::ending::{EndedProcesses, end_processes};
use super::table::{ProcessEntry, ProcessTable};

pub(crate) const FENCE_VARIABLE: &str = "RANKGUARD_FENCE";

/// Name of the file in the state directory.
const FILE: &str = "supervision.json";

/// Mark of one state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FenceMark {
    /// Random id of 32 hexadecimal digits.
    pub(crate) id: String,
    /// Control group in which the newest agent of the directory placed ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cgroup: Option<PathBuf>,
}

impl FenceMark {
    /// Reads the mark of a state directory, or creates one.
    pub(crate) fn open(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join(FILE);
        match fs::read(&path) {
            Ok(text) => {
                let mark: Self =
                    serde_json::from_slice(&text).map_err(|problem| damaged(&path, &problem.to_string()))?;
                let is_id = mark.id.len() == 32 && mark.id.bytes().all(|byte| byte.is_ascii_hexdigit());
                if is_id {
                    Ok(mark)
                } else {
                    Err(damaged(&path, "field `id` is not 32 hexadecimal digits"))
                }
            }
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
                let mark = Self {
                    id: random_id()?,
                    cgroup: None,
                };
                mark.write(state_dir)?;
                Ok(mark)
            }
            Err(problem) => Err(problem),
        }
    }

    /// Writes the mark; it is durable when this returns.
    pub(crate) fn write(&self, state_dir: &Path) -> io::Result<()> {
        let path = state_dir.join(FILE);
        let temporary = state_dir.join("supervision.tmp");
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&serde_json::to_vec(self).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(state_dir)?.sync_all()
    }

    /// Returns the variable's value for a rank.
    pub(crate) fn of_rank(&self, rank: &RankRef) -> String {
        format!("{}/{}/{}/{}", self.id, rank.job, rank.generation, rank.rank)
    }

    /// Returns the variable's value for a supervisor.
    pub(crate) fn of_supervisor(&self) -> String {
        format!("{}/supervisor", self.id)
    }

    /// Returns the variable's value for a standby process of a job.
    pub(crate) fn of_standby(&self, job: &JobId) -> String {
        format!("{}/{job}/standby", self.id)
    }

    /// Returns the prefix of the variable in every process of this state directory.
    fn prefix(&self) -> Vec<u8> {
        format!("{FENCE_VARIABLE}={}/", self.id).into_bytes()
    }
}

fn damaged(path: &Path, problem: &str) -> io::Error {
    let text = format!(
        "{}: {problem} (remove the file; the agent makes a new one)",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn random_id() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut id = String::new();
    for byte in bytes {
        let _ = write!(id, "{byte:02x}");
    }
    Ok(id)
}

/// Ends every process with the mark and its descendants. Reading an environment can block on a process that hangs in
/// the kernel, so a thread does it and is abandoned after twice the limit; returns `None` then.
pub(crate) fn end_marked_processes(mark: &FenceMark, limit: Duration) -> Option<EndedProcesses> {
    let (send, receive) = channel();
    let prefix = mark.prefix();
    let work = move || {
        let _ = send.send(end_processes(limit, |table| marked(table, &prefix)));
    };
    std::thread::Builder::new()
        .name("leftovers".to_owned())
        .spawn(work)
        .ok()?;
    receive.recv_timeout(limit * 2).ok()
}

fn marked(table: &ProcessTable, prefix: &[u8]) -> Vec<ProcessEntry> {
    let own = std::process::id();
    let mut found: Vec<ProcessEntry> = table
        .entries()
        .filter(|process| process.pid != own && is_marked(process.pid, prefix))
        .cloned()
        .collect();
    let roots: BTreeSet<u32> = found.iter().map(|process| process.pid).collect();
    let below = table.descendants(&roots).into_iter();
    found.extend(below.filter(|process| process.pid != own && !roots.contains(&process.pid)));
    found
}

fn is_marked(pid: u32, prefix: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ"));
    environment.is_ok_and(|text| text.split(|byte| *byte == 0).any(|pair| pair.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_mark_is_the_same_after_a_restart_and_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = FenceMark::open(folder.path()).expect("made");
        assert_eq!(FenceMark::open(folder.path()).expect("read"), first);
        fs::write(folder.path().join(FILE), r#"{"id":"../x"}"#).expect("written");
        let problem = FenceMark::open(folder.path()).expect_err("no mark");
        assert!(problem.to_string().contains("field `id`"), "{problem}");
    }

    #[test]
    fn marked_processes_end_with_what_is_below_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = FenceMark::open(folder.path()).expect("made");
        let start = |value: &str| {
            let mut command = Command::new("sh");
            command
                .args(["-c", "env -i sleep 300; true"])
                .env(FENCE_VARIABLE, value);
            command.spawn().expect("sh starts")
        };
        let mut ours = start(&format!("{}/train/1/0", mark.id));
        let mut foreign = start("00000000000000000000000000000000/train/1/0");
        let ended = end_marked_processes(&mark, Duration::from_secs(30)).expect("in time");
        assert!(ended.pids.contains(&ours.id()) && ended.left.is_empty(), "{ended:?}");
        ours.wait().expect("it has ended");
        assert_eq!(foreign.try_wait().expect("it can be asked"), None);
        let root = BTreeSet::from([foreign.id()]);
        end_processes(Duration::from_secs(30), |table| table.descendants(&root));
        foreign.kill().ok();
        foreign.wait().expect("it has ended");
    }
}
