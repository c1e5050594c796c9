//! Vital signs of the host: memory errors, memory pressure, OOM kills in the cgroup, file systems that became
//! read-only, an unsynchronised clock. Only changes since the first poll are reported.
//!
//! A value that cannot be read is unknown and not reported. A counter that decreased was reset and counts from there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rankguard_faults::classes;
use rankguard_model::{Classification, Role};

use super::reread_file::RereadFile;
use crate::clock::KernelClock;
use crate::mount_users::unescape;
use crate::pending_evidence::mark;
use crate::views::PressureView;

/// Rule for a growing counter.
struct CounterRule {
    metric: &'static str,
    /// Growth since the last report, or the first poll, at which the counter is reported.
    step: u64,
    class: &'static str,
    role: Role,
    confidence: f64,
}

const COUNTERS: &[CounterRule] = &[
    // Any uncorrected error is lost data (kernel documentation of EDAC).
    CounterRule {
        metric: "host.edac_uncorrected",
        step: 1,
        class: classes::HOST_MEMORY_FAULT,
        role: Role::Root,
        confidence: 0.8,
    },
    // Corrected errors do no harm until there are many: sichek reports at 100.
    CounterRule {
        metric: "host.edac_corrected",
        step: 100,
        class: classes::HOST_MEMORY_CORRECTED_ERRORS,
        role: Role::Confirmation,
        confidence: 0.4,
    },
    // `memory.events` of the agent's own cgroup, which contains its ranks.
    CounterRule {
        metric: "host.cgroup_oom_kill",
        step: 1,
        class: classes::CONTAINER_OOM_KILL,
        role: Role::Confirmation,
        confidence: 0.6,
    },
];

/// Rule for pressure stall information: time that tasks waited for a resource, percent of the last 10 s.
struct PressureRule {
    metric: &'static str,
    /// File name below `/proc/pressure`.
    resource: &'static str,
    /// `full`: every task waited; `some`: at least one did.
    who: &'static str,
    high: f64,
    /// Percentage below which the report clears.
    fine: f64,
}

const PRESSURES: [PressureRule; 3] = [
    // The default limit of systemd-oomd (DefaultMemoryPressureLimit=60%).
    PressureRule {
        metric: "host.memory_pressure_full",
        resource: "memory",
        who: "full",
        high: 60.0,
        fine: 30.0,
    },
    // All tasks waited for disks most of the time: the same limit.
    PressureRule {
        metric: "host.io_pressure_full",
        resource: "io",
        who: "full",
        high: 60.0,
        fine: 30.0,
    },
    // The system as a whole never waits for processors; data loaders that share too few of them always wait a little.
    PressureRule {
        metric: "host.cpu_pressure_some",
        resource: "cpu",
        who: "some",
        high: 90.0,
        fine: 60.0,
    },
];

/// Metric prefix before the mount point of a file system: 1 if it is writable.
pub(super) const WRITABLE: &str = "host.writable ";

/// Snapshot of the host. Values that could not be read are absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct VitalSnapshot {
    counters: BTreeMap<&'static str, u64>,
    pressures: BTreeMap<&'static str, f64>,
    /// True for each mounted file system of a local disk that is writable.
    writable: BTreeMap<String, bool>,
    synchronised: Option<bool>,
}

/// Change to report.
#[derive(Debug, PartialEq)]
pub(super) struct VitalChange {
    pub(super) metric: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) marks: Vec<Classification>,
}

/// Sources of a snapshot, with the files open that are read at every poll.
#[derive(Debug)]
pub(super) struct VitalSources {
    sysfs_root: PathBuf,
    mounts: RereadFile,
    cgroup: RereadFile,
    pressures: [RereadFile; PRESSURES.len()],
}

