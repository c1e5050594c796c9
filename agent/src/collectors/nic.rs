//! Network adapters, from sysfs: state and rate of RDMA ports, their error counters, carrier of network interfaces.
//!
//! The first look is the baseline; changes against the look before are reported, so a port that was never up is no news.
//! Absent: ethtool statistics, optics, PCIe link state, rates over time (a slowly rising symbol error count is reported
//! as increases and judged by nobody).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rankguard_model::{Device, DeviceKind, Entity, Mark, Role, Source};

use super::{Stop, mark, sample};
use crate::inject::Overlay;
use crate::intake::Intake;
use crate::sighting::Sighting;

/// Error counters of an RDMA port, whose every increase is reported.
const COUNTERS: [(&str, &str); 12] = [
    ("counters", "link_downed"),
    ("counters", "link_error_recovery"),
    ("counters", "symbol_error"),
    ("counters", "port_rcv_errors"),
    ("counters", "port_xmit_discards"),
    ("counters", "local_link_integrity_errors"),
    ("counters", "excessive_buffer_overrun_errors"),
    ("hw_counters", "rnr_nak_retry_err"),
    ("hw_counters", "local_ack_timeout_err"),
    ("hw_counters", "packet_seq_err"),
    ("hw_counters", "req_cqe_error"),
    ("hw_counters", "roce_slow_restart"),
];

/// A port state as the kernel numbers it.
pub(crate) const ACTIVE: f64 = 4.0;

/// A port of an RDMA device as it is now. A value that cannot be read is absent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RdmaPort {
    pub(crate) device: String,
    pub(crate) number: String,
    /// State as the kernel numbers it.
    pub(crate) state: Option<f64>,
    /// Gigabits per second.
    pub(crate) rate: Option<f64>,
}

/// All RDMA ports of a sysfs tree, by device.
pub(crate) fn rdma_ports(sysfs: &Path) -> Vec<RdmaPort> {
    let devices = entries(&sysfs.join("class/infiniband"));
    let ports = devices.iter().flat_map(|device| {
        entries(&device.join("ports")).into_iter().map(move |port| RdmaPort {
            device: name(device),
            number: name(&port),
            state: first_number(&port.join("state")),
            rate: first_number(&port.join("rate")),
        })
    });
    ports.collect()
}

/// Everything the collector needs.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) sysfs_root: PathBuf,
    pub(crate) interval: Duration,
    /// Values that somebody injects.
    pub(crate) overlay: Overlay,
    pub(crate) intake: Intake,
    pub(crate) stop: Stop,
}

/// Values by what they belong to: device, then metric. A value that cannot be read is not there.
type Look = BTreeMap<String, BTreeMap<String, f64>>;

impl Nic {
    /// Until asked to stop.
    pub(crate) fn run(self) {
        let rdma = self.sysfs_root.join("class/infiniband");
        let net = self.sysfs_root.join("class/net");
        for (path, what) in [(&rdma, "RDMA ports"), (&net, "network interfaces")] {
            if !path.is_dir() {
                let what = format!("{what} are not watched: there is no {}", path.display());
                self.intake.gap(Source::Nic, what, None);
            }
        }
        let mut before = self.look();
        while !self.stop.wait(self.interval) {
            let now = self.look();
            for change in changes(&before, &now) {
                self.intake.push(self.sighting(change));
            }
            before = remember(before, now);
        }
    }

    fn look(&self) -> Look {
        let mut found = look(&self.sysfs_root);
        self.overlay.apply(&mut found);
        found
    }

    fn sighting(&self, change: Change) -> Sighting {
        let entity = Entity::Device {
            node: self.intake.node().clone(),
            device: Device {
                kind: DeviceKind::Nic,
                address: change.device,
            },
        };
        sample(Source::Nic, entity, &change.metric, change.value, change.unit).marked(change.marks)
    }
}

/// One thing that is different.
#[derive(Debug, PartialEq)]
struct Change {
    device: String,
    metric: String,
    value: f64,
    unit: &'static str,
    marks: Vec<Mark>,
}

