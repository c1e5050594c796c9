//! Counters of the evidence that passes the intake. Bounded: beyond the limit, further series are only counted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use rankguard_model::{
    DeviceKind, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, NodeId, Role, Sequence, Timestamp,
};

use crate::clock;
use crate::pending_evidence::PendingEvidence;
use crate::views::{
    CheckView, CodeView, FileSystemView, GapView, GenerationView, HostView, InjectionRecord, MigView, SeriesView,
    UplinkView,
};

/// Maximum number of series. A node has about ten devices and about ten classes that ever occur on them.
const SERIES: usize = 1024;
/// Mark fields that hold a driver's error code.
const CODES: [&str; 2] = ["xid", "sxid"];
/// Number of injections retained for the agent's view.
const INJECTIONS: usize = 64;
/// Number of evidence records retained for the agent's view.
const FINDINGS: usize = 256;
/// Number of clearings of the node retained for the agent's view.
const CLEARINGS: usize = 64;
/// Number of generations retained for the agent's view: a finding names at most one.
const GENERATIONS: usize = FINDINGS;

/// Shared counters. Cheap to clone; all clones share one set.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatusBoard(Arc<Mutex<BoardState>>);

/// Snapshot of all counters.
#[derive(Debug, Clone, Default)]
pub(crate) struct BoardState {
    pub(crate) evidence: BTreeMap<EvidenceSource, u64>,
    pub(crate) gaps: BTreeMap<EvidenceSource, GapView>,
    pub(crate) dropped: u64,
    series: BTreeMap<SeriesKey, (u64, Timestamp)>,
    codes: BTreeMap<CodeKey, u64>,
    pub(crate) injections: BTreeMap<String, u64>,
    pub(crate) newest_injections: VecDeque<InjectionRecord>,
    pub(crate) beyond: u64,
    pub(crate) findings: VecDeque<Evidence>,
    noted: u64,
    pub(crate) generations: VecDeque<GenerationView>,
    pub(crate) clearings: BTreeSet<Timestamp>,
    pub(crate) uplink: UplinkView,
    pub(crate) checks: BTreeMap<String, CheckView>,
    pub(crate) mig_devices: Vec<MigView>,
    pub(crate) rooms: BTreeMap<PathBuf, FileSystemView>,
    pub(crate) host: HostView,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SeriesKey {
    class: String,
    role: Role,
    kind: &'static str,
    entity: String,
    synthetic: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CodeKey {
    family: &'static str,
    code: String,
    kind: &'static str,
    entity: String,
    synthetic: bool,
}

impl StatusBoard {
    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.0.lock().expect("no holder of the board panics")
    }

    /// Counts a sighting that the intake accepted.
    pub(crate) fn note(&self, node: &NodeId, sighting: &PendingEvidence) {
        let mut counts = self.lock();
        *counts.evidence.entry(sighting.source).or_default() += 1;
        if let EvidenceBody::Gap { what, lost } = &sighting.body {
            let gap = counts.gaps.entry(sighting.source).or_default();
            gap.count += 1;
            gap.lost = gap.lost.saturating_add(lost.unwrap_or_default());
            gap.at = sighting.at;
            gap.what.clone_from(what);
        }
        counts.mark(sighting);
        counts.count_start(sighting);
        let speaks = !sighting.marks.is_empty() || matches!(sighting.body, EvidenceBody::RankExited { .. });
        if speaks {
            counts.noted += 1;
            let seq = Sequence(counts.noted);
            if counts.findings.len() >= FINDINGS {
                counts.findings.pop_front();
            }
            counts.findings.push_back(Evidence {
                id: EvidenceId {
                    node: node.clone(),
                    seq,
                },
                at: sighting.at,
                source: sighting.source,
                entity: sighting.entity.clone(),
                body: sighting.body.clone(),
                marks: sighting.marks.clone(),
                synthetic: sighting.synthetic,
            });
        }
    }

    /// Counts evidence that was dropped before the spool.
    pub(crate) fn dropped(&self) {
        self.lock().dropped += 1;
    }

    /// Records an injected fault.
    pub(crate) fn injected(&self, injected: InjectionRecord) {
        let mut counts = self.lock();
        *counts.injections.entry(injected.kind.clone()).or_default() += 1;
        if counts.newest_injections.len() >= INJECTIONS {
            counts.newest_injections.pop_front();
        }
        counts.newest_injections.push_back(injected);
    }

    /// Records the begin of a session with the controller, or its end with the reason.
    pub(crate) fn session(&self, controller: &str, ended: Option<String>) {
        let mut counts = self.lock();
        let uplink = &mut counts.uplink;
        let connected = ended.is_none();
        if uplink.connected != connected || uplink.controller.is_empty() {
            uplink.since = clock::now();
        }
        uplink.controller = controller.to_owned();
        uplink.connected = connected;
        if ended.is_some() {
            uplink.problem = ended;
        }
    }

    /// Records that an operator cleared this node, on the node's clock.
    pub(crate) fn node_cleared(&self, at: Timestamp) {
        let mut counts = self.lock();
        counts.clearings.insert(at);
        if counts.clearings.len() > CLEARINGS {
            counts.clearings.pop_first();
        }
    }

    /// Records the result of a plug-in check.
    pub(crate) fn checked(&self, check: CheckView) {
        self.lock().checks.insert(check.check.clone(), check);
    }

    /// Records the MIG devices of this node.
    pub(crate) fn cut(&self, mig_devices: Vec<MigView>) {
        self.lock().mig_devices = mig_devices;
    }

    /// Records the available space of a file system.
    pub(crate) fn has_room(&self, room: FileSystemView) {
        self.lock().rooms.insert(room.place.clone(), room);
    }

    /// Records the load of the host.
    pub(crate) fn is_busy(&self, host: HostView) {
        self.lock().host = host;
    }

    /// Returns a copy of all counters.
    pub(crate) fn read(&self) -> BoardState {
        self.lock().clone()
    }
}

impl BoardState {
    /// Counts a sighting once in each of its series, even if several of its marks belong to the same series.
    fn mark(&mut self, sighting: &PendingEvidence) {
        let (kind, entity) = named(&sighting.entity);
        let synthetic = sighting.synthetic;
        let repeats = match &sighting.body {
            EvidenceBody::Line { repeats, .. } => u64::from(*repeats).max(1),
            _ => 1,
        };
        let keys: BTreeSet<SeriesKey> = sighting
            .marks
            .iter()
            .map(|mark| SeriesKey {
                class: mark.class.to_string(),
                role: mark.role,
                kind,
                entity: entity.clone(),
                synthetic,
            })
            .collect();
        for key in keys {
            if self.series.len() >= SERIES && !self.series.contains_key(&key) {
                self.beyond += 1;
                continue;
            }
            let (count, last) = self.series.entry(key).or_default();
            *count = count.saturating_add(repeats);
            *last = (*last).max(sighting.at);
        }
        let codes: BTreeSet<CodeKey> = sighting
            .marks
            .iter()
            .flat_map(|mark| {
                CODES
                    .iter()
                    .filter_map(|family| Some((*family, mark.fields.get(family)?)))
            })
            .map(|(family, code)| CodeKey {
                family,
                code: code.to_owned(),
                kind,
                entity: entity.clone(),
                synthetic,
            })
            .collect();
        for key in codes {
            if self.codes.len() >= SERIES && !self.codes.contains_key(&key) {
                self.beyond += 1;
                continue;
            }
            let count = self.codes.entry(key).or_default();
            *count = count.saturating_add(repeats);
        }
    }

