//! Optical modules of network interfaces: temperature, and sent and received power of each lane, against the module's
//! own limits.
//!
//! A module is read over a bus of a few kilobytes a second that may be stuck: the collector has a thread of its own and
//! reads once a minute. Copper cables report no light. Absent: modules of InfiniBand ports without a network interface,
//! recorded trees.

mod module;
mod netlink;

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use rankguard_model::{Device, DeviceKind, Entity, EvidenceSource};

use super::threshold_evaluator::{DeviceReadings, ThresholdEvaluator};
use super::thresholds::{self, ThresholdRule};
use crate::clock;
use crate::intake::EvidenceIntake;
use crate::pending_evidence::sample;
use crate::stop_flag::StopFlag;
use netlink::ModuleSocket;

/// Poll interval of the modules.
const EVERY: Duration = Duration::from_secs(60);

/// Readings that are added to every finding about a module.
const BESIDE: &[&str] = &[
    "nic.module_temperature",
    "nic.module_rx_power_least",
    "nic.module_tx_power_least",
];

/// Returns the threshold rules of modules.
pub(super) fn rules() -> &'static [ThresholdRule] {
    static RULES: LazyLock<Vec<ThresholdRule>> =
        LazyLock::new(|| thresholds::of_file(include_str!("optics/thresholds.toml")));
    &RULES
}

/// Collector of optical modules.
#[derive(Debug)]
pub(crate) struct OpticsCollector {
    pub(crate) sysfs_root: PathBuf,
    pub(crate) intake: EvidenceIntake,
    pub(crate) stop: StopFlag,
}

impl OpticsCollector {
    /// Polls the modules until `stop` is set.
    pub(crate) fn run(self) {
        let mut modules = match ModuleSocket::open() {
            Ok(modules) => modules,
            Err(problem) => {
                tracing::info!(%problem, "optical modules are not watched");
                return;
            }
        };
        let mut judge = ThresholdEvaluator::new(rules(), BESIDE);
        loop {
            for interface in self.interfaces() {
                let readings = module::read(|page| modules.page(&interface, page).ok());
                self.report(&mut judge, &interface, &readings);
            }
            if self.stop.wait(EVERY) {
                return;
            }
        }
    }

    /// Returns the interfaces with a device.
    fn interfaces(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.sysfs_root.join("class/net"))
            .into_iter()
            .flatten();
        let real = entries.flatten().filter(|entry| entry.path().join("device").exists());
        real.map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    fn report(&self, judge: &mut ThresholdEvaluator, interface: &str, readings: &DeviceReadings) {
        for change in judge.evaluate(clock::steady(), interface, readings) {
            let entity = Entity::Device {
                node: self.intake.node().clone(),
                device: Device {
                    kind: DeviceKind::Nic,
                    address: change.address,
                },
            };
            let sighting = sample(EvidenceSource::Nic, entity, change.metric, change.value, change.unit);
            self.intake.push(sighting.marked(change.marks));
        }
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::NodeId;

    use super::*;
    use crate::collectors::testing::told;

    #[test]
    fn a_module_that_is_hot_or_dark_is_told_by_its_own_limits() {
        let optics = OpticsCollector {
            sysfs_root: "/nowhere".into(),
            intake: EvidenceIntake::new(NodeId::from("a")),
            stop: StopFlag::default(),
        };
        let mut judge = ThresholdEvaluator::new(rules(), BESIDE);
        let readings = |temperature: f64, light: f64| {
            let all = [
                ("nic.module_temperature", temperature),
                ("nic.module_temperature_high", 70.0),
                ("nic.module_rx_power_least", light),
                ("nic.module_rx_power_low", 100.0),
            ];
            all.map(|(name, value)| (name.to_owned(), value)).into()
        };
        for (temperature, light) in [(50.0, 500.0), (70.0, 99.0), (60.0, 500.0)] {
            optics.report(&mut judge, "ens1", &readings(temperature, light));
        }
        let seen: Vec<String> = optics.intake.drain().iter().map(told).collect();
        let short: Vec<&str> = seen.iter().filter_map(|told| told.split(" | ").nth(1)).collect();
        assert_eq!(short, ["nic-fault", "nic-fault", "-", "-"], "{seen:?}");
        assert_eq!(optics.interfaces(), [""; 0]);
    }
}