fn look(sysfs: &Path) -> Look {
    let mut found = Look::new();
    for device in entries(&sysfs.join("class/infiniband")) {
        for port in entries(&device.join("ports")) {
            let of_port = found.entry(name(&device)).or_default();
            let number = name(&port);
            let mut put = |metric: &str, value: Option<f64>| {
                if let Some(value) = value {
                    of_port.insert(format!("{metric} port {number}"), value);
                }
            };
            // "4: ACTIVE", "400 Gb/sec (4X NDR)"
            put("nic.port_state", first_number(&port.join("state")));
            put("nic.phys_state", first_number(&port.join("phys_state")));
            put("nic.port_rate", first_number(&port.join("rate")));
            for (folder, counter) in COUNTERS {
                put(
                    &format!("nic.{counter}"),
                    counter_value(&port.join(folder).join(counter)),
                );
            }
        }
        // A device without ports is still there, and its absence later is a change.
        found.entry(name(&device)).or_default();
    }
    for interface in entries(&sysfs.join("class/net")) {
        // Only interfaces with a device behind them: containers make and drop virtual ones all day.
        if !interface.join("device").exists() {
            continue;
        }
        let of_interface = found.entry(name(&interface)).or_default();
        if let Ok(state) = fs::read_to_string(interface.join("operstate")) {
            let up = f64::from(u8::from(state.trim() == "up"));
            of_interface.insert("nic.operstate_up".to_owned(), up);
        }
        if let Some(changes) = first_number(&interface.join("carrier_changes")) {
            of_interface.insert("nic.carrier_changes".to_owned(), changes);
        }
    }
    found
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

/// A counter. One that has reached the end of 32 bits stands there until it is reset: what it counts is not known.
fn counter_value(path: &Path) -> Option<f64> {
    first_number(path).filter(|value| *value != f64::from(u32::MAX))
}

/// The number a sysfs file begins with.
fn first_number(path: &Path) -> Option<f64> {
    // Some hundred of them are read every second: neither asked for their size nor kept.
    let mut buffer = [0; 64];
    let length = File::open(path).and_then(|mut file| file.read(&mut buffer)).ok()?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The last known value of everything that is there: one that could not be read once is compared when it can be again.
fn remember(mut before: Look, now: Look) -> Look {
    before.retain(|device, _| now.contains_key(device));
    for (device, values) in now {
        before.entry(device).or_default().extend(values);
    }
    before
}

fn changes(before: &Look, now: &Look) -> Vec<Change> {
    let mut found = Vec::new();
    for (device, old) in before {
        let Some(new) = now.get(device) else {
            found.push(Change {
                device: device.clone(),
                metric: "nic.present".to_owned(),
                value: 0.0,
                unit: "bool",
                marks: vec![mark("nic-fault", Role::Root, 0.8, "nic.present")],
            });
            continue;
        };
        for (metric, value) in new {
            let Some(was) = old.get(metric).filter(|was| *was != value) else {
                continue;
            };
            if let Some((unit, marks)) = judge(metric, *was, *value) {
                found.push(Change {
                    device: device.clone(),
                    metric: metric.clone(),
                    value: *value,
                    unit,
                    marks,
                });
            }
        }
    }
    for device in now.keys().filter(|device| !before.contains_key(*device)) {
        found.push(Change {
            device: device.clone(),
            metric: "nic.present".to_owned(),
            value: 1.0,
            unit: "bool",
            marks: Vec::new(),
        });
    }
    found
}

/// Whether a change is worth reporting, and what it says. Recovery is reported without a mark.
fn judge(metric: &str, was: f64, value: f64) -> Option<(&'static str, Vec<Mark>)> {
    let (short, _) = metric.split_once(" port ").unwrap_or((metric, ""));
    let one = |class, role, confidence| vec![mark(class, role, confidence, short)];
    match short {
        "nic.port_state" if was == ACTIVE => Some(("state", one("nic-link-down", Role::Root, 0.8))),
        "nic.port_state" | "nic.phys_state" => Some(("state", Vec::new())),
        "nic.port_rate" if value < was => Some(("gigabits-per-second", one("nic-fault", Role::Root, 0.5))),
        "nic.port_rate" => Some(("gigabits-per-second", Vec::new())),
        "nic.operstate_up" if value == 0.0 => Some(("bool", one("nic-link-down", Role::Root, 0.8))),
        "nic.operstate_up" => Some(("bool", Vec::new())),
        // A counter that went back was reset; nothing is known of what it missed.
        _ if value < was => None,
        "nic.link_downed" => Some(("count", one("nic-link-flap", Role::Root, 0.7))),
        // Down and up again between two looks counts two.
        "nic.carrier_changes" if value - was >= 2.0 => Some(("count", one("nic-link-flap", Role::Root, 0.6))),
        "nic.local_link_integrity_errors" | "nic.excessive_buffer_overrun_errors" | "nic.rnr_nak_retry_err" => {
            Some(("count", one("nic-fault", Role::Confirmation, 0.5)))
        }
        _ => Some(("count", Vec::new())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// One RDMA device and one interface, as sysfs shows them.
    fn fixture() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let port = dir.path().join("class/infiniband/mlx5_0/ports/1");
        fs::create_dir_all(port.join("counters")).unwrap();
        fs::create_dir_all(port.join("hw_counters")).unwrap();
        fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
        fs::write(port.join("rate"), "400 Gb/sec (4X NDR)\n").unwrap();
        fs::write(port.join("counters/link_downed"), "3\n").unwrap();
        fs::write(port.join("counters/symbol_error"), "0\n").unwrap();
        fs::write(port.join("hw_counters/packet_seq_err"), "garbage\n").unwrap();
        let interface = dir.path().join("class/net/ens1");
        fs::create_dir_all(interface.join("device")).unwrap();
        fs::write(interface.join("operstate"), "up\n").unwrap();
        fs::write(interface.join("carrier_changes"), "7\n").unwrap();
        let veth = dir.path().join("class/net/veth12");
        fs::create_dir_all(&veth).unwrap();
        fs::write(veth.join("operstate"), "up\n").unwrap();
        dir
    }

    fn check(change: impl FnOnce(&Path), expect: &[(&str, &str, f64, Option<&str>)]) {
        let dir = fixture();
        let before = look(dir.path());
        change(&dir.path().join("class"));
        let found = changes(&before, &look(dir.path()));
        let told: Vec<_> = found
            .iter()
            .map(|c| {
                let class = c.marks.first().map(|mark| mark.class.as_str());
                (c.device.as_str(), c.metric.as_str(), c.value, class)
            })
            .collect();
        assert_eq!(told, expect);
    }

    #[test]
    fn a_quiet_adapter_is_no_news() {
        check(|_| {}, &[]);
    }

    #[test]
    fn a_port_that_leaves_active_is_down_and_its_counter_a_flap() {
        check(
            |class| {
                fs::write(class.join("infiniband/mlx5_0/ports/1/state"), "1: DOWN\n").unwrap();
                fs::write(class.join("infiniband/mlx5_0/ports/1/counters/link_downed"), "4\n").unwrap();
            },
            &[
                ("mlx5_0", "nic.link_downed port 1", 4.0, Some("nic-link-flap")),
                ("mlx5_0", "nic.port_state port 1", 1.0, Some("nic-link-down")),
            ],
        );
    }

    #[test]
    fn a_counter_at_the_end_of_its_range_is_not_known() {
        check(
            |class| {
                let counters = class.join("infiniband/mlx5_0/ports/1/counters");
                fs::write(counters.join("symbol_error"), "4294967295\n").unwrap();
            },
            &[],
        );
    }

    #[test]
    fn a_value_that_could_not_be_read_once_is_compared_with_the_one_before() {
        let dir = fixture();
        let counter = dir.path().join("class/infiniband/mlx5_0/ports/1/counters/link_downed");
        let first = look(dir.path());
        fs::remove_file(&counter).unwrap();
        let second = look(dir.path());
        assert_eq!(changes(&first, &second), []);
        let known = remember(first, second);
        fs::write(&counter, "4\n").unwrap();
        let found = changes(&known, &look(dir.path()));
        assert_eq!((found.len(), found[0].value), (1, 4.0));
    }

    #[test]
    fn a_symbol_error_is_a_sample_and_a_reset_counter_is_nothing() {
        check(
            |class| {
                fs::write(class.join("infiniband/mlx5_0/ports/1/counters/symbol_error"), "2\n").unwrap();
                fs::write(class.join("infiniband/mlx5_0/ports/1/counters/link_downed"), "0\n").unwrap();
            },
            &[("mlx5_0", "nic.symbol_error port 1", 2.0, None)],
        );
    }

    #[test]
    fn an_interface_goes_down_and_virtual_ones_do_not_count() {
        check(
            |class| {
                fs::write(class.join("net/ens1/operstate"), "down\n").unwrap();
                fs::write(class.join("net/veth12/operstate"), "down\n").unwrap();
            },
            &[("ens1", "nic.operstate_up", 0.0, Some("nic-link-down"))],
        );
    }

    #[test]
    fn an_adapter_that_vanishes_is_a_fault() {
        check(
            |class| fs::remove_dir_all(class.join("infiniband/mlx5_0")).unwrap(),
            &[("mlx5_0", "nic.present", 0.0, Some("nic-fault"))],
        );
    }

    #[test]
    fn every_class_that_is_marked_stands_in_the_catalogue() {
        let known = rankguard_faults::Catalogue::builtin();
        for class in [
            "nic-link-down",
            "nic-link-flap",
            "nic-fault",
            "disk-full",
            "gpu-thermal",
            "gpu-power-fault",
            "gpu-ecc-uncorrectable",
            "gpu-row-remap-pending",
            "gpu-row-remap-failure",
            "gpu-fallen-off-bus",
            "gpu-driver-fault",
        ] {
            assert!(known.class(&rankguard_model::ClassId::from(class)).is_some(), "{class}");
        }
    }
}
