//! Devices that do not answer any more.

use std::collections::BTreeSet;

use rankguard_model::Role;

use super::look::DeviceLook;
use crate::collectors::judge::Change;
use crate::collectors::mark;

/// Those that were told to be lost, by address.
#[derive(Debug, Default)]
pub(super) struct Lost(BTreeSet<String>);

impl Lost {
    /// Something to report when a device is lost, or is back.
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
