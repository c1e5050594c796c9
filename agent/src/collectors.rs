//! Collectors. Each one observes one source on its own thread and schedule. A collector that cannot run reports that
//! once as a gap. No collector can block another one, and none takes a decision.

mod all;
pub(crate) mod check;
mod ethtool;
pub(crate) mod file;
mod flight;
mod followed;
pub(crate) mod gpu;
mod hang;
mod held_lines;
pub(crate) mod host;
mod host_load;
mod inotify;
pub(crate) mod job_log;
mod journal;
pub(crate) mod kernel_log;
pub(crate) mod kmsg;
mod limits;
mod mounts;
pub(crate) mod nic;
mod nvme;
pub(crate) mod observe;
mod optics;
mod pci;
mod platform;
mod previous;
mod ras;
mod removal;
mod reread_file;
mod ring;
mod stream;
#[cfg(test)]
pub(crate) mod testing;
mod threshold_evaluator;
mod thresholds;
mod uptime;
mod vitals;
mod wait;
mod waker;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use rankguard_model::EvidenceSource;

use crate::intake::EvidenceIntake;
pub(crate) use all::{CollectorSet, InjectionTargets};
pub(crate) use flight::{FlightDumps, pipe_can_be_made};
pub(crate) use job_log::JobLogs;
pub use job_log::is_log_path;
pub(crate) use kernel_log::{KernelLogHandle, is_read_before_exits};
pub(crate) use stream::triage;

/// Starts a collector on its own thread. A panic of the collector becomes a gap and does not end the agent (RG-12).
pub(crate) fn spawn(
    name: &'static str,
    source: EvidenceSource,
    intake: &EvidenceIntake,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let intake = intake.clone();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            intake.gap(
                source,
                format!("the {name} collector failed and is absent from now on"),
                None,
            );
        }
    })
}