impl VitalSources {
    /// Creates the sources without reading.
    pub(super) fn new(proc_root: &Path, sysfs_root: &Path) -> Self {
        let kept = |file: &str| RereadFile::new(proc_root.join(file));
        Self {
            sysfs_root: sysfs_root.to_owned(),
            mounts: kept("self/mounts"),
            cgroup: kept("self/cgroup"),
            pressures: PRESSURES.map(|rule| RereadFile::new(proc_root.join("pressure").join(rule.resource))),
        }
    }

    /// Takes a snapshot of the host.
    pub(super) fn snapshot(&mut self, clock: Option<KernelClock>) -> VitalSnapshot {
        let mut look = VitalSnapshot {
            synchronised: clock.map(|clock| clock.synchronised),
            ..VitalSnapshot::default()
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

    /// Reads the OOM kills of the agent's own cgroup, in the hierarchy version that has the memory controller.
    fn oom_kills(&mut self) -> Option<u64> {
        let events = self.cgroup.read_whole(|text| text.lines().find_map(memory_events))?;
        let events = read(&self.sysfs_root.join("fs/cgroup").join(events));
        let line = events.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        line.trim().parse().ok()
    }
}

/// Maps a line of `/proc/self/cgroup` to its event file: `0::/slice/agent` to one of version 2, `4:memory:/slice/agent`
/// to one of version 1, where version 2 has no memory controller and is listed after it.
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

/// Reads a counter; none if it is negative, not a number, or at the end of its range.
fn number(path: &Path) -> Option<u64> {
    let count = read(path).trim().parse().ok()?;
    (count != u64::from(u32::MAX) && count != u64::MAX).then_some(count)
}

fn folders(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    named.map(|entry| entry.path()).collect()
}

/// Parses `full avg10=1.23 avg60=...`; returns percent.
fn pressure(text: &str, who: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(who)?.strip_prefix(' '))?;
    let share = line.split(' ').find_map(|word| word.strip_prefix("avg10="))?;
    share.parse().ok().filter(|share| (0.0..=100.0).contains(share))
}

/// Returns writable flags by mount point, only of file systems on a device: read-only images and container mounts come
/// and go.
fn mounts(text: &str) -> BTreeMap<String, bool> {
    let mounts = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let device = words.next()?;
        let place = words.next()?;
        let kind = words.next()?;
        let options = words.next()?;
        let is_disk = device.starts_with("/dev/") && !matches!(kind, "squashfs" | "iso9660" | "erofs");
        is_disk.then(|| (unescape(place), options.split(',').any(|option| option == "rw")))
    });
    mounts.collect()
}

/// Previous snapshot and reported state.
#[derive(Debug, Default)]
pub(super) struct VitalSigns {
    /// Count at the last report, from which growth is measured.
    from: BTreeMap<&'static str, u64>,
    pressed: BTreeMap<&'static str, bool>,
    before: VitalSnapshot,
}

impl VitalSigns {
    /// Returns the changes since the previous snapshot.
    pub(super) fn changes(&mut self, look: VitalSnapshot) -> Vec<VitalChange> {
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
                told.push(VitalChange {
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
                told.push(VitalChange {
                    metric: rule.metric.to_owned(),
                    value: share,
                    unit: "percent",
                    marks: Vec::new(),
                });
            }
        }
        for (place, now) in &look.writable {
            if self.before.writable.get(place).is_some_and(|before| before != now) {
                let class = (!now).then(|| mark(classes::FILESYSTEM_IO_ERROR, Role::Root, 0.6, "host.writable"));
                told.push(VitalChange {
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
            let class = (!now).then(|| mark(classes::CLOCK_SKEW, Role::Confirmation, 0.4, "host.clock_synchronised"));
            told.push(VitalChange {
                metric: "host.clock_synchronised".to_owned(),
                value: f64::from(u8::from(now)),
                unit: "bool",
                marks: class.into_iter().collect(),
            });
        }
        // A value that could not be read is compared with the last known one.
        let before = std::mem::replace(&mut self.before, look);
        self.before.synchronised = self.before.synchronised.or(before.synchronised);
        told
    }

    /// Returns the pressures of the newest snapshot.
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
