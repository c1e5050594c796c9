//! Devices that no longer answer.

use std::collections::BTreeSet;

use rankguard_faults::classes;
use rankguard_model::Role;

use super::protocol::DevicePoll;
use crate::collectors::threshold_evaluator::ThresholdFinding;
use crate::pending_evidence::mark;

/// Addresses of the devices that are reported as lost.
#[derive(Debug, Default)]
pub(super) struct LostDevices(BTreeSet<String>);

impl LostDevices {
    /// Returns a change if a device is newly lost, or is back.
    pub(super) fn take(&mut self, look: &DevicePoll) -> Option<ThresholdFinding> {
        let changed = match &look.lost {
            Some(_) => self.0.insert(look.address.clone()),
            None => self.0.remove(&look.address),
        };
        let marks = look.lost.as_ref().map(|problem| {
            let mut says = mark(classes::GPU_FALLEN_OFF_BUS, Role::Root, 0.9, "gpu.lost");
            says.fields.insert("problem".to_owned(), problem.clone());
            says
        });
        changed.then(|| ThresholdFinding {
            address: look.address.clone(),
            metric: "gpu.lost",
            value: f64::from(u8::from(look.lost.is_some())),
            unit: "bool",
            marks: marks.into_iter().collect(),
        })
    }
}
