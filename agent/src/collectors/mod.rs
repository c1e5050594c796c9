//! Collectors. Each one observes one source on its own thread and schedule. A collector that cannot run reports that
//! once as a gap. No collector can block another one, and none takes a decision.

mod all;
mod bell;
pub(crate) mod check;
mod ethtool;
pub(crate) mod file;
mod flight;
mod followed;
pub(crate) mod gpu;
mod hang;
mod held;
pub(crate) mod host;
mod in_use;
pub(crate) mod job_log;
mod journal;
mod judge;
mod kept;
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
mod ring;
mod stirs;
mod stop;
mod stream;
#[cfg(test)]
pub(crate) mod testing;
mod thresholds;
mod uptime;
mod vitals;
mod wait;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use rankguard_model::{Body, ClassId, Entity, Fields, Mark, Role, Source};

use crate::intake::Intake;
use crate::sighting::Sighting;
pub(crate) use all::{Collectors, Injectable};
pub(crate) use flight::{FlightDumps, pipe_can_be_made};
pub(crate) use job_log::JobLogs;
pub use job_log::is_log_path;
pub(crate) use mounts::unescape;
pub(crate) use stop::Stop;
pub(crate) use stream::triage;

/// Starts a collector on its own thread. A panic of the collector becomes a gap and does not end the agent (RG-12).
pub(crate) fn spawn(
    name: &'static str,
    source: Source,
    intake: &Intake,
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

/// Builds the evidence for a measured value that is beyond its threshold.
pub(crate) fn sample(source: Source, entity: Entity, metric: &str, value: f64, unit: &str) -> Sighting {
    let body = Body::Sample {
        metric: metric.to_owned(),
        value,
        unit: unit.to_owned(),
    };
    Sighting::now(source, entity, body)
}

/// Builds the classification of a measured value: failure class of the catalogue, role, confidence and signature.
pub(crate) fn mark(class: &str, role: Role, confidence: f64, signature: &str) -> Mark {
    Mark {
        class: ClassId::from(class),
        role,
        confidence,
        signature: signature.into(),
        fields: Fields::new(),
    }
}
