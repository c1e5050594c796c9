//! Starts and ends all collectors of one agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rankguard_model::{Source, Timestamp};

use super::check::Check;
use super::flight::FlightDumps;
use super::gpu::{Gpu, Process, Xids};
use super::hang::Hangs;
use super::host::Host;
use super::job_log::{JobLogs, job_logs};
use super::kernel_log::KernelLog;
use super::nic::Nic;
use super::nvme::Nvme;
use super::observe::Reporter;
use super::optics::Optics;
use super::pci::Pci;
use super::ras::Asker;
use super::{Stop, spawn};
use crate::clock;
use crate::error::AgentError;
use crate::inject::Overlay;
use crate::intake::Intake;
use crate::ranks::Roster;
use crate::settings::Settings;
use crate::spool::Spool;
use crate::uses::Uses;

/// Time limit for collectors to end. The thread of one that is blocked in a driver is abandoned (RG-12).
const END_LIMIT: Duration = Duration::from_secs(2);

/// Running collectors, with their handles.
pub(crate) struct Collectors {
    threads: Vec<JoinHandle<()>>,
    /// Handle of the reader of the ranks' output.
    pub(crate) job_logs: JobLogs,
    /// Handle of the reader of the ranks' flight recorders.
    pub(crate) flight: FlightDumps,
    /// Collector state that fault injection uses.
    pub(crate) injectable: Injectable,
}

/// Collector state that fault injection uses.
#[derive(Debug, Clone)]
pub(crate) struct Injectable {
    pub(crate) xids: Xids,
    pub(crate) overlay: Overlay,
    pub(crate) uses: Uses,
    /// Scenario file that is played, and its start time.
    pub(crate) scenario: Option<(PathBuf, Timestamp)>,
}

impl Collectors {
    /// Starts every collector that the settings enable.
    pub(crate) fn start(
        settings: &Settings,
        intake: &Intake,
        roster: &Roster,
        spool: &Arc<Spool>,
        stop: &Stop,
    ) -> Result<Self, AgentError> {
        let intervals = &settings.intervals;
        let injectable = Injectable {
            xids: Xids::default(),
            overlay: Overlay::default(),
            uses: Uses::new(&settings.proc_root, &settings.sysfs_root, roster),
            scenario: settings.simulate.clone().map(|scenario| (scenario, clock::now())),
        };
        let xids = &injectable.xids;
        let uses = &injectable.uses;
        let reporter = |source| Reporter {
            source,
            intake: intake.clone(),
            roster: roster.clone(),
            spool: spool.clone(),
            xids: xids.clone(),
            knowledge: settings.knowledge.clone(),
            uses: uses.clone(),
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
            state_dir: settings.state_dir.clone(),
            spool: spool.clone(),
            intake: intake.clone(),
            roster: roster.clone(),
            uses: uses.clone(),
            stop: stop.clone(),
        };
        let flight = FlightDumps::new(roster.clone(), intake.clone());
        let hangs = Hangs {
            proc_root: settings.proc_root.clone(),
            stack_process: settings.stack_process.clone(),
            interval: intervals.ranks,
            floor: intervals.stall,
            flight: flight.clone(),
            ras: Asker::new(intake.clone(), roster.clone(), stop.clone()),
            intake: intake.clone(),
            roster: roster.clone(),
            stop: stop.clone(),
        };
        let nic = Nic {
            sysfs_root: settings.sysfs_root.clone(),
            interval: intervals.nic,
            overlay: injectable.overlay.clone(),
            intake: intake.clone(),
            stop: stop.clone(),
        };
        let pci = Pci {
            sysfs_root: settings.sysfs_root.clone(),
            interval: intervals.nic,
            intake: intake.clone(),
            stop: stop.clone(),
        };
        let gpu = Gpu {
            process: gpu_process(settings, injectable.scenario.as_ref()),
            interval: intervals.gpu,
            deadline: intervals.gpu_deadline,
            reload: match &settings.simulate {
                Some(_) => Gpu::RELOAD_SCENARIO,
                None => Gpu::RELOAD,
            },
            scenario: settings.simulate.clone(),
            xids: xids.clone(),
            knowledge: settings.knowledge.clone(),
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
        start("pci", Source::Host, Box::new(|| pci.run()))?;
        // A recorded tree lists interfaces and disks that this machine does not have.
        if settings.sysfs_root == Path::new("/sys") {
            let optics = Optics {
                sysfs_root: settings.sysfs_root.clone(),
                intake: intake.clone(),
                stop: stop.clone(),
            };
            start("optics", Source::Nic, Box::new(|| optics.run()))?;
            let nvme = Nvme {
                sysfs_root: settings.sysfs_root.clone(),
                intake: intake.clone(),
                stop: stop.clone(),
            };
            start("nvme", Source::Host, Box::new(|| nvme.run()))?;
        }
        start("gpu", Source::Gpu, Box::new(|| gpu.run()))?;
        let (looking, until) = (flight.clone(), stop.clone());
        start("flight", Source::FlightRecorder, Box::new(move || looking.run(&until)))?;
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
            flight,
            injectable,
        })
    }

    /// Waits for the collectors to end, at most for [`END_LIMIT`]; the stop flag must be set before.
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

/// Returns the folders of crash dumps: pstore, and, for this machine's own tree, the folder to which systemd moves
/// them.
fn pstore(settings: &Settings) -> Vec<PathBuf> {
    let mut folders = vec![settings.sysfs_root.join("fs/pstore")];
    if settings.sysfs_root == Path::new("/sys") {
        folders.push("/var/lib/systemd/pstore".into());
    }
    folders
}

/// Returns the command of the process that calls the GPU library. The scenario clock starts with the agent and not with
/// each such process.
fn gpu_process(settings: &Settings, scenario: Option<&(PathBuf, Timestamp)>) -> Process {
    let environment = scenario.into_iter().flat_map(|(path, start)| {
        [
            ("RANKGUARD_NVML_SCENARIO".into(), path.clone().into_os_string()),
            ("RANKGUARD_NVML_START".into(), (start.0 / 1_000_000).to_string().into()),
        ]
    });
    Process {
        words: settings.gpu_process.clone(),
        environment: environment.collect(),
    }
}