    /// Records the first start of a rank of each generation.
    fn count_start(&mut self, sighting: &PendingEvidence) {
        let (EvidenceBody::RankStarted { .. }, Entity::Rank { job, generation, .. }) =
            (&sighting.body, &sighting.entity)
        else {
            return;
        };
        let is_known = |known: &GenerationView| known.job == *job && known.generation == *generation;
        if self.generations.iter().any(is_known) {
            return;
        }
        if self.generations.len() >= GENERATIONS {
            self.generations.pop_front();
        }
        self.generations.push_back(GenerationView {
            job: job.clone(),
            generation: *generation,
            since: sighting.at,
        });
    }

    pub(crate) fn codes(&self) -> Vec<CodeView> {
        let told = self.codes.iter().map(|(key, count)| CodeView {
            family: key.family.to_owned(),
            code: key.code.clone(),
            kind: key.kind.to_owned(),
            entity: key.entity.clone(),
            synthetic: key.synthetic,
            count: *count,
        });
        told.collect()
    }

    pub(crate) fn series(&self) -> Vec<SeriesView> {
        let told = self.series.iter().map(|(key, (count, last))| SeriesView {
            class: key.class.clone(),
            role: role(key.role).to_owned(),
            kind: key.kind.to_owned(),
            entity: key.entity.clone(),
            synthetic: key.synthetic,
            count: *count,
            last: *last,
        });
        told.collect()
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Root => "root",
        Role::Cascade => "cascade",
        Role::Confirmation => "confirmation",
        Role::Noise => "noise",
    }
}

/// Returns kind and name of an entity. Generations are left out, because they would make a new series after every
/// restart.
fn named(entity: &Entity) -> (&'static str, String) {
    match entity {
        Entity::Node { node } => ("node", node.to_string()),
        Entity::Device { device, .. } => {
            let kind = match device.kind {
                DeviceKind::Gpu => "gpu",
                DeviceKind::Nic => "nic",
                DeviceKind::Nvswitch => "nvswitch",
                DeviceKind::Disk => "disk",
            };
            (kind, device.address.clone())
        }
        Entity::Rank { job, rank, .. } => ("rank", format!("{job}/{rank}")),
        Entity::Job { job, .. } => ("job", job.to_string()),
        other => ("unknown", other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Classification, Device};

    use super::*;
    use crate::pending_evidence::mark;

    fn line(address: &str, mark: Classification, repeats: u32) -> PendingEvidence {
        let entity = Entity::Device {
            node: NodeId::from("a"),
            device: Device {
                kind: DeviceKind::Gpu,
                address: address.to_owned(),
            },
        };
        let body = EvidenceBody::Line {
            text: "NVRM: Xid".to_owned(),
            context: Vec::new(),
            repeats,
        };
        PendingEvidence::now(EvidenceSource::KernelLog, entity, body).marked(vec![mark])
    }

    #[test]
    fn the_same_code_on_the_same_device_is_one_series_that_grows() {
        let board = StatusBoard::default();
        let mut says = mark("gpu-fallen-off-bus", Role::Root, 0.9, "xid");
        says.fields.insert("xid".to_owned(), "79".to_owned());
        board.note(&NodeId::from("a"), &line("0000:9b:00", says.clone(), 1));
        board.note(&NodeId::from("a"), &line("0000:9b:00", says.clone(), 5));
        board.note(&NodeId::from("a"), &line("0000:1b:00", says, 1));
        let counts = board.read();
        let series = counts.series().into_iter().map(|it| (it.entity, it.count));
        let codes = counts.codes().into_iter().map(|it| (it.entity, it.count));
        let wanted = [("0000:1b:00".to_owned(), 1), ("0000:9b:00".to_owned(), 6)];
        assert_eq!(series.collect::<Vec<_>>(), wanted);
        assert_eq!(codes.collect::<Vec<_>>(), wanted);
    }

    /// The driver's lines about one failure: one with a code, and one without.
    #[test]
    fn all_that_is_said_of_one_failure_of_a_device_is_one_series() {
        let board = StatusBoard::default();
        let matcher = rankguard_faults::SignatureMatcher::builtin();
        for text in [
            "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=python, GPU has fallen off the bus.",
            "NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.",
        ] {
            let marks = matcher.marks(EvidenceSource::KernelLog, text);
            assert!(!marks.is_empty(), "{text}");
            let mut sighting = line("0000:9b:00", marks[0].clone(), 1);
            sighting.marks.extend(marks);
            board.note(&NodeId::from("a"), &sighting);
        }
        let counts = board.read();
        let series: Vec<_> = counts.series().into_iter().map(|it| (it.class, it.count)).collect();
        assert_eq!(series, [("gpu-fallen-off-bus".to_owned(), 2)]);
        let codes: Vec<_> = counts
            .codes()
            .into_iter()
            .map(|it| (it.family, it.code, it.count))
            .collect();
        assert_eq!(codes, [("xid".to_owned(), "79".to_owned(), 1)]);
    }

    #[test]
    fn what_is_made_up_is_counted_apart() {
        let board = StatusBoard::default();
        let says = mark("gpu-fallen-off-bus", Role::Root, 0.9, "xid");
        board.note(&NodeId::from("a"), &line("0000:9b:00", says.clone(), 1));
        board.note(&NodeId::from("a"), &line("0000:9b:00", says, 1).synthetic(true));
        let told: Vec<_> = board
            .read()
            .series()
            .into_iter()
            .map(|it| (it.synthetic, it.count))
            .collect();
        assert_eq!(told, [(false, 1), (true, 1)]);
    }

    #[test]
    fn a_flood_of_kinds_is_counted_and_not_kept() {
        let board = StatusBoard::default();
        for number in 0..(SERIES as u64 + 10) {
            let says = mark("unknown-xid", Role::Root, 0.9, "xid");
            board.note(&NodeId::from("a"), &line(&format!("{number:08x}"), says, 1));
        }
        let counts = board.read();
        assert_eq!((counts.series.len(), counts.beyond), (SERIES, 10));
        assert_eq!(counts.findings.len(), FINDINGS);
        assert_eq!(
            counts.findings.back().map(|newest| newest.id.seq.0),
            Some(SERIES as u64 + 10)
        );
    }

    #[test]
    fn what_was_lost_adds_up_and_the_newest_gap_is_told() {
        let board = StatusBoard::default();
        let entity = Entity::Unknown;
        for (what, lost) in [("first", Some(u64::MAX)), ("second", Some(2)), ("third", None)] {
            let body = EvidenceBody::Gap {
                what: what.to_owned(),
                lost,
            };
            board.note(
                &NodeId::from("a"),
                &PendingEvidence::now(EvidenceSource::KernelLog, entity.clone(), body),
            );
        }
        let gap = board.read().gaps.remove(&EvidenceSource::KernelLog).unwrap_or_default();
        assert_eq!((gap.count, gap.lost, gap.what.as_str()), (3, u64::MAX, "third"));
    }
}
