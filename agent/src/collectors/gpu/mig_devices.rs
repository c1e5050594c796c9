//! Reports of MIG devices: changes of each, additions and removals, and the list for the agent's API.
//!
//! A removed MIG device is not a fault, because people repartition GPUs; it is reported because programs on it lost it.

use std::collections::BTreeMap;

use rankguard_model::Timestamp;

use super::protocol::{DevicePoll, MigDeviceReading};
use crate::collectors::threshold_evaluator::{ThresholdEvaluator, ThresholdFinding};
use crate::views::MigView;

/// MIG devices at the last poll, by address of the GPU and of the device.
#[derive(Debug, Default)]
pub(super) struct MigDevices(BTreeMap<String, BTreeMap<String, MigDeviceReading>>);

/// MIG device that was added or removed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MigChange {
    pub(super) address: String,
    /// Description, as a sentence.
    pub(super) what: String,
}

impl MigDevices {
    /// Takes a poll of a GPU and returns the changes. The first poll, and a poll of a lost GPU, give none.
    pub(super) fn take(&mut self, look: &DevicePoll) -> Vec<MigChange> {
        if look.lost.is_some() {
            return Vec::new();
        }
        let now: BTreeMap<String, MigDeviceReading> =
            look.parts.iter().map(|it| (it.address.clone(), it.clone())).collect();
        let Some(before) = self.0.insert(look.address.clone(), now) else {
            return Vec::new();
        };
        let now = self.0.get(&look.address).into_iter().flatten();
        let came = now.filter(|(address, _)| !before.contains_key(*address));
        let came = came.map(|(_, part)| moved(part, "is there"));
        let listed = |address: &String| look.parts.iter().any(|part| part.address == *address);
        let gone = before.iter().filter(|(address, _)| !listed(address));
        came.chain(gone.map(|(_, part)| moved(part, "is there no longer")))
            .collect()
    }

    /// Returns all known MIG devices; `synthetic` is true if they come from a scenario.
    pub(super) fn views(&self, synthetic: bool) -> Vec<MigView> {
        let parts = self
            .0
            .iter()
            .flat_map(|(gpu, parts)| parts.values().map(move |part| (gpu, part)));
        parts.map(|(gpu, part)| view(gpu, part, synthetic)).collect()
    }
}

/// Applies the threshold rules to a MIG device; each finding carries its UUID.
pub(super) fn judge(judge: &mut ThresholdEvaluator, now: Timestamp, part: &MigDeviceReading) -> Vec<ThresholdFinding> {
    let mut changes = judge.evaluate(now, &part.address, &part.readings);
    if let Some(uuid) = &part.uuid {
        for mark in changes.iter_mut().flat_map(|change| &mut change.marks) {
            mark.fields.insert("gpu.uuid".to_owned(), uuid.clone());
        }
    }
    changes
}

fn moved(part: &MigDeviceReading, how: &str) -> MigChange {
    let uuid = part.uuid.as_deref().unwrap_or("without a UUID");
    MigChange {
        address: part.address.clone(),
        what: format!("the MIG device {} ({uuid}) {how}", part.address),
    }
}

fn view(gpu: &str, part: &MigDeviceReading, synthetic: bool) -> MigView {
    let number = |name: &str| part.readings.get(name).map(|value| *value as u64);
    MigView {
        gpu: gpu.to_owned(),
        address: part.address.clone(),
        uuid: part.uuid.clone(),
        memory_bytes: number("gpu.memory_bytes"),
        memory_used_bytes: number("gpu.memory_used_bytes"),
        ecc_uncorrected: number("gpu.ecc_uncorrected"),
        processes: number("gpu.processes"),
        synthetic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(parts: &[&str], lost: bool) -> DevicePoll {
        let part = |address: &&str| MigDeviceReading {
            address: format!("0000:9b:00/{address}"),
            ..MigDeviceReading::default()
        };
        DevicePoll {
            address: "0000:9b:00".to_owned(),
            lost: lost.then(|| "it is".to_owned()),
            parts: parts.iter().map(part).collect(),
            ..DevicePoll::default()
        }
    }

    #[test]
    fn parts_that_come_and_go_are_told_and_those_of_a_lost_device_are_not_known() {
        let mut parts = MigDevices::default();
        let mut told = |look: DevicePoll| parts.take(&look).into_iter().map(|it| it.what).collect::<Vec<_>>();
        assert!(told(look(&["1/0", "2/0"], false)).is_empty());
        assert!(told(look(&[], true)).is_empty());
        assert_eq!(
            told(look(&["2/0", "3/0"], false)),
            [
                "the MIG device 0000:9b:00/3/0 (without a UUID) is there",
                "the MIG device 0000:9b:00/1/0 (without a UUID) is there no longer"
            ]
        );
        assert_eq!(parts.views(false).len(), 2);
    }
}
