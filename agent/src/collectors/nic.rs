//! Network adapters: state and rate of RDMA ports, their error counters, carrier of network interfaces, driver
//! statistics; over time, link flaps, pause storms and ports that are slower than others of their model.
//!
//! The first poll is the baseline and changes since the previous poll are reported, so that a port that was never up is
//! not. A counter without a class is reported at most once a minute. Absent: error rates over long times.

mod judge;
mod tree;
mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rankguard_model::{Device, DeviceKind, Entity, EvidenceBody, EvidenceSource};

use super::ethtool::EthtoolReader;
use super::reread_file::first_number;
use crate::intake::EvidenceIntake;
use crate::nic_overlay::NicOverlay;
use crate::pending_evidence::{PendingEvidence, sample};
use crate::stop_flag::StopFlag;
use judge::{NicFinding, changes, is_wanted, lost};
use tree::AdapterTree;
use watch::PortWatch;

/// Polls between two reads of the drivers' statistics, because some drivers query their firmware for them.
const DRIVERS_EVERY: u64 = 5;

/// Number of the kernel's port state ACTIVE.
pub(crate) const ACTIVE: f64 = 4.0;

/// Present state of an RDMA port. Values that cannot be read are absent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RdmaPort {
    pub(crate) device: String,
    pub(crate) number: String,
    /// Port state, as numbered by the kernel.
    pub(crate) state: Option<f64>,
    /// Link rate, Gbit/s.
    pub(crate) rate: Option<f64>,
}

/// Returns all RDMA ports of a sysfs tree, by device.
pub(crate) fn rdma_ports(sysfs: &Path) -> Vec<RdmaPort> {
    let devices = entries(&sysfs.join("class/infiniband"));
    let ports = devices.iter().flat_map(|device| {
        entries(&device.join("ports")).into_iter().map(move |port| RdmaPort {
            device: name(device),
            number: name(&port),
            state: number(&port.join("state")),
            rate: number(&port.join("rate")),
        })
    });
    ports.collect()
}

/// Collector of network adapters.
#[derive(Debug)]
pub(crate) struct NicCollector {
    pub(crate) sysfs_root: PathBuf,
    pub(crate) interval: Duration,
    /// Injected values that replace read ones.
    pub(crate) overlay: NicOverlay,
    pub(crate) intake: EvidenceIntake,
    pub(crate) stop: StopFlag,
}

/// Values by device and metric. Values that cannot be read are absent.
type NicValues = BTreeMap<String, BTreeMap<String, f64>>;

impl NicCollector {
    /// Polls the adapters until `stop` is set.
    pub(crate) fn run(self) {
        let rdma = self.sysfs_root.join("class/infiniband");
        let net = self.sysfs_root.join("class/net");
        for (path, what) in [(&rdma, "RDMA ports"), (&net, "network interfaces")] {
            if !path.is_dir() {
                let what = format!("{what} are not watched: there is no {}", path.display());
                self.intake.gap(EvidenceSource::Nic, what, None);
            }
        }
        // Recorded trees list interfaces that this machine does not have.
        let mut ethtool = Some(())
            .filter(|()| self.sysfs_root == Path::new("/sys"))
            .and_then(|()| EthtoolReader::open().ok());
        let mut watch = PortWatch::default();
        let mut tree = AdapterTree::new(&self.sysfs_root);
        let mut looks = 0_u64;
        tree.refresh();
        let mut before = self.look(&tree, ethtool.as_mut());
        watch.look(&before, tree.models(), Instant::now());
        let mut over = false;
        while !self.stop.wait(self.interval) {
            looks += 1;
            let drivers = ethtool.as_mut().filter(|_| looks.is_multiple_of(DRIVERS_EVERY));
            let was_over = std::mem::replace(&mut over, self.overlay.is_laid());
            let differs = tree.refresh();
            if !differs && drivers.is_none() && !over && !was_over {
                continue;
            }
            let now = self.look(&tree, drivers);
            let at = Instant::now();
            let mut told = changes(&before, &now);
            told.retain(|change| watch.is_news(change, at));
            told.extend(watch.look(&now, tree.models(), at));
            for change in told {
                self.intake.push(self.sighting(change));
            }
            for (device, what) in lost(&before, &now) {
                let body = EvidenceBody::Gap { what, lost: None };
                self.intake
                    .push(PendingEvidence::now(EvidenceSource::Nic, self.entity(device), body));
            }
            before = remember(before, now);
        }
    }

    fn look(&self, tree: &AdapterTree, ethtool: Option<&mut EthtoolReader>) -> NicValues {
        let mut found = tree.values();
        if let Some(ethtool) = ethtool {
            ethtool.keep(|interface| found.contains_key(interface));
            for (interface, values) in &mut found {
                let told = ethtool.read(interface, is_wanted).into_iter();
                values.extend(told.map(|(name, value)| (format!("nic.{name}"), known(value as f64))));
            }
        }
        self.overlay.apply(&mut found);
        found
    }

    fn entity(&self, device: String) -> Entity {
        Entity::Device {
            node: self.intake.node().clone(),
            device: Device {
                kind: DeviceKind::Nic,
                address: device,
            },
        }
    }

    fn sighting(&self, change: NicFinding) -> PendingEvidence {
        let entity = self.entity(change.device);
        sample(EvidenceSource::Nic, entity, &change.metric, change.value, change.unit).marked(change.marks)
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Maps a counter at the end of its range to infinity: it does not count until it is reset, so that its value is
/// unknown.
fn known(count: f64) -> f64 {
    if count == f64::from(u32::MAX) || count >= u64::MAX as f64 {
        f64::INFINITY
    } else {
        count
    }
}

fn number(path: &Path) -> Option<f64> {
    first_number(&fs::read_to_string(path).ok()?)
}

/// Merges a poll into the last known values, so that a value which could not be read once is compared later.
fn remember(mut before: NicValues, now: NicValues) -> NicValues {
    before.retain(|device, _| now.contains_key(device));
    for (device, values) in now {
        before.entry(device).or_default().extend(values);
    }
    before
}

#[cfg(test)]
mod tests;
