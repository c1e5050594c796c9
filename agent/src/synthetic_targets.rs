//! Targets of injections: all evidence about them is synthetic until a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use rankguard_faults::classes;
use rankguard_model::{Entity, EvidenceBody};

use crate::pending_evidence::PendingEvidence;

/// Targets that are covered at present. Cheap to clone, and cheap to query while there are none.
#[derive(Debug, Clone, Default)]
pub(crate) struct SyntheticTargets(Arc<SyntheticShared>);

#[derive(Debug, Default)]
struct SyntheticShared {
    count: AtomicUsize,
    all: Mutex<Vec<SyntheticEntry>>,
}

#[derive(Debug)]
struct SyntheticEntry {
    number: u64,
    cover: SyntheticTarget,
    until: Instant,
}

/// Target with evidence that is synthetic.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SyntheticTarget {
    /// All evidence about one entity.
    About(Entity),
    /// A single metric of an entity.
    Metric(Entity, String),
    /// Free space of file systems: its samples, and writes that failed for lack of it.
    Room,
}

impl SyntheticTarget {
    fn covers(&self, sighting: &PendingEvidence) -> bool {
        match self {
            Self::About(entity) => sighting.entity == *entity,
            Self::Metric(entity, metric) => {
                sighting.entity == *entity
                    && matches!(&sighting.body, EvidenceBody::Sample { metric: of, .. } if of == metric)
            }
            Self::Room => {
                let measured = matches!(&sighting.body, EvidenceBody::Sample { metric, .. } if metric.starts_with("host.disk_available "));
                let unwritten =
                    matches!(&sighting.body, EvidenceBody::ShardFailed { reason, .. } if reason.contains("space"));
                let named = sighting
                    .marks
                    .iter()
                    .any(|mark| mark.class.as_str() == classes::DISK_FULL);
                measured || unwritten || named
            }
        }
    }
}

impl SyntheticTargets {
    fn lock(&self) -> MutexGuard<'_, Vec<SyntheticEntry>> {
        self.0.all.lock().expect("no holder of the covers panics")
    }

    fn retain(&self, wanted: impl Fn(&SyntheticEntry) -> bool) -> MutexGuard<'_, Vec<SyntheticEntry>> {
        let mut all = self.lock();
        let now = Instant::now();
        all.retain(|entry| entry.until > now && wanted(entry));
        self.0.count.store(all.len(), Ordering::Release);
        all
    }

    /// Covers a target for the injection of this number, from now until a time.
    pub(crate) fn add(&self, number: u64, cover: SyntheticTarget, until: Instant) {
        let mut all = self.retain(|_| true);
        all.push(SyntheticEntry { number, cover, until });
        self.0.count.store(all.len(), Ordering::Release);
    }

    /// Removes the cover of an injection that failed.
    pub(crate) fn remove(&self, number: u64) {
        drop(self.retain(|entry| entry.number != number));
    }

    /// True if evidence results from an injection.
    pub(crate) fn covers(&self, sighting: &PendingEvidence) -> bool {
        self.0.count.load(Ordering::Acquire) > 0
            && self.retain(|_| true).iter().any(|entry| entry.cover.covers(sighting))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rankguard_model::{EvidenceSource, NodeId, Role, Step};

    use super::*;
    use crate::pending_evidence::{mark, sample};

    fn node(name: &str) -> Entity {
        Entity::Node {
            node: NodeId::from(name),
        }
    }

    #[test]
    fn only_what_is_covered_is_made_up_and_only_until_then() {
        let covers = SyntheticTargets::default();
        let later = Instant::now() + Duration::from_secs(600);
        let about = sample(EvidenceSource::Host, node("a"), "x", 1.0, "count");
        assert!(!covers.covers(&about));
        covers.add(1, SyntheticTarget::Metric(node("a"), "x".to_owned()), later);
        covers.add(2, SyntheticTarget::About(node("b")), later);
        covers.add(3, SyntheticTarget::About(node("c")), Instant::now());
        assert!(covers.covers(&about));
        assert!(!covers.covers(&sample(EvidenceSource::Host, node("a"), "y", 1.0, "count")));
        assert!(covers.covers(&sample(EvidenceSource::Host, node("b"), "y", 1.0, "count")));
        assert!(!covers.covers(&sample(EvidenceSource::Host, node("c"), "y", 1.0, "count")));
        covers.remove(1);
        assert!(!covers.covers(&about));
        assert!(covers.covers(&sample(EvidenceSource::Host, node("b"), "y", 1.0, "count")));
    }

    #[test]
    fn want_of_room_has_many_faces() {
        let covers = SyntheticTargets::default();
        covers.add(1, SyntheticTarget::Room, Instant::now() + Duration::from_secs(600));
        let failed = |reason: &str| {
            let reason = reason.to_owned();
            PendingEvidence::now(
                EvidenceSource::Checkpoint,
                node("a"),
                EvidenceBody::ShardFailed { step: Step(1), reason },
            )
        };
        assert!(covers.covers(&failed("No space left on device")));
        assert!(!covers.covers(&failed("Input/output error")));
        assert!(covers.covers(&sample(
            EvidenceSource::Host,
            node("a"),
            "host.disk_available /",
            0.0,
            "ratio"
        )));
        let line = sample(EvidenceSource::JobLog, node("a"), "x", 0.0, "ratio");
        let line = line.marked(vec![mark("disk-full", Role::Root, 0.9, "enospc")]);
        assert!(covers.covers(&line));
    }
}
