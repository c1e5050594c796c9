//! Starts and ends all collectors of one agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rankguard_model::{EvidenceSource, Timestamp};

use super::check::PluginCollector;
use super::flight::FlightDumps;
use super::gpu::{GpuCollector, LibraryCommand, XidMerger};
use super::hang::HangCollector;
use super::host::HostCollector;
use super::job_log::{JobLogs, job_logs};
use super::kernel_log::{KernelLog, KernelLogHandle};
use super::nic::NicCollector;
use super::nvme::NvmeCollector;
use super::observe::LineReporter;
use super::optics::OpticsCollector;
use super::pci::PciCollector;
use super::ras::RasClient;
use super::removal::RemovalCollector;
use super::spawn;
use crate::clock;
use crate::error::AgentError;
use crate::intake::EvidenceIntake;
use crate::mount_users::MountUsers;
use crate::nic_overlay::NicOverlay;
use crate::roster::RankRoster;
use crate::settings::AgentSettings;
use crate::spool::Spool;
use crate::stop_flag::StopFlag;

/// Time limit for collectors to end. The thread of one that is blocked in a driver is abandoned (RG-12).
const END_LIMIT: Duration = Duration::from_secs(2);

/// Running collectors, with their handles.
pub(crate) struct CollectorSet {
    threads: Vec<JoinHandle<()>>,
    /// Handle of the reader of the ranks' output.
    pub(crate) job_logs: JobLogs,
    /// Handle of the reader of the kernel log.
    pub(crate) kernel_log: KernelLogHandle,
    /// Handle of the reader of the ranks' flight recorders.
    pub(crate) flight: FlightDumps,
    /// Collector state that fault injection uses.
    pub(crate) injectable: InjectionTargets,
}

/// Collector state that fault injection uses.
#[derive(Debug, Clone)]
pub(crate) struct InjectionTargets {
    pub(crate) xids: XidMerger,
    pub(crate) overlay: NicOverlay,
    pub(crate) uses: MountUsers,
    /// Scenario file that is played, and its start time.
    pub(crate) scenario: Option<(PathBuf, Timestamp)>,
}

