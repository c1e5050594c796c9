//! GPUs, read through the vendor's management library (NVML).
//!
//! Every call into the library is made by a separate process that can be killed. A call that exceeds its deadline (a
//! wedged driver) blocks nothing and becomes evidence with the call and the device (RG-12); the process is killed and
//! another one tries again, after growing pauses. A process that does not die waits inside the kernel: it is abandoned
//! and counted. A node without the library reports that once; a library that appears or is replaced is loaded by the
//! next process.
//!
//! The rules on readings are data (`thresholds.toml`). XIDs come from the kernel log and as events of the library, and
//! become one finding (`xids`).
//!
//! MIG devices are read in turns (`mig`) and reported as devices of their own under the address of their GPU (`parts`).
//!
//! Absent: activity of single processes.

mod c2c;
mod calls;
mod current;
mod fabric;
mod fields;
mod library;
mod links;
mod lost;
mod mig;
mod mig_devices;
mod protocol;
mod reader;
mod readings;
mod worker;
mod xids;

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use rankguard_faults::classes;
use rankguard_model::{Classification, Device, DeviceKind, Entity, EvidenceBody, EvidenceSource, Role};

use super::threshold_evaluator::ThresholdEvaluator;
use super::thresholds::{self, ThresholdRule};
use crate::catalogue_handle::CatalogueHandle;
use crate::clock;
use crate::intake::EvidenceIntake;
use crate::pending_evidence::{PendingEvidence, mark, sample};
use crate::scenario;
use crate::stop_flag::StopFlag;
pub use calls::serve_gpu_calls;
use lost::LostDevices;
use mig_devices::MigDevices;
use protocol::XidEvent;
pub(crate) use protocol::{DevicePoll, LibraryAnswer};
pub(crate) use worker::{LibraryCommand, LibraryWorker, PollOutcome};
pub(crate) use xids::XidMerger;

/// Readings that are added to every finding about a device.
const BESIDE: &[&str] = &[
    "gpu.temperature",
    "gpu.temperature_margin",
    "gpu.power_milliwatts",
    "gpu.clock_mhz",
    "gpu.utilization_percent",
    "gpu.processes",
    "gpu.mig",
    "gpu.mig_devices",
    "gpu.nvlink_worst",
    "gpu.ecc_uncorrected_of_life",
];

/// Returns the threshold rules of GPUs.
pub(super) fn rules() -> &'static [ThresholdRule] {
    static RULES: LazyLock<Vec<ThresholdRule>> =
        LazyLock::new(|| thresholds::of_file(include_str!("gpu/thresholds.toml")));
    &RULES
}

/// Collector of GPUs.
#[derive(Debug)]
pub(crate) struct GpuCollector {
    /// Process that calls the library.
    pub(crate) process: LibraryCommand,
    pub(crate) interval: Duration,
    pub(crate) deadline: Duration,
    /// Pause between two attempts to load a missing library.
    pub(crate) reload: Duration,
    /// Scenario that a simulated library plays; if set, all evidence is marked as synthetic.
    pub(crate) scenario: Option<PathBuf>,
    pub(crate) xids: XidMerger,
    pub(crate) knowledge: CatalogueHandle,
    pub(crate) intake: EvidenceIntake,
    pub(crate) stop: StopFlag,
}

/// State that prevents repeated reports.
#[derive(Debug, Default)]
struct GpuReports {
    absent: Option<String>,
    hanging: bool,
    left_behind: usize,
    lost: LostDevices,
    parts: MigDevices,
}

impl GpuCollector {
    /// [`GpuCollector::reload`] for a real library: drivers are installed and replaced under a running agent.
    pub(crate) const RELOAD: Duration = Duration::from_secs(60);
    /// [`GpuCollector::reload`] for a scenario, which a person edits and corrects while watching.
    pub(crate) const RELOAD_SCENARIO: Duration = Duration::from_secs(1);

    /// Polls the GPUs until `stop` is set.
    pub(crate) fn run(self) {
        self.run_counted(|| {});
    }

    /// Runs as [`GpuCollector::run`] does, and calls `round` after each poll.
    fn run_counted(self, round: impl Fn()) {
        let mut worker = LibraryWorker::new(self.process.clone(), self.deadline, self.reload);
        let mut judge = ThresholdEvaluator::new(rules(), BESIDE);
        let mut told = GpuReports::default();
        loop {
            match worker.look(&self.stop) {
                PollOutcome::Answer(answer) => self.take(answer, &mut judge, &mut told),
                PollOutcome::Paused => self.report_events(Vec::new()),
                PollOutcome::Stopped => return,
            }
            self.report_left(worker.left_behind(), &mut told);
            round();
            let stopped = if told.hanging {
                self.stop.rest(self.interval)
            } else {
                self.stop.wait(self.interval)
            };
            if stopped {
                return;
            }
        }
    }

