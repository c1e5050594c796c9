//! Host resources: memory, file systems, load, limits of the ranks. Threshold crossings are reported, in both
//! directions.
//!
//! Most of them are confirmations: a full disk explains why a save failed but is not a failure by itself. A file system
//! is queried on a thread of its own, so that one that does not answer cannot block this collector.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankguard_faults::classes;
use rankguard_model::{
    Classification, EvidenceBody, EvidenceSource, RankRef, Role, STATE_DIR_FULL, STATE_DIR_HAS_ROOM,
};

use super::host_load::HostLoad;
use super::limits::{self, LimitFindings};
use super::mounts::{self, FreeSpace, MountQueries};
use super::nic::rdma_ports;
use super::platform::{self, PlatformState};
use super::vitals::{VitalSigns, VitalSources, WRITABLE};
use crate::clock;
use crate::intake::EvidenceIntake;
use crate::memory_holders;
use crate::mount_users::{FailingStorage, MountUsers};
use crate::pending_evidence::{PendingEvidence, mark, sample};
use crate::roster::RankRoster;
use crate::spool::Spool;
use crate::stop_flag::StopFlag;
use crate::views::{FileSystemView, HostView};

/// Available part of the memory below which allocation failures and OOM kills are near.
const MEMORY_LOW: f64 = 0.05;
/// Part above which the report clears; the distance prevents repeated reports of a value near the threshold.
const MEMORY_FINE: f64 = 0.08;
/// Available part of a file system below which saves begin to fail.
const DISK_LOW: f64 = 0.02;
/// Part above which the report clears.
const DISK_FINE: f64 = 0.03;
/// Available part of shared memory below which data loaders and collectives begin to fail.
const SHM_LOW: f64 = 0.05;
/// Part above which the report clears.
const SHM_FINE: f64 = 0.1;
/// Available part of the state directory's file system below which it is reported, if its free bytes are fewer than the
/// spool may still need.
const OWN_LOW: f64 = 0.1;
/// Part above which the report clears.
const OWN_FINE: f64 = 0.15;
/// Free bytes of the state directory below which the start of ranks fails, or fails next.
const OWN_FULL: f64 = 4.0 * 1_048_576.0;
/// Free bytes above which the report clears.
const OWN_USABLE: f64 = 8.0 * 1_048_576.0;
/// Interval of slow checks: services, clock source, free space of file systems.
const SLOW: Duration = Duration::from_secs(5);
/// Interval of thorough checks: interrupt counters, open files of ranks.
const THOROUGH: Duration = Duration::from_secs(60);
/// Runnable threads per processor, average over 5 minutes, above which load is reported.
const LOAD_HIGH: f64 = 4.0;
/// Load below which the report clears.
const LOAD_FINE: f64 = 2.0;

/// Collector of the host's resources.
#[derive(Debug)]
pub(crate) struct HostCollector {
    pub(crate) proc_root: PathBuf,
    pub(crate) sysfs_root: PathBuf,
    pub(crate) interval: Duration,
    /// Directories on the file systems that matter.
    pub(crate) watched: Vec<PathBuf>,
    /// The directory among them to which evidence is written.
    pub(crate) state_dir: PathBuf,
    pub(crate) spool: Arc<Spool>,
    pub(crate) intake: EvidenceIntake,
    pub(crate) roster: RankRoster,
    pub(crate) uses: MountUsers,
    pub(crate) stop: StopFlag,
}

/// Thresholds of one file system.
struct FileSystemThresholds {
    blocks: HysteresisThreshold,
    inodes: HysteresisThreshold,
    own: HysteresisThreshold,
    full: HysteresisThreshold,
}

