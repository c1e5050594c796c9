//! The collectors of one agent together: who is started, and how they end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rankguard_model::Source;

use super::check::Check;
use super::gpu::{Gpu, Process, Xids};
use super::hang::Hangs;
use super::host::Host;
use super::job_log::{JobLogs, job_logs};
use super::kernel_log::KernelLog;
use super::nic::Nic;
use super::observe::Reporter;
use super::{Stop, spawn};
use crate::clock;
use crate::error::AgentError;
use crate::intake::Intake;
use crate::ranks::Roster;
use crate::settings::Settings;
use crate::spool::Spool;

/// How long collectors may take to end. One that is stuck in a driver is left behind with its thread (RG-12).
const END_LIMIT: Duration = Duration::from_secs(2);

/// The running collectors.
pub(crate) struct Collectors {
    threads: Vec<JoinHandle<()>>,
    /// The door to the reader of the ranks' output.
    pub(crate) job_logs: JobLogs,
}

impl Collectors {
    /// Starts every collector that the settings want.
    pub(crate) fn start(
        settings: &Settings,
        intake: &Intake,
        roster: &Roster,
        spool: &Arc<Spool>,
        stop: &Stop,
    ) -> Result<Self, AgentError> {
        let intervals = &settings.intervals;
        let xids = Xids::default();
        let reporter = |source| Reporter {
            source,
            intake: intake.clone(),
            roster: roster.clone(),
            spool: spool.clone(),
            xids: xids.clone(),
        };
        let (logs, reader) = job_logs(&settings.job_logs, intervals.logs, reporter(Source::JobLog), stop);
        let kernel_log = KernelLog {
            from: settings.kernel_log.clone(),
            proc_root: settings.proc_root.clone(),
            journal: settings.journal.clone(),
            pstore: pstore(settings),
            interval: intervals.logs,
            reporter: reporter(Source::KernelLog),
            stop: stop.clone(),
        };
        let host = Host {
            proc_root: settings.proc_root.clone(),
            sysfs_root: settings.sysfs_root.clone(),
            interval: intervals.host,
            watched: vec![settings.state_dir.clone(), "/dev/shm".into(), "/tmp".into()],
            intake: intake.clone(),
            roster: roster.clone(),
            stop: stop.clone(),
        };
        let hangs = Hangs {
            proc_root: settings.proc_root.clone(),
            stack_process: settings.stack_process.clone(),
            interval: intervals.ranks,
            floor: intervals.stall,
            intake: intake.clone(),
            roster: roster.clone(),
            stop: stop.clone(),
        };
        let nic = Nic {
            sysfs_root: settings.sysfs_root.clone(),
            interval: intervals.nic,
            intake: intake.clone(),
            stop: stop.clone(),
        };
        let gpu = Gpu {
            process: gpu_process(settings),
            interval: intervals.gpu,
            deadline: intervals.gpu_deadline,
            reload: Gpu::RELOAD,
            synthetic: settings.simulate.is_some(),
            xids: xids.clone(),
            intake: intake.clone(),
            stop: stop.clone(),
        };
        let mut threads = Vec::new();
        let mut start = |part, source, work: Box<dyn FnOnce() + Send>| {
            let started = spawn(part, source, intake, work);
            started
                .map(|thread| threads.push(thread))
                .map_err(|source| AgentError::Thread { part, source })
        };
        start("job-log", Source::JobLog, Box::new(|| reader.run()))?;
        start("kernel-log", Source::KernelLog, Box::new(|| kernel_log.run()))?;
        start("host", Source::Host, Box::new(|| host.run()))?;
        start("hang", Source::Ranks, Box::new(|| hangs.run()))?;
        start("nic", Source::Nic, Box::new(|| nic.run()))?;
        start("gpu", Source::Gpu, Box::new(|| gpu.run()))?;
        for plugin in &settings.checks {
            let check = Check {
                plugin: plugin.clone(),
                intake: intake.clone(),
                stop: stop.clone(),
            };
            start("check", Source::Host, Box::new(|| check.run()))?;
        }
        Ok(Self {
            threads,
            job_logs: logs,
        })
    }

    /// Waits for them to end after they were asked to.
    pub(crate) fn join(self) {
        let deadline = Instant::now() + END_LIMIT;
        for thread in self.threads {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            if thread.is_finished() {
                let _ = thread.join();
            } else {
                tracing::warn!(
                    name = thread.thread().name(),
                    "a collector did not end; it is left behind"
                );
            }
        }
    }
}

/// Where dumps of crashes are: the kernel's own folder, and, on this machine's own tree, where systemd moves them.
fn pstore(settings: &Settings) -> Vec<PathBuf> {
    let mut folders = vec![settings.sysfs_root.join("fs/pstore")];
    if settings.sysfs_root == Path::new("/sys") {
        folders.push("/var/lib/systemd/pstore".into());
    }
    folders
}

/// How the process that calls the GPU library is started. A scenario starts with the agent, not with each such process.
fn gpu_process(settings: &Settings) -> Process {
    let environment = settings.simulate.iter().flat_map(|scenario| {
        let start = clock::now().0 / 1_000_000;
        [
            ("RANKGUARD_NVML_SCENARIO".into(), scenario.clone().into_os_string()),
            ("RANKGUARD_NVML_START".into(), start.to_string().into()),
        ]
    });
    Process {
        words: settings.gpu_process.clone(),
        environment: environment.collect(),
    }
}
