//! Host platform: clock source, services, and machine checks counted by the processors.
//!
//! Services are looked up in the cgroup tree, in which a running one has processes; no program is started. Absent:
//! service managers other than systemd, and restarts of a service between two polls.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rankguard_faults::classes;
use rankguard_model::Role;

use super::vitals::VitalChange;
use crate::pending_evidence::mark;

/// Class, role and confidence for the end of a service.
type ServiceClassification = (&'static str, Role, f64);

/// Services that ranks depend on, with the classification of their end.
const SERVICES: &[(&str, Option<ServiceClassification>)] = &[
    // Without it, GPUs behind NVSwitches cannot start a context.
    (
        "nvidia-fabricmanager",
        Some((classes::FABRIC_MANAGER_NOT_READY, Role::Root, 0.7)),
    ),
    ("nvidia-persistenced", None),
    ("nvidia-imex", None),
    ("opensm", None),
    (
        "slurmd",
        Some((classes::PLATFORM_SERVICE_OUTAGE, Role::Confirmation, 0.5)),
    ),
    (
        "kubelet",
        Some((classes::PLATFORM_SERVICE_OUTAGE, Role::Confirmation, 0.5)),
    ),
    (
        "containerd",
        Some((classes::PLATFORM_SERVICE_OUTAGE, Role::Confirmation, 0.5)),
    ),
    ("chronyd", Some((classes::CLOCK_SKEW, Role::Confirmation, 0.3))),
    ("chrony", Some((classes::CLOCK_SKEW, Role::Confirmation, 0.3))),
    ("ntpd", Some((classes::CLOCK_SKEW, Role::Confirmation, 0.3))),
    (
        "systemd-timesyncd",
        Some((classes::CLOCK_SKEW, Role::Confirmation, 0.3)),
    ),
];

/// Clock sources that are read without leaving the processor; others cost a microsecond or more a read.
const FAST: [&str; 4] = ["tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page"];

/// Snapshot of the host. Values that could not be read are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PlatformSnapshot {
    clock_source: Option<String>,
    /// True for each service of the list that has processes; absent ones have no cgroup.
    services: BTreeMap<&'static str, bool>,
    /// Machine check exceptions, sum over all processors.
    machine_checks: Option<u64>,
}

/// Takes a snapshot. Interrupt counts are long on large machines: they are read only if `thorough`.
pub(super) fn look(proc_root: &Path, sysfs_root: &Path, thorough: bool) -> PlatformSnapshot {
    let source = read(&sysfs_root.join("devices/system/clocksource/clocksource0/current_clocksource"));
    let slice = sysfs_root.join("fs/cgroup/system.slice");
    let runs = |name: &str| {
        let events = fs::read_to_string(slice.join(format!("{name}.service/cgroup.events"))).ok()?;
        events
            .lines()
            .find_map(|line| line.strip_prefix("populated "))
            .map(|word| word.trim() == "1")
    };
    PlatformSnapshot {
        clock_source: Some(source.trim().to_owned()).filter(|source| !source.is_empty()),
        services: SERVICES
            .iter()
            .filter_map(|(name, _)| Some((*name, runs(name)?)))
            .collect(),
        machine_checks: thorough
            .then(|| machine_checks(&read(&proc_root.join("interrupts"))))
            .flatten(),
    }
}

fn read(path: &Path) -> String {
    fs::read(path).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Sums the counts of a line such as ` MCE:   0   0   Machine check exceptions`.
fn machine_checks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("MCE:"))?;
    let counts = line.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
    counts.reduce(u64::saturating_add)
}

/// State of the previous snapshot.
#[derive(Debug, Default)]
pub(super) struct PlatformState {
    before: PlatformSnapshot,
}