impl HostCollector {
    /// Polls the host until `stop` is set.
    pub(crate) fn run(self) {
        let mut use_of = HostLoad::of(&self.proc_root);
        if use_of.memory_available().is_none() {
            let what = "the host's memory is not watched: the kernel does not tell how much is available";
            self.intake.gap(EvidenceSource::Host, what, None);
        }
        let mut places = VitalSources::new(&self.proc_root, &self.sysfs_root);
        let mut memory = HysteresisThreshold::low(MEMORY_LOW, MEMORY_FINE);
        let mut load = HysteresisThreshold::high(LOAD_HIGH, LOAD_FINE);
        let mut rooms: BTreeMap<PathBuf, FileSystemThresholds> = BTreeMap::new();
        let mut mounts = MountQueries::default();
        let mut vitals = VitalSigns::default();
        let mut platform = PlatformState::default();
        let mut limits = LimitFindings::default();
        let mut slow = IntervalLimiter::new(SLOW);
        let mut thorough = IntervalLimiter::new(THOROUGH);
        let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        loop {
            let available = use_of.memory_available();
            if let Some(available) = available {
                // No class of its own: the OOM kill that may follow has one.
                if let Some(crossed) = memory.take(available) {
                    self.ratio("host.memory_available", crossed.value, None);
                    if crossed.beyond {
                        self.holders(available);
                    }
                }
            }
            let busy = use_of.load().map(|load| load / processors);
            if let Some(crossed) = busy.and_then(|busy| load.take(busy)) {
                self.ratio("host.load_per_processor", crossed.value, None);
            }
            let now = Instant::now();
            let clock = clock::kernel_clock();
            let mut told = vitals.changes(places.snapshot(clock));
            self.intake.board().is_busy(HostView {
                memory_available: available,
                load_per_processor: busy,
                pressures: vitals.pressures(),
            });
            if slow.is_due(now) {
                let thorough = thorough.is_due(now);
                self.mounts(&mut mounts, &mut rooms, now);
                told.extend(platform.take(platform::look(&self.proc_root, &self.sysfs_root, thorough)));
                if thorough {
                    self.limits(&mut limits);
                }
            }
            for mut told in told {
                let place = told.metric.strip_prefix(WRITABLE).map(str::to_owned);
                if let (Some(place), [says]) = (place, &mut told.marks[..]) {
                    self.uses.annotate_mark(FailingStorage::Place(place), says);
                }
                let node = self.intake.node_entity();
                let sighting = sample(EvidenceSource::Host, node, &told.metric, told.value, told.unit);
                self.intake.push(sighting.marked(told.marks));
            }
            if self.stop.wait(self.interval) {
                return;
            }
        }
    }

    /// Reports the free space of the watched file systems, and mounts that do not answer, remote ones included.
    fn mounts(&self, mounts: &mut MountQueries, rooms: &mut BTreeMap<PathBuf, FileSystemThresholds>, now: Instant) {
        let text = std::fs::read_to_string(self.proc_root.join("self/mounts")).unwrap_or_default();
        let mut paths = self.watched.clone();
        paths.extend(mounts::remote(&text));
        for told in mounts.look(&paths, now) {
            match told {
                mounts::MountReport::Hangs(path, lasts) => {
                    let mut says = mark(classes::FILESYSTEM_HANG, Role::Root, 0.7, "host.mount_answers");
                    self.uses.annotate_mark(place(&path), &mut says);
                    let what = format!(
                        "the file system {} has not answered for {} s",
                        path.display(),
                        lasts.as_secs()
                    );
                    self.line(what, Some(says));
                }
                mounts::MountReport::Answers(path, lasts) => {
                    let what = format!(
                        "the file system {} answers again, after {} s",
                        path.display(),
                        lasts.as_secs()
                    );
                    // Diagnosis matches this signature to clear the hang.
                    let mut says = mark(classes::NONE, Role::Noise, 0.9, "host.mount_answers_again");
                    says.fields.insert("mount".to_owned(), path.display().to_string());
                    self.line(what, Some(says));
                }
                mounts::MountReport::Has(path, room) => self.room(&path, room, rooms),
            }
        }
    }