    fn take(&self, answer: LibraryAnswer, judge: &mut ThresholdEvaluator, told: &mut GpuReports) {
        match answer {
            LibraryAnswer::Absent(problem) => {
                // The library fails on an invalid scenario without giving the cause.
                let mistake = self.scenario.as_deref().and_then(|path| scenario::check(path).err());
                let problem = mistake.unwrap_or(problem);
                if told.absent.as_ref() != Some(&problem) {
                    self.intake
                        .gap(EvidenceSource::Gpu, format!("GPUs are not watched: {problem}"), None);
                    told.absent = Some(problem);
                }
                self.report_events(Vec::new());
            }
            LibraryAnswer::Stuck(call) => {
                if !std::mem::replace(&mut told.hanging, true) {
                    self.push_hang(call);
                }
                self.report_events(Vec::new());
            }
            LibraryAnswer::Seen { devices, xids, .. } => {
                told.absent = None;
                if std::mem::take(&mut told.hanging) {
                    self.push_line(
                        self.intake.node_entity(),
                        "the GPU management library answers again".to_owned(),
                        Vec::new(),
                    );
                }
                self.report(judge, told, &devices);
                self.report_events(xids);
            }
        }
    }

    fn report(&self, judge: &mut ThresholdEvaluator, told: &mut GpuReports, devices: &[DevicePoll]) {
        // Rates and durations are measured by the monotonic clock.
        let now = clock::steady();
        for look in devices {
            let changes = told.lost.take(look).into_iter();
            let own = judge.evaluate(now, &look.address, &look.readings);
            let parts: Vec<_> = look
                .parts
                .iter()
                .flat_map(|part| mig_devices::judge(judge, now, part))
                .collect();
            for change in changes.chain(own).chain(parts) {
                let entity = self.device(change.address);
                let sighting = sample(EvidenceSource::Gpu, entity, change.metric, change.value, change.unit);
                self.push(sighting.marked(change.marks));
            }
            for moved in told.parts.take(look) {
                self.push_line(self.device(moved.address), moved.what, Vec::new());
            }
        }
        self.intake.board().cut(told.parts.views(self.scenario.is_some()));
    }

    fn report_events(&self, xids: Vec<XidEvent>) {
        let steady = clock::steady();
        for (since, event) in self.xids.events(steady, xids) {
            let at = clock::now().before(steady.since(since));
            // Formatted like the driver's own lines, so that the same signatures classify the number.
            let text = format!(
                "NVRM: Xid (PCI:{}): {}, reported by the GPU management library",
                event.address, event.xid
            );
            let marks = self.knowledge.matcher().marks(EvidenceSource::KernelLog, &text);
            let sighting = PendingEvidence::now(EvidenceSource::Gpu, self.device(event.address), line(text)).at(at);
            self.push(sighting.marked(marks));
        }
    }

    fn report_left(&self, left: usize, told: &mut GpuReports) {
        if left > told.left_behind {
            let (noun, verbs, subject) = if left == 1 {
                ("process", "was killed and is", "it waits")
            } else {
                ("processes", "were killed and are", "they wait")
            };
            let text = format!(
                "{left} {noun} that called the GPU management library {verbs} not gone: {subject} inside the kernel"
            );
            let mut says = mark(classes::GPU_DRIVER_FAULT, Role::Confirmation, 0.7, "gpu.left_behind");
            says.fields.insert("left_behind".to_owned(), left.to_string());
            self.push_line(self.intake.node_entity(), text, vec![says]);
        }
        told.left_behind = left;
    }

    fn push_hang(&self, call: String) {
        let seconds = self.deadline.as_secs_f64();
        let what = format!("the GPU management library has not answered for {seconds} s in: {call}");
        let mut says = mark(classes::GPU_DRIVER_FAULT, Role::Root, 0.6, "gpu.call_deadline");
        says.fields.insert("call".to_owned(), call);
        self.push_line(self.intake.node_entity(), what, vec![says]);
    }

    fn push_line(&self, entity: Entity, text: String, marks: Vec<Classification>) {
        self.push(PendingEvidence::now(EvidenceSource::Gpu, entity, line(text)).marked(marks));
    }

    fn push(&self, sighting: PendingEvidence) {
        self.intake.push(sighting.synthetic(self.scenario.is_some()));
    }

    fn device(&self, address: String) -> Entity {
        Entity::Device {
            node: self.intake.node().clone(),
            device: Device {
                kind: DeviceKind::Gpu,
                address,
            },
        }
    }
}

fn line(text: String) -> EvidenceBody {
    EvidenceBody::Line {
        text,
        context: Vec::new(),
        repeats: 1,
    }
}

#[cfg(test)]
mod tests;
