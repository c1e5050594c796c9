//! Before a job starts: whether this node has what the job needs.
//!
//! Everything is looked at from here and nothing is changed, but for a file of 4 KiB that is written, synced and removed
//! where the job will write. What may not answer (a file system whose server is gone, a driver, a name service, a Python
//! that imports for minutes) is asked on a thread or in a process of its own, with a deadline; no answer is told as
//! unknown. Each check names the failure class that it prevents, and with it the categories of published taxonomies.
//!
//! Before a generation starts the controller may ask for the same of the job itself; it compares what must be equal.

mod files;
mod gpu;
pub(crate) mod host;
mod job;
mod network;
mod probe;
mod program;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rankguard_model::{ClassId, Shared};
use serde::Serialize;

use crate::Knowledge;

/// What a job needs of a node. What is empty or absent is not asked for.
#[derive(Debug, Clone)]
pub struct Need {
    /// Files and folders that must be there and readable.
    pub paths: Vec<PathBuf>,
    /// Folders that must be there and writable: checkpoints, logs.
    pub write_paths: Vec<PathBuf>,
    /// Programs that must be found and executable.
    pub commands: Vec<String>,
    /// Python modules that must be importable.
    pub imports: Vec<String>,
    /// The Python that is asked for them.
    pub python: String,
    /// Where that Python looks for them, and where it stands; this process's own when absent.
    pub surroundings: Surroundings,
    /// TCP ports of this node that must be free.
    pub ports: Vec<u16>,
    /// Host names that must resolve.
    pub hosts: Vec<String>,
    /// GPUs that must be there.
    pub gpus: Option<u32>,
    /// RDMA ports that must be active.
    pub links: Option<u32>,
    /// Room that each writable folder must have, bytes.
    pub disk_bytes: Option<u64>,
    /// Room that /dev/shm must have, bytes.
    pub shm_bytes: Option<u64>,
    /// Host memory that all ranks of this node need, bytes.
    pub memory_bytes: Option<u64>,
    /// Longest wait for anything that may not answer.
    pub deadline: Duration,
    /// The procfs tree.
    pub proc_root: PathBuf,
    /// The sysfs tree.
    pub sysfs_root: PathBuf,
    /// The shared memory file system.
    pub shm_root: PathBuf,
    /// Program and words of the process that calls the GPU library, as in [`crate::Settings::gpu_process`]; it gives up a
    /// call sooner than [`Need::deadline`]. GPUs are not asked when empty.
    pub gpu_process: Vec<OsString>,
    /// The catalogue that tells in which categories of published taxonomies a class stands.
    pub knowledge: Knowledge,
}

impl Default for Need {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            write_paths: Vec::new(),
            commands: Vec::new(),
            imports: Vec::new(),
            python: "python3".to_owned(),
            surroundings: Surroundings::default(),
            ports: Vec::new(),
            hosts: Vec::new(),
            gpus: None,
            links: None,
            disk_bytes: None,
            shm_bytes: None,
            memory_bytes: None,
            deadline: Duration::from_secs(30),
            proc_root: "/proc".into(),
            sysfs_root: "/sys".into(),
            shm_root: "/dev/shm".into(),
            gpu_process: Vec::new(),
            knowledge: Knowledge::default(),
        }
    }
}

/// What the programs of a job find around them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Variables besides those of this process.
    pub env: BTreeMap<String, String>,
    /// Where they stand.
    pub workdir: Option<PathBuf>,
}

impl Surroundings {
    /// Where programs are looked for.
    fn path(&self) -> OsString {
        let own = self.env.get("PATH").map(OsString::from);
        own.or_else(|| std::env::var_os("PATH")).unwrap_or_default()
    }
}

/// How a check came out. The worse, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is as it should be, or nobody asked for it.
    Ok,
    /// The job will run, and may come to regret it.
    Warn,
    /// It cannot be told.
    Unknown,
    /// The job would fail.
    Fail,
}

/// One check and how it came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What was looked at: `path`, `gpu`, `port` ...
    pub check: &'static str,
    /// Which one: the path, the device, the port.
    pub subject: String,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it; empty where nothing is.
    pub advice: String,
    /// The failure class that it prevents.
    pub class: ClassId,
    /// The categories of each published taxonomy in which that class stands.
    pub prevents: Shared<BTreeMap<String, Vec<String>>>,
}

impl Check {
    fn new(check: &'static str, subject: impl Into<String>, class: &str) -> Self {
        let class = ClassId::from(class);
        Self {
            check,
            subject: subject.into(),
            verdict: Verdict::Ok,
            found: String::new(),
            advice: String::new(),
            // Filled in when all checks are made.
            prevents: Shared::default(),
            class,
        }
    }

    fn ok(mut self, found: impl Into<String>) -> Self {
        self.found = found.into();
        self
    }

    fn bad(self, verdict: Verdict, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            verdict,
            found: found.into(),
            advice: advice.into(),
            ..self
        }
    }

    /// The failure that was found is of another class than the one that was expected.
    fn of_class(mut self, class: &str) -> Self {
        self.class = ClassId::from(class);
        self
    }
}

/// Makes every check; waits a few times [`Need::deadline`] at most for each kind of them.
pub fn preflight(need: &Need) -> Vec<Check> {
    // What may hang is started first and asked for last.
    let gpus = gpu::start(need);
    let files = files::start(need);
    let names = network::resolve(need);
    let mut checks = host::checks(need);
    checks.extend(network::ports(need));
    checks.extend(network::links(need));
    checks.extend(program::checks(need));
    checks.extend(names.into_iter().map(|pending| pending.take(need.deadline)));
    checks.extend(files.into_iter().map(|pending| pending.take(need.deadline)));
    checks.extend(gpu::finish(gpus, need));
    need.knowledge.with_catalogue(|catalogue| {
        for check in &mut checks {
            check.prevents = catalogue.taxonomies_of(&check.class);
        }
    });
    checks
}

pub(crate) use job::for_job;

#[cfg(test)]
mod tests;