    fn room(&self, path: &PathBuf, room: FreeSpace, rooms: &mut BTreeMap<PathBuf, FileSystemThresholds>) {
        if !self.watched.contains(path) {
            return;
        }
        let shared = path.as_os_str() == "/dev/shm";
        let (class, low, fine) = if shared {
            (classes::SHM_EXHAUSTED, SHM_LOW, SHM_FINE)
        } else {
            (classes::DISK_FULL, DISK_LOW, DISK_FINE)
        };
        let known = rooms.entry(path.clone()).or_insert(FileSystemThresholds {
            blocks: HysteresisThreshold::low(low, fine),
            inodes: HysteresisThreshold::low(low, fine),
            own: HysteresisThreshold::low(OWN_LOW, OWN_FINE),
            full: HysteresisThreshold::low(OWN_FULL, OWN_USABLE),
        });
        self.intake.board().has_room(FileSystemView {
            place: path.clone(),
            available: room.blocks,
            available_bytes: room.bytes,
            inodes_available: room.inodes,
        });
        let of = [
            (&mut known.blocks, "disk", room.blocks),
            (&mut known.inodes, "inodes", room.inodes),
        ];
        for (threshold, of, value) in of {
            let Some(crossed) = threshold.take(value) else { continue };
            let metric = format!("host.{of}_available {}", path.display());
            let says = crossed.beyond.then(|| {
                let mut says = mark(class, Role::Confirmation, 0.5, &metric);
                self.uses.annotate_mark(place(path), &mut says);
                says
            });
            self.ratio(&metric, crossed.value, says);
        }
        if *path == self.state_dir {
            self.own_room(&mut known.own, room);
            self.own_end(&mut known.full, room);
        }
    }

    /// Reports a state directory without enough room for the spool's limit: on a small disk that happens long before
    /// the part thresholds of large disks.
    fn own_room(&self, threshold: &mut HysteresisThreshold, room: FreeSpace) {
        let spool = self.spool.view();
        let needs = spool.limit_bytes.saturating_sub(spool.bytes);
        let is_enough = room.bytes >= needs;
        let Some(crossed) = threshold.take(if is_enough { 1.0 } else { room.blocks }) else {
            return;
        };
        let path = self.state_dir.display();
        if !crossed.beyond {
            return self.line(format!("the agent's state directory {path} has room again"), None);
        }
        let text = format!(
            "the agent's state directory {path} has {} bytes left ({:.1} %) and its evidence may need {needs} more; make \
             room there, or set agent.spool_bytes lower",
            room.bytes,
            room.blocks * 100.0
        );
        let mut says = mark(classes::DISK_FULL, Role::Confirmation, 0.5, "agent.state_dir_room");
        self.uses.annotate_mark(place(&self.state_dir), &mut says);
        self.line(text, Some(says));
    }

    /// Reports a state directory in which fences cannot be recorded, so that the node can start no ranks.
    fn own_end(&self, threshold: &mut HysteresisThreshold, room: FreeSpace) {
        let Some(crossed) = threshold.take(room.bytes as f64) else {
            return;
        };
        let path = self.state_dir.display();
        if !crossed.beyond {
            self.spool.keep_reserve();
            let says = mark(classes::NONE, Role::Noise, 0.9, STATE_DIR_HAS_ROOM);
            let text = format!("the agent's state directory {path} has {} bytes left again", room.bytes);
            return self.line(text, Some(says));
        }
        let text = format!(
            "the agent's state directory {path} is full: it has {} bytes left",
            room.bytes
        );
        let mut says = mark(classes::DISK_FULL, Role::Confirmation, 0.5, STATE_DIR_FULL);
        self.uses.annotate_mark(place(&self.state_dir), &mut says);
        self.line(text, Some(says));
    }

    fn limits(&self, limits: &mut LimitFindings) {
        let running = self.roster.running();
        let ranks: Vec<(RankRef, u32)> = running.into_iter().map(|rank| (rank.rank, rank.pid)).collect();
        let rdma = !rdma_ports(&self.sysfs_root).is_empty();
        for (rank, told) in limits.look(&self.proc_root, &ranks, rdma) {
            let (metric, value, unit, says) = match told {
                limits::LimitReport::Files { open, limit, near } => {
                    let says = near.then(|| {
                        mark(
                            classes::TOO_MANY_OPEN_FILES,
                            Role::Confirmation,
                            0.5,
                            "rank.open_files_used",
                        )
                    });
                    ("rank.open_files_used", open as f64 / limit.max(1) as f64, "ratio", says)
                }
                limits::LimitReport::Pinned { bytes } => {
                    let says = mark(classes::IB_RDMA_ERROR, Role::Confirmation, 0.3, "rank.locked_memory");
                    ("rank.locked_memory_limit", bytes as f64, "bytes", Some(says))
                }
            };
            let entity = self.roster.entity(&rank);
            let sighting = sample(EvidenceSource::Host, entity, metric, value, unit);
            self.intake.push(sighting.marked(says.into_iter().collect()));
        }
    }

