//! Signs of a host that is about to fail its ranks: memory errors, memory pressure, kills in the cgroup, file systems
//! that went read-only, an unkept clock. Only what changed since the first look is told.
//!
//! Whatever cannot be read is not known, which is no news; a counter that went back was reset, and counts from there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rankguard_model::{Mark, Role};

use super::mark;
use crate::clock::KernelClock;

/// What a growing counter says.
struct Counter {
    metric: &'static str,
    /// Growth since the first look from which on it is told, and told again each time that much more has come.
    step: u64,
    class: &'static str,
    role: Role,
    confidence: f64,
}

const COUNTERS: &[Counter] = &[
    // Any uncorrected error is lost data (kernel documentation of EDAC).
    Counter {
        metric: "host.edac_uncorrected",
        step: 1,
        class: "host-memory-fault",
        role: Role::Root,
        confidence: 0.8,
    },
    // Corrected errors do no harm until they are many: 100 is what sichek takes for a sign.
    Counter {
        metric: "host.edac_corrected",
        step: 100,
        class: "host-memory-fault",
        role: Role::Confirmation,
        confidence: 0.4,
    },
    // memory.events of the agent's own cgroup, which its ranks are in.
    Counter {
        metric: "host.cgroup_oom_kill",
        step: 1,
        class: "container-oom-kill",
        role: Role::Confirmation,
        confidence: 0.6,
    },
];

/// Percent of the last 10 s in which every task waited for memory: systemd-oomd's default limit
/// (DefaultMemoryPressureLimit=60%).
const PRESSURE_HIGH: f64 = 60.0;
/// Below this, it is over again.
const PRESSURE_FINE: f64 = 30.0;

/// The host at one moment. What could not be read is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Look {
    counters: BTreeMap<&'static str, u64>,
    memory_pressure: Option<f64>,
    /// Whether each mounted file system of a local disk may be written.
    writable: BTreeMap<String, bool>,
    synchronised: Option<bool>,
}

/// Something that changed.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    pub(super) metric: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) marks: Vec<Mark>,
}

/// Looks once.
pub(super) fn look(proc_root: &Path, sysfs_root: &Path, clock: Option<KernelClock>) -> Look {
    let mut look = Look {
        synchronised: clock.map(|clock| clock.synchronised),
        ..Look::default()
    };
    let controllers = folders(&sysfs_root.join("devices/system/edac/mc"), "mc");
    for (metric, name) in [
        ("host.edac_uncorrected", "ue_count"),
        ("host.edac_corrected", "ce_count"),
    ] {
        let counts = controllers.iter().filter_map(|folder| number(&folder.join(name)));
        if let Some(sum) = counts.reduce(u64::saturating_add) {
            look.counters.insert(metric, sum);
        }
    }
    if let Some(kills) = oom_kills(proc_root, sysfs_root) {
        look.counters.insert("host.cgroup_oom_kill", kills);
    }
    look.memory_pressure = pressure(&read(&proc_root.join("pressure/memory")));
    look.writable = mounts(&read(&proc_root.join("self/mounts")));
    look
}

fn read(path: &Path) -> String {
    fs::read(path).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A counter; one that is negative, garbage or at the end of its range is not known.
fn number(path: &Path) -> Option<u64> {
    let count = read(path).trim().parse().ok()?;
    (count != u64::from(u32::MAX) && count != u64::MAX).then_some(count)
}

fn folders(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    named.map(|entry| entry.path()).collect()
}

fn oom_kills(proc_root: &Path, sysfs_root: &Path) -> Option<u64> {
    let text = read(&proc_root.join("self/cgroup"));
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let events = read(&sysfs_root.join("fs/cgroup").join(own.trim()).join("memory.events"));
    let line = events.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
    line.trim().parse().ok()
}

/// `full avg10=1.23 avg60=...`: percent.
fn pressure(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("full "))?;
    let share = line.split(' ').find_map(|word| word.strip_prefix("avg10="))?;
    share.parse().ok().filter(|share| (0.0..=100.0).contains(share))
}

/// Only what lies on a device: read-only images and views of containers come and go.
fn mounts(text: &str) -> BTreeMap<String, bool> {
    let mounts = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (device, place, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let is_disk = device.starts_with("/dev/") && !matches!(kind, "squashfs" | "iso9660" | "erofs");
        is_disk.then(|| (place.to_owned(), options.split(',').any(|option| option == "rw")))
    });
    mounts.collect()
}

/// What was seen before, and what was told.
#[derive(Debug, Default)]
pub(super) struct Vitals {
    /// The count from which growth is counted.
    from: BTreeMap<&'static str, u64>,
    pressed: bool,
    before: Look,
}