impl PlatformState {
    /// Returns the changes since the previous snapshot; none for the first.
    pub(super) fn take(&mut self, look: PlatformSnapshot) -> Vec<VitalChange> {
        let mut told = Vec::new();
        if let (Some(before), Some(now)) = (&self.before.clock_source, &look.clock_source)
            && before != now
        {
            let fast = FAST.contains(&now.as_str());
            let says = (!fast).then(|| mark(classes::CLOCK_SKEW, Role::Confirmation, 0.4, "host.clocksource"));
            told.push(VitalChange {
                metric: format!("host.clocksource {now}"),
                value: f64::from(u8::from(fast)),
                unit: "bool",
                marks: says.into_iter().collect(),
            });
        }
        for (name, class) in SERVICES {
            // A service's cgroup is removed with its last process; a service that never ran is not expected here.
            let now = look.services.get(name).copied().unwrap_or(false);
            let Some(before) = self.before.services.get(name).copied() else {
                continue;
            };
            if before == now {
                continue;
            }
            let says = class
                .filter(|_| !now)
                .map(|(class, role, sure)| mark(class, role, sure, "host.service_runs"));
            told.push(VitalChange {
                metric: format!("host.service_runs {name}"),
                value: f64::from(u8::from(now)),
                unit: "bool",
                marks: says.into_iter().collect(),
            });
        }
        if let (Some(before), Some(now)) = (self.before.machine_checks, look.machine_checks)
            && now > before
        {
            told.push(VitalChange {
                metric: "host.machine_check_exceptions".to_owned(),
                value: now as f64,
                unit: "count",
                marks: vec![mark(
                    classes::CPU_HARDWARE_ERROR,
                    Role::Root,
                    0.7,
                    "host.machine_check_exceptions",
                )],
            });
        }
        let known: Vec<&'static str> = self.before.services.keys().copied().collect();
        self.before.clock_source = look.clock_source.or(self.before.clock_source.take());
        self.before.machine_checks = look.machine_checks.or(self.before.machine_checks);
        self.before.services = look.services;
        for name in known {
            self.before.services.entry(name).or_insert(false);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    struct Host(tempfile::TempDir, PlatformState);

    impl Host {
        fn new() -> Self {
            let host = Self(tempfile::tempdir().unwrap(), PlatformState::default());
            host.put(
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc\n",
            );
            host.service("nvidia-fabricmanager", "populated 1\nfrozen 0\n");
            host.put(
                "proc/interrupts",
                "     CPU0 CPU1\n MCE:  0  2   Machine check exceptions\n MCP: 9 9 polls\n",
            );
            host
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn service(&self, name: &str, text: &str) {
            self.put(
                &format!("sys/fs/cgroup/system.slice/{name}.service/cgroup.events"),
                text,
            );
        }

        fn look(&mut self) -> Vec<(String, f64, Option<String>)> {
            let look = look(&self.0.path().join("proc"), &self.0.path().join("sys"), true);
            let told = self.1.take(look).into_iter();
            told.map(|it| {
                let class = it.marks.first().map(|mark| mark.class.to_string());
                (it.metric, it.value, class)
            })
            .collect()
        }
    }

    fn one(metric: &str, value: f64, class: Option<&str>) -> Vec<(String, f64, Option<String>)> {
        vec![(metric.to_owned(), value, class.map(str::to_owned))]
    }

    #[test]
    fn the_first_look_and_a_quiet_host_are_no_news() {
        let mut host = Host::new();
        assert_eq!((host.look(), host.look()), (vec![], vec![]));
    }

    #[test]
    fn a_clock_source_that_the_kernel_gave_up_is_told_and_its_return_too() {
        let mut host = Host::new();
        host.look();
        let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        host.put(path, "hpet\n");
        assert_eq!(host.look(), one("host.clocksource hpet", 0.0, Some("clock-skew")));
        host.put(path, "");
        assert_eq!(host.look(), []);
        host.put(path, "tsc\n");
        assert_eq!(host.look(), one("host.clocksource tsc", 1.0, None));
    }

    #[test]
    fn a_service_that_ends_is_told_whether_its_cgroup_stays_or_goes() {
        let mut host = Host::new();
        host.look();
        host.service("nvidia-fabricmanager", "populated 0\n");
        let wanted = one(
            "host.service_runs nvidia-fabricmanager",
            0.0,
            Some("fabric-manager-not-ready"),
        );
        assert_eq!(host.look(), wanted);
        host.service("nvidia-fabricmanager", "populated 1\n");
        assert_eq!(host.look(), one("host.service_runs nvidia-fabricmanager", 1.0, None));
        fs::remove_dir_all(host.0.path().join("sys/fs")).unwrap();
        assert_eq!(host.look(), wanted);
        assert_eq!(host.look(), []);
        host.service("slurmd", "populated 1\n");
        assert_eq!(host.look(), []);
    }

    #[test]
    fn machine_checks_are_told_as_they_come_and_garbage_is_not_known() {
        let mut host = Host::new();
        host.look();
        host.put("proc/interrupts", " MCE:  1  2   Machine check exceptions\n");
        let wanted = one("host.machine_check_exceptions", 3.0, Some("cpu-hardware-error"));
        assert_eq!(host.look(), wanted);
        for text in ["", "MCE:\n", "MCE: x\n", "\u{0}"] {
            host.put("proc/interrupts", text);
            assert_eq!(host.look(), [], "{text:?}");
        }
    }

    #[test]
    fn every_class_that_is_marked_stands_in_the_catalogue() {
        let classes = SERVICES.iter().filter_map(|(_, class)| class.map(|(class, ..)| class));
        for class in classes.chain(["clock-skew", "cpu-hardware-error"]) {
            let id = rankguard_model::ClassId::from(class);
            assert!(rankguard_faults::Catalogue::builtin().class(&id).is_some(), "{class}");
        }
    }
}