    fn line(&self, text: String, says: Option<Classification>) {
        let body = EvidenceBody::Line {
            text,
            context: Vec::new(),
            repeats: 1,
        };
        let sighting = PendingEvidence::now(EvidenceSource::Host, self.intake.node_entity(), body);
        self.intake.push(sighting.marked(says.into_iter().collect()));
    }

    /// Reports the processes with the most memory, because after an OOM kill they can no longer be read.
    fn holders(&self, available: f64) {
        // Another process tree than this machine's is a recording.
        if self.proc_root == Path::new("/proc")
            && let Some(holders) = memory_holders::of_memory()
        {
            self.line(
                format!("{:.1} % of the memory is available; {holders}", available * 100.0),
                None,
            );
        }
    }

    /// Reports a crossing, in either direction.
    fn ratio(&self, metric: &str, value: f64, says: Option<Classification>) {
        let sighting = sample(EvidenceSource::Host, self.intake.node_entity(), metric, value, "ratio");
        self.intake.push(sighting.marked(says.into_iter().collect()));
    }
}

/// Names a file system by a path on it.
fn place(path: &Path) -> FailingStorage {
    FailingStorage::Place(path.display().to_string())
}

/// Limiter to one run each `pause`.
#[derive(Debug)]
struct IntervalLimiter {
    pause: Duration,
    next: Option<Instant>,
}

impl IntervalLimiter {
    fn new(pause: Duration) -> Self {
        Self { pause, next: None }
    }

    /// True if the next run is due. A poll up to a tenth of the pause early counts, because the next one would be late
    /// by a whole interval.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next.is_none_or(|next| now + self.pause / 10 >= next);
        if due {
            self.next = Some(now + self.pause);
        }
        due
    }
}

/// Threshold with hysteresis.
#[derive(Debug, Clone, Copy)]
struct HysteresisThreshold {
    limit: f64,
    fine: f64,
    low: bool,
    beyond: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct ThresholdCrossing {
    value: f64,
    beyond: bool,
}

impl HysteresisThreshold {
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

    /// Returns a crossing if the value is on the other side than before.
    fn take(&mut self, value: f64) -> Option<ThresholdCrossing> {
        let (over, back) = if self.low {
            (value < self.limit, value > self.fine)
        } else {
            (value > self.limit, value < self.fine)
        };
        let beyond = if self.beyond { !back } else { over };
        let changed = beyond != self.beyond;
        self.beyond = beyond;
        changed.then_some(ThresholdCrossing { value, beyond })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_is_done_at_its_own_pace() {
        let mut every = IntervalLimiter::new(Duration::from_secs(5));
        let start = Instant::now();
        let due: Vec<u64> = (0..16)
            .filter(|second| every.is_due(start + Duration::from_secs(*second)))
            .collect();
        assert_eq!(due, [0, 5, 10, 15]);
        let mut every = IntervalLimiter::new(Duration::from_secs(5));
        let early = |look: u64| start + Duration::from_millis(look * 4_999);
        assert!((0..4).all(|look| every.is_due(early(look))));
    }

    #[test]
    fn a_threshold_reports_crossings_and_nothing_in_between() {
        let mut low = HysteresisThreshold::low(0.03, 0.06);
        let taken: Vec<_> = [0.5, 0.02, 0.01, 0.05, 0.02, 0.07, 0.04]
            .into_iter()
            .map(|value| low.take(value).map(|crossed| crossed.beyond))
            .collect();
        assert_eq!(taken, [None, Some(true), None, None, None, Some(false), None]);
        let mut high = HysteresisThreshold::high(4.0, 2.0);
        assert_eq!(high.take(3.0), None);
        assert!(high.take(5.0).is_some_and(|crossed| crossed.beyond));
        assert_eq!(high.take(3.0), None);
        assert!(high.take(1.0).is_some_and(|crossed| !crossed.beyond));
    }
}
