//! The host: memory, disks, load. Only crossings of a threshold are reported, in both directions.
//!
//! They are witnesses, never causes: a full disk explains why a save failed, it does not fail by itself. Absent:
//! mounts that hang, inodes, machine checks, blocked and dead processes, the clock source.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rankguard_model::{Role, Source};
use sysinfo::{MemoryRefreshKind, System};

use super::vitals::{self, Vitals};
use super::{Stop, mark, sample};
use crate::clock;
use crate::intake::Intake;

/// Below this part of memory available, allocation failures and OOM kills are near.
const MEMORY_LOW: f64 = 0.05;
/// Above this, it is over again: the distance keeps a value near the threshold from being reported over and over.
const MEMORY_FINE: f64 = 0.08;
/// Below this part of a file system available, saves begin to fail.
const DISK_LOW: f64 = 0.02;
/// Above this, it is over again.
const DISK_FINE: f64 = 0.03;
/// Runnable threads per processor over 5 minutes.
const LOAD_HIGH: f64 = 4.0;
/// Below this, it is over again.
const LOAD_FINE: f64 = 2.0;

/// Everything the collector needs.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) proc_root: PathBuf,
    pub(crate) sysfs_root: PathBuf,
    pub(crate) interval: Duration,
    /// Directories whose file systems matter.
    pub(crate) watched: Vec<PathBuf>,
    pub(crate) intake: Intake,
    pub(crate) stop: Stop,
}

impl Host {
    /// Until asked to stop.
    pub(crate) fn run(self) {
        let mut system = match System::new() {
            Ok(system) => system,
            Err(problem) => {
                let what = format!("the host's memory and load are not watched: {problem}");
                return self.intake.gap(Source::Host, what, None);
            }
        };
        let mut memory = Threshold::low(MEMORY_LOW, MEMORY_FINE);
        let mut load = Threshold::high(LOAD_HIGH, LOAD_FINE);
        let mut disks: BTreeMap<PathBuf, Threshold> = BTreeMap::new();
        let mut vitals = Vitals::default();
        let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        loop {
            system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
            let available = ratio(system.available_memory(), system.total_memory());
            // No class of its own: the OOM kill that may follow has one.
            self.judge(&mut memory, "host.memory_available", available, None);
            let busy = System::load_average().map_or(0.0, |load| load.five) / processors;
            if let Some(crossed) = load.take(busy) {
                let node = self.intake.node_entity();
                self.intake.push(sample(
                    Source::Host,
                    node,
                    "host.load_per_processor",
                    crossed.value,
                    "ratio",
                ));
            }
            for (mount, free) in room(&self.watched) {
                let metric = format!("host.disk_available {}", mount.display());
                let threshold = disks.entry(mount).or_insert(Threshold::low(DISK_LOW, DISK_FINE));
                self.judge(threshold, &metric, free, Some("disk-full"));
            }
            for told in vitals.take(vitals::look(&self.proc_root, &self.sysfs_root, clock::kernel_clock())) {
                let node = self.intake.node_entity();
                let sighting = sample(Source::Host, node, &told.metric, told.value, told.unit);
                self.intake.push(sighting.marked(told.marks));
            }
            if self.stop.wait(self.interval) {
                return;
            }
        }
    }

    fn judge(&self, threshold: &mut Threshold, metric: &str, value: f64, class: Option<&str>) {
        let Some(crossed) = threshold.take(value) else { return };
        let class = class.filter(|_| crossed.beyond);
        let marks = class.map(|class| mark(class, Role::Confirmation, 0.5, metric));
        let node = self.intake.node_entity();
        self.intake
            .push(sample(Source::Host, node, metric, crossed.value, "ratio").marked(marks.into_iter().collect()));
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    // A system that does not tell its size is not short of it.
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// The part of each directory's file system that is available. Only these are asked: asking a network file system whose
/// server is gone does not return.
fn room(watched: &[PathBuf]) -> BTreeMap<PathBuf, f64> {
    let mut found = BTreeMap::new();
    for path in watched {
        if let Ok(told) = rustix::fs::statvfs(path) {
            found.insert(path.clone(), ratio(told.f_bavail, told.f_blocks));
        }
    }
    found
}

/// A threshold with a way back.
#[derive(Debug, Clone, Copy)]
struct Threshold {
    limit: f64,
    fine: f64,
    low: bool,
    beyond: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Crossed {
    value: f64,
    beyond: bool,
}

impl Threshold {
    fn low(limit: f64, fine: f64) -> Self {
        Self {
            limit,
            fine,
            low: true,
            beyond: false,
        }
    }

    fn high(limit: f64, fine: f64) -> Self {
        Self {
            low: false,
            ..Self::low(limit, fine)
        }
    }

    /// Something to report when the value is on the other side than before.
    fn take(&mut self, value: f64) -> Option<Crossed> {
        let (over, back) = if self.low {
            (value < self.limit, value > self.fine)
        } else {
            (value > self.limit, value < self.fine)
        };
        let beyond = if self.beyond { !back } else { over };
        let changed = beyond != self.beyond;
        self.beyond = beyond;
        changed.then_some(Crossed { value, beyond })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_reports_crossings_and_nothing_in_between() {
        let mut low = Threshold::low(0.03, 0.06);
        let taken: Vec<_> = [0.5, 0.02, 0.01, 0.05, 0.02, 0.07, 0.04]
            .into_iter()
            .map(|value| low.take(value).map(|crossed| crossed.beyond))
            .collect();
        assert_eq!(taken, [None, Some(true), None, None, None, Some(false), None]);
        let mut high = Threshold::high(4.0, 2.0);
        assert_eq!(high.take(3.0), None);
        assert!(high.take(5.0).is_some_and(|crossed| crossed.beyond));
        assert_eq!(high.take(3.0), None);
        assert!(high.take(1.0).is_some_and(|crossed| !crossed.beyond));
    }

    #[test]
    fn the_room_of_a_directory_is_told_and_that_of_a_missing_one_is_not() {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let found = room(&[here.clone(), PathBuf::from("/nowhere/at/all")]);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&here]);
        assert!((0.0..=1.0).contains(&found[&here]));
    }
}