impl CollectorSet {
    /// Starts every collector that the settings enable.
    pub(crate) fn start(
        settings: &AgentSettings,
        intake: &EvidenceIntake,
        roster: &RankRoster,
        spool: &Arc<Spool>,
        stop: &StopFlag,
    ) -> Result<Self, AgentError> {
        let intervals = &settings.intervals;
        let injectable = InjectionTargets {
            xids: XidMerger::default(),
            overlay: NicOverlay::default(),
            uses: MountUsers::new(&settings.proc_root, &settings.sysfs_root, roster),
            scenario: settings.simulate.clone().map(|scenario| (scenario, clock::now())),
        };
        let xids = &injectable.xids;
        let uses = &injectable.uses;
        let reporter = |source| LineReporter {
            source,
            intake: intake.clone(),
            roster: roster.clone(),
            spool: spool.clone(),
            xids: xids.clone(),
            knowledge: settings.knowledge.clone(),
            uses: uses.clone(),
        };
        let (logs, reader) = job_logs(
            &settings.job_logs,
            intervals.logs,
            reporter(EvidenceSource::JobLog),
            stop,
        );
        let (kernel_log_handle, requests) = KernelLogHandle::new();
        let kernel_log = KernelLog {
            from: settings.kernel_log.clone(),
            proc_root: settings.proc_root.clone(),
            journal: settings.journal.clone(),
            pstore: pstore(settings),
            interval: intervals.logs,
            reporter: reporter(EvidenceSource::KernelLog),
            stop: stop.clone(),
        };
        let host = HostCollector {
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
        let hangs = HangCollector {
            proc_root: settings.proc_root.clone(),
            stack_process: settings.stack_process.clone(),
            interval: intervals.ranks,
            floor: intervals.stall,
            flight: flight.clone(),
            ras: RasClient::new(intake.clone(), roster.clone(), stop.clone()),
            intake: intake.clone(),
            roster: roster.clone(),
            stop: stop.clone(),
        };
        let nic = NicCollector {
            sysfs_root: settings.sysfs_root.clone(),
            interval: intervals.nic,
            overlay: injectable.overlay.clone(),
            intake: intake.clone(),
            stop: stop.clone(),
        };
        let pci = PciCollector {
            sysfs_root: settings.sysfs_root.clone(),
            interval: intervals.nic,
            intake: intake.clone(),
            stop: stop.clone(),
        };
        let gpu = GpuCollector {
            process: gpu_process(settings, injectable.scenario.as_ref()),
            interval: intervals.gpu,
            deadline: intervals.gpu_deadline,
            reload: match &settings.simulate {
                Some(_) => GpuCollector::RELOAD_SCENARIO,
                None => GpuCollector::RELOAD,
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
        start("job-log", EvidenceSource::JobLog, Box::new(|| reader.run()))?;
        start(
            "kernel-log",
            EvidenceSource::KernelLog,
            Box::new(|| kernel_log.run(requests)),
        )?;
        start("host", EvidenceSource::Host, Box::new(|| host.run()))?;
        start("hang", EvidenceSource::Ranks, Box::new(|| hangs.run()))?;
        start("nic", EvidenceSource::Nic, Box::new(|| nic.run()))?;
        start("pci", EvidenceSource::Host, Box::new(|| pci.run()))?;
        // A recorded tree lists interfaces and disks that this machine does not have.
        if settings.sysfs_root == Path::new("/sys") {
            let optics = OpticsCollector {
                sysfs_root: settings.sysfs_root.clone(),
                intake: intake.clone(),
                stop: stop.clone(),
            };
            start("optics", EvidenceSource::Nic, Box::new(|| optics.run()))?;
            let nvme = NvmeCollector {
                sysfs_root: settings.sysfs_root.clone(),
                intake: intake.clone(),
                stop: stop.clone(),
            };
            start("nvme", EvidenceSource::Host, Box::new(|| nvme.run()))?;
        }
        start("gpu", EvidenceSource::Gpu, Box::new(|| gpu.run()))?;
        let looking = flight.clone();
        let until = stop.clone();
        start(
            "flight",
            EvidenceSource::FlightRecorder,
            Box::new(move || looking.run(&until)),
        )?;
        if settings.removal.cloud.is_some() || settings.removal.file.is_some() {
            let removal = RemovalCollector {
                settings: settings.removal.clone(),
                interval: intervals.removal,
                intake: intake.clone(),
                stop: stop.clone(),
            };
            start("removal", EvidenceSource::Host, Box::new(|| removal.run()))?;
        }
        for plugin in &settings.checks {
            let check = PluginCollector {
                plugin: plugin.clone(),
                intake: intake.clone(),
                stop: stop.clone(),
            };
            start("check", EvidenceSource::Host, Box::new(|| check.run()))?;
        }
        Ok(Self {
            threads,
            job_logs: logs,
            kernel_log: kernel_log_handle,
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
fn pstore(settings: &AgentSettings) -> Vec<PathBuf> {
    let mut folders = vec![settings.sysfs_root.join("fs/pstore")];
    if settings.sysfs_root == Path::new("/sys") {
        folders.push("/var/lib/systemd/pstore".into());
    }
    folders
}

/// Returns the command of the process that calls the GPU library. The scenario clock starts with the agent and not with
/// each such process.
fn gpu_process(settings: &AgentSettings, scenario: Option<&(PathBuf, Timestamp)>) -> LibraryCommand {
    let environment = scenario.into_iter().flat_map(|(path, start)| {
        [
            ("RANKGUARD_NVML_SCENARIO".into(), path.clone().into_os_string()),
            ("RANKGUARD_NVML_START".into(), (start.0 / 1_000_000).to_string().into()),
        ]
    });
    LibraryCommand {
        words: settings.gpu_process.clone(),
        environment: environment.collect(),
    }
}
