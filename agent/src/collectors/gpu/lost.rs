//! Devices that no longer answer.

use std::collections::BTreeSet;

use rankguard_model::Role;

use super::look::DeviceLook;
use crate::collectors::judge::Change;
use crate::collectors::mark;

/// Addresses of the devices that are reported as lost.
#[derive(Debug, Default)]
pub(super) struct Lost(BTreeSet<String>);

impl Lost {
    /// Returns a change if a device is newly lost, or is back.
    pub(super) fn take(&mut self, look: &DeviceLook) -> Option<Change> {
        let changed = match &look.lost {
            Some(_) => self.0.insert(look.address.clone()),
            None => self.0.remove(&look.address),
        };
        let marks = look.lost.as_ref().map(|problem| {
            let mut says = mark("gpu-fallen-off-bus", Role::Root, 0.9, "gpu.lost");
            says.fields.insert("problem".to_owned(), problem.clone());
            says
        });
        changed.then(|| Change {
            address: look.address.clone(),
            metric: "gpu.lost",
            value: f64::from(u8::from(look.lost.is_some())),
            unit: "bool",
            marks: marks.into_iter().collect(),
        })
    }
}
