//! PCI devices that training depends on: GPUs, network adapters, NVSwitches, disks. Width and speed of their links, and
//! the errors that both ends of each link count (AER), by type (`types`): a finding names the types that have grown.
//!
//! The values come from sysfs, so that they are available without a driver library, or while that library hangs. The
//! rules are data (`thresholds.toml`). Absent: links above the next port, access control between devices.

mod tree;
mod types;

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use rankguard_model::{Entity, EvidenceSource, Timestamp};

use super::threshold_evaluator::ThresholdEvaluator;
use super::thresholds::{self, ThresholdRule};
use crate::clock;
use crate::intake::EvidenceIntake;
use crate::pending_evidence::sample;
use crate::stop_flag::StopFlag;
use tree::PciTree;

/// Readings that are added to every finding about a device.
const BESIDE: &[&str] = &["pci.link_width", "pci.link_speed"];

/// Returns the threshold rules of PCI devices.
pub(super) fn rules() -> &'static [ThresholdRule] {
    static RULES: LazyLock<Vec<ThresholdRule>> =
        LazyLock::new(|| thresholds::of_file(include_str!("pci/thresholds.toml")));
    &RULES
}

/// Collector of PCI devices.
#[derive(Debug)]
pub(crate) struct PciCollector {
    pub(crate) sysfs_root: PathBuf,
    pub(crate) interval: Duration,
    pub(crate) intake: EvidenceIntake,
    pub(crate) stop: StopFlag,
}

impl PciCollector {
    /// Polls the devices until `stop` is set.
    pub(crate) fn run(self) {
        let mut tree = PciTree::new(&self.sysfs_root);
        let mut judge = ThresholdEvaluator::new(rules(), BESIDE);
        loop {
            // Rates and durations are measured by the monotonic clock.
            self.look(&mut tree, &mut judge, clock::steady());
            if self.stop.wait(self.interval) {
                return;
            }
        }
    }

    fn look(&self, tree: &mut PciTree, judge: &mut ThresholdEvaluator, now: Timestamp) {
        for (watched, readings) in tree.look() {
            for mut change in judge.evaluate(now, &watched.address, &readings) {
                if let Some(says) = change.marks.first_mut()
                    && let Some(types) = watched.grown(change.metric)
                {
                    says.fields.insert("pci.error_types".to_owned(), types);
                }
                let entity = Entity::Device {
                    node: self.intake.node().clone(),
                    device: watched.device.clone(),
                };
                let sighting = sample(EvidenceSource::Host, entity, change.metric, change.value, change.unit);
                self.intake.push(sighting.marked(change.marks));
            }
        }
    }
}

#[cfg(test)]
mod tests;
