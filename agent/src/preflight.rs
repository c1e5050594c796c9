//! Preflight: checks that this node has what a job needs before it starts.
//!
//! Nothing is changed, except that a file of 4 KiB is written, synced and removed in the job's writable folders. Checks
//! that may block (a file system with a dead server, a driver, a name service, a slow Python import) run on a thread or
//! in a process of their own, with a deadline. Each check names the failure class that it prevents, and with it the
//! categories of published taxonomies.
//!
//! Before a generation starts the controller may request the same for the job itself; it compares the values that must
//! be equal on all nodes.

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

use rankguard_model::{ClassId, SharedValue};
use serde::Serialize;

use crate::catalogue_handle::CatalogueHandle;

/// Requirements of a job on a node. Empty or absent ones are not checked.
#[derive(Debug, Clone)]
pub struct JobRequirements {
    /// Files and folders that must exist and be readable.
    pub paths: Vec<PathBuf>,
    /// Folders that must exist and be writable: checkpoints, logs.
    pub write_paths: Vec<PathBuf>,
    /// Programs that must be found and executable.
    pub commands: Vec<String>,
    /// Python modules that must be importable.
    pub imports: Vec<String>,
    /// Python interpreter that imports them.
    pub python: String,
    /// Environment and working directory of that Python; those of this process if absent.
    pub surroundings: ProgramEnvironment,
    /// TCP ports of this node that must be free.
    pub ports: Vec<u16>,
    /// Host names that must resolve.
    pub hosts: Vec<String>,
    /// Number of GPUs that must be present.
    pub gpus: Option<u32>,
    /// Number of RDMA ports that must be active.
    pub links: Option<u32>,
    /// Free space that each writable folder must have, bytes.
    pub disk_bytes: Option<u64>,
    /// Free space that /dev/shm must have, bytes.
    pub shm_bytes: Option<u64>,
    /// Host memory that all ranks of this node need, bytes.
    pub memory_bytes: Option<u64>,
    /// Time limit of each check that may block, 30 s by default.
    pub deadline: Duration,
    /// Root of procfs.
    pub proc_root: PathBuf,
    /// Root of sysfs.
    pub sysfs_root: PathBuf,
    /// Mount point of the shared memory file system.
    pub shm_root: PathBuf,
    /// Command of the process that calls the GPU library, as in [`crate::AgentSettings::gpu_process`]; it gives up a call
    /// sooner than [`JobRequirements::deadline`]. GPUs are not checked if it is empty.
    pub gpu_process: Vec<OsString>,
    /// Catalogue with the taxonomy categories of each class.
    pub knowledge: CatalogueHandle,
}

impl Default for JobRequirements {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            write_paths: Vec::new(),
            commands: Vec::new(),
            imports: Vec::new(),
            python: "python3".to_owned(),
            surroundings: ProgramEnvironment::default(),
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
            knowledge: CatalogueHandle::default(),
        }
    }
}

/// Environment and working directory of a job's programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramEnvironment {
    /// Variables besides those of this process.
    pub env: BTreeMap<String, String>,
    /// Working directory of the programs.
    pub workdir: Option<PathBuf>,
}

impl ProgramEnvironment {
    /// Returns the search path of programs.
    fn path(&self) -> OsString {
        let own = self.env.get("PATH").map(OsString::from);
        own.or_else(|| std::env::var_os("PATH")).unwrap_or_default()
    }
}

/// Result of a check; the worse, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckVerdict {
    /// The requirement is met, or absent.
    Ok,
    /// The job will run, but may have trouble.
    Warn,
    /// The check gave no answer.
    Unknown,
    /// The job would fail.
    Fail,
}

/// Completed check with its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PreflightCheck {
    /// Kind of the check: `path`, `gpu`, `port` ...
    pub check: &'static str,
    /// Path, device or port that was checked.
    pub subject: String,
    pub verdict: CheckVerdict,
    /// Description of the finding.
    pub found: String,
    /// Advice for the operator; empty if there is none.
    pub advice: String,
    /// Failure class that the check prevents.
    pub class: ClassId,
    /// Categories of that class by published taxonomy.
    pub prevents: SharedValue<BTreeMap<String, Vec<String>>>,
}

impl PreflightCheck {
    fn new(check: &'static str, subject: impl Into<String>, class: &str) -> Self {
        let class = ClassId::from(class);
        Self {
            check,
            subject: subject.into(),
            verdict: CheckVerdict::Ok,
            found: String::new(),
            advice: String::new(),
            // Filled in when all checks are complete.
            prevents: SharedValue::default(),
            class,
        }
    }

    fn ok(mut self, found: impl Into<String>) -> Self {
        self.found = found.into();
        self
    }

    fn bad(self, verdict: CheckVerdict, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            verdict,
            found: found.into(),
            advice: advice.into(),
            ..self
        }
    }

    /// Replaces the expected class by the one of the failure that was found.
    fn of_class(mut self, class: &str) -> Self {
        self.class = ClassId::from(class);
        self
    }
}

/// Runs every check; takes at most a few times [`JobRequirements::deadline`] for each kind of check.
pub fn preflight(need: &JobRequirements) -> Vec<PreflightCheck> {
    // Checks that may hang start first and are waited for last.
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
pub(crate) use program::interpreter;

#[cfg(test)]
mod tests;
