//! Signs of a host that is about to fail its ranks: memory errors, memory pressure, kills in the cgroup, file systems
//! that went read-only, an unkept clock. Only what changed since the first look is told.
//!
//! Whatever cannot be read is not known, which is no news; a counter that went back was reset, and counts from there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rankguard_model::{Mark, Role};

use super::kept::Kept;
use super::{mark, unescape};
use crate::clock::KernelClock;
use crate::outlets::PressureView;

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

/// Time that tasks waited for something, percent of the last 10 s.
struct Pressure {
    metric: &'static str,
    /// The file of its name.
    resource: &'static str,
    /// `full`: every task waited; `some`: at least one did.
    who: &'static str,
    high: f64,
    /// Below this, it is over again.
    fine: f64,
}

const PRESSURES: [Pressure; 3] = [
    // systemd-oomd's default limit (DefaultMemoryPressureLimit=60%).
    Pressure {
        metric: "host.memory_pressure_full",
        resource: "memory",
        who: "full",
        high: 60.0,
        fine: 30.0,
    },
    // For most of the time nothing could go on but for disks: the same share.
    Pressure {
        metric: "host.io_pressure_full",
        resource: "io",
        who: "full",
        high: 60.0,
        fine: 30.0,
    },
    // Of processors a machine never waits as a whole; data loaders that share too few of them always wait a little.
    Pressure {
        metric: "host.cpu_pressure_some",
        resource: "cpu",
        who: "some",
        high: 90.0,
        fine: 60.0,
    },
];

/// Before the place of a file system: whether it may be written.
pub(super) const WRITABLE: &str = "host.writable ";

/// The host at one moment. What could not be read is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Look {
    counters: BTreeMap<&'static str, u64>,
    pressures: BTreeMap<&'static str, f64>,
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

/// Where it is looked, with the files open that are read at every look.
#[derive(Debug)]
pub(super) struct Places {
    sysfs_root: PathBuf,
    mounts: Kept,
    cgroup: Kept,
    pressures: [Kept; PRESSURES.len()],
}

impl Places {
    /// Nothing is read before the first look.
    pub(super) fn new(proc_root: &Path, sysfs_root: &Path) -> Self {
        let kept = |file: &str| Kept::new(proc_root.join(file));
        Self {
            sysfs_root: sysfs_root.to_owned(),
            mounts: kept("self/mounts"),
            cgroup: kept("self/cgroup"),
            pressures: PRESSURES.map(|rule| Kept::new(proc_root.join("pressure").join(rule.resource))),
        }
    }

    /// Looks once.
    pub(super) fn look(&mut self, clock: Option<KernelClock>) -> Look {
        let mut look = Look {
            synchronised: clock.map(|clock| clock.synchronised),
            ..Look::default()
        };
        let controllers = folders(&self.sysfs_root.join("devices/system/edac/mc"), "mc");
        for (metric, name) in [
            ("host.edac_uncorrected", "ue_count"),
            ("host.edac_corrected", "ce_count"),
        ] {
            let counts = controllers.iter().filter_map(|folder| number(&folder.join(name)));
            if let Some(sum) = counts.reduce(u64::saturating_add) {
                look.counters.insert(metric, sum);
            }
        }
        if let Some(kills) = self.oom_kills() {
            look.counters.insert("host.cgroup_oom_kill", kills);
        }
        for (rule, file) in PRESSURES.iter().zip(&mut self.pressures) {
            if let Some(share) = file.read(|text| pressure(text, rule.who)) {
                look.pressures.insert(rule.metric, share);
            }
        }
        look.writable = self.mounts.read_whole(mounts);
        look
    }

    /// Kills for want of memory in the agent's own cgroup, of whichever version has the memory controller.
    fn oom_kills(&mut self) -> Option<u64> {
        let events = self.cgroup.read_whole(|text| text.lines().find_map(memory_events))?;
        let events = read(&self.sysfs_root.join("fs/cgroup").join(events));
        let line = events.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        line.trim().parse().ok()
    }
}

/// Where a line of `/proc/self/cgroup` leads to: `0::/slice/agent` to a file of version 2, `4:memory:/slice/agent` to one of
/// version 1, where version 2 has no memory controller and stands behind it.
fn memory_events(line: &str) -> Option<PathBuf> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, own) = rest.split_once(":/")?;
    let own = Path::new(own.trim_end());
    match controllers {
        "" => Some(own.join("memory.events")),
        _ if controllers.split(',').any(|name| name == "memory") => {
            Some(Path::new(controllers).join(own).join("memory.oom_control"))
        }
        _ => None,
    }
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

/// `full avg10=1.23 avg60=...`: percent.
fn pressure(text: &str, who: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(who)?.strip_prefix(' '))?;
    let share = line.split(' ').find_map(|word| word.strip_prefix("avg10="))?;
    share.parse().ok().filter(|share| (0.0..=100.0).contains(share))
}

/// Only what lies on a device: read-only images and views of containers come and go.
fn mounts(text: &str) -> BTreeMap<String, bool> {
    let mounts = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (device, place, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let is_disk = device.starts_with("/dev/") && !matches!(kind, "squashfs" | "iso9660" | "erofs");
        is_disk.then(|| (unescape(place), options.split(',').any(|option| option == "rw")))
    });
    mounts.collect()
}

/// What was seen before, and what was told.
#[derive(Debug, Default)]
pub(super) struct Vitals {
    /// The count from which growth is counted.
    from: BTreeMap<&'static str, u64>,
    pressed: BTreeMap<&'static str, bool>,
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
        for rule in &PRESSURES {
            let Some(share) = look.pressures.get(rule.metric).copied() else {
                continue;
            };
            let before = self.pressed.get(rule.metric).copied().unwrap_or(false);
            let pressed = share > rule.high || before && share >= rule.fine;
            self.pressed.insert(rule.metric, pressed);
            if before != pressed {
                told.push(Told {
                    metric: rule.metric.to_owned(),
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
                    metric: format!("{WRITABLE}{place}"),
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

    /// How long tasks waited at the newest look.
    pub(super) fn pressures(&self) -> Vec<PressureView> {
        let known = PRESSURES.iter().filter_map(|rule| {
            Some(PressureView {
                resource: rule.resource.to_owned(),
                who: rule.who.to_owned(),
                percent: *self.before.pressures.get(rule.metric)?,
                high: self.pressed.get(rule.metric).copied().unwrap_or(false),
            })
        });
        known.collect()
    }
}

#[cfg(test)]
mod tests;