impl Vitals {
    /// What is worth telling of this look.
    pub(super) fn take(&mut self, look: Look) -> Vec<Told> {
        let mut told = Vec::new();
        for rule in COUNTERS {
            let Some(count) = look.counters.get(rule.metric).copied() else {
                continue;
            };
            let from = self.from.entry(rule.metric).or_insert(count);
            if count < *from {
                *from = count;
            }
            if count - *from >= rule.step {
                *from = count;
                told.push(Told {
                    metric: rule.metric.to_owned(),
                    value: count as f64,
                    unit: "count",
                    marks: vec![mark(rule.class, rule.role, rule.confidence, rule.metric)],
                });
            }
        }
        if let Some(share) = look.memory_pressure {
            let pressed = share > PRESSURE_HIGH || self.pressed && share >= PRESSURE_FINE;
            if std::mem::replace(&mut self.pressed, pressed) != pressed {
                told.push(Told {
                    metric: "host.memory_pressure_full".to_owned(),
                    value: share,
                    unit: "percent",
                    marks: Vec::new(),
                });
            }
        }
        for (place, now) in &look.writable {
            if self.before.writable.get(place).is_some_and(|before| before != now) {
                let class = (!now).then(|| mark("filesystem-io-error", Role::Root, 0.6, "host.writable"));
                told.push(Told {
                    metric: format!("host.writable {place}"),
                    value: f64::from(u8::from(*now)),
                    unit: "bool",
                    marks: class.into_iter().collect(),
                });
            }
        }
        if let (Some(before), Some(now)) = (self.before.synchronised, look.synchronised)
            && before != now
        {
            let class = (!now).then(|| mark("clock-skew", Role::Confirmation, 0.4, "host.clock_synchronised"));
            told.push(Told {
                metric: "host.clock_synchronised".to_owned(),
                value: f64::from(u8::from(now)),
                unit: "bool",
                marks: class.into_iter().collect(),
            });
        }
        // What could not be read once is compared with what was known before.
        let before = std::mem::replace(&mut self.before, look);
        self.before.synchronised = self.before.synchronised.or(before.synchronised);
        told
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    struct Host(tempfile::TempDir, Vitals);

    impl Host {
        fn new() -> Self {
            let host = Self(tempfile::tempdir().unwrap(), Vitals::default());
            host.put("sys/devices/system/edac/mc/mc0/ce_count", "7\n");
            host.put("sys/devices/system/edac/mc/mc0/ue_count", "0\n");
            host.put("sys/devices/system/edac/mc/mc1/ce_count", "1\n");
            host.put("proc/self/cgroup", "0::/slice/agent\n");
            host.put("sys/fs/cgroup/slice/agent/memory.events", "low 0\noom 0\noom_kill 2\n");
            host.put(
                "proc/pressure/memory",
                "some avg10=1.00\nfull avg10=0.00 avg60=0.00 total=1\n",
            );
            host.put(
                "proc/self/mounts",
                "/dev/sda1 / ext4 rw,relatime 0 0\n/dev/loop0 /snap squashfs ro 0 0\nnfs:/x /x nfs rw 0 0\n",
            );
            host
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn look(&mut self, synchronised: bool) -> Vec<(String, f64, Option<String>)> {
            let clock = KernelClock {
                synchronised,
                max_error_us: 0,
                offset_us: 0,
            };
            let look = look(&self.0.path().join("proc"), &self.0.path().join("sys"), Some(clock));
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
        assert_eq!(host.look(true), []);
        assert_eq!(host.look(true), []);
    }

    #[test]
    fn errors_that_grow_are_told_at_their_steps() {
        let mut host = Host::new();
        host.look(true);
        host.put("sys/devices/system/edac/mc/mc0/ce_count", "106\n");
        assert_eq!(host.look(true), []);
        host.put("sys/devices/system/edac/mc/mc0/ce_count", "107\n");
        let wanted = one("host.edac_corrected", 108.0, Some("host-memory-fault"));
        assert_eq!(host.look(true), wanted);
        host.put("sys/devices/system/edac/mc/mc0/ue_count", "1\n");
        let wanted = one("host.edac_uncorrected", 1.0, Some("host-memory-fault"));
        assert_eq!(host.look(true), wanted);
        assert_eq!(host.look(true), []);
        host.put("sys/fs/cgroup/slice/agent/memory.events", "oom_kill 3\n");
        let wanted = one("host.cgroup_oom_kill", 3.0, Some("container-oom-kill"));
        assert_eq!(host.look(true), wanted);
    }

    #[test]
    fn files_that_vanish_and_counters_of_garbage_are_not_known() {
        let mut host = Host::new();
        host.look(true);
        for text in ["-1\n", "4294967295\n", "\0\u{fffd}x\n", "", "18446744073709551615\n"] {
            host.put("sys/devices/system/edac/mc/mc0/ue_count", text);
            assert_eq!(host.look(true), [], "{text:?}");
        }
        fs::remove_dir_all(host.0.path().join("sys")).unwrap();
        fs::remove_dir_all(host.0.path().join("proc")).unwrap();
        assert_eq!(host.look(true), []);
    }

    #[test]
    fn pressure_is_told_when_it_comes_and_when_it_goes() {
        let mut host = Host::new();
        let mut at = |share: &str| {
            host.put("proc/pressure/memory", &format!("full avg10={share} avg60=0\n"));
            host.look(true)
        };
        assert_eq!(at("59.0"), []);
        assert_eq!(at("61.0"), one("host.memory_pressure_full", 61.0, None));
        assert_eq!(at("40.0"), []);
        assert_eq!(at("NaN"), []);
        assert_eq!(at("10.0"), one("host.memory_pressure_full", 10.0, None));
    }

    #[test]
    fn a_disk_that_goes_read_only_and_a_clock_that_nobody_keeps_are_told() {
        let mut host = Host::new();
        host.look(true);
        host.put("proc/self/mounts", "/dev/sda1 / ext4 ro,relatime 0 0\n");
        let wanted = one("host.writable /", 0.0, Some("filesystem-io-error"));
        assert_eq!(host.look(true), wanted);
        let wanted = one("host.clock_synchronised", 0.0, Some("clock-skew"));
        assert_eq!(host.look(false), wanted);
        assert_eq!(host.look(true), one("host.clock_synchronised", 1.0, None));
    }

    #[test]
    fn every_class_that_is_marked_stands_in_the_catalogue() {
        let classes = COUNTERS.iter().map(|rule| rule.class);
        for class in classes.chain(["filesystem-io-error", "clock-skew"]) {
            let id = rankguard_model::ClassId::from(class);
            assert!(rankguard_faults::Catalogue::builtin().class(&id).is_some(), "{class}");
        }
    }
}
