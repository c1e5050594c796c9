//! Joint restores: ranks of one node that need the same bytes and restore at the same time are served by one read.
//!
//! A rank waits for the others of its node only where their requests must overlap, because together they need more
//! bytes than the checkpoint has. Sharded states are read at once by each rank separately. Ranks that find their state in
//! an image of their own are not awaited.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rankguard_checkpoint::format::TensorBox;
use rankguard_checkpoint::{Arena, Checkpoint};
use rankguard_model::{Generation, JobId, Rank, RestoreBytes};

/// Longest wait for the other ranks of the node, counted from the first request.
const GATHER: Duration = Duration::from_secs(3);

/// Generation of a job.
type RestoreGroupKey = (JobId, Generation);

/// Restore request of one rank: the wanted boxes and the target slot.
#[derive(Debug, Clone)]
pub(super) struct RestoreRequest {
    pub(super) wanted: Arc<[TensorBox]>,
    pub(super) arena: Arc<Arena>,
    pub(super) slot: u32,
    /// This rank, if as many ranks saved the checkpoint as restore it.
    pub(super) reader: Option<Rank>,
}

/// Restores that wait for each other.
#[derive(Debug)]
pub(super) struct JointRestores {
    groups: Mutex<BTreeMap<RestoreGroupKey, RestoreGroup>>,
    changed: Condvar,
    /// Longest wait of a rank for the others.
    longest_wait: Duration,
}

impl Default for JointRestores {
    fn default() -> Self {
        Self {
            groups: Mutex::default(),
            changed: Condvar::default(),
            longest_wait: GATHER,
        }
    }
}

#[derive(Debug, Default)]
struct RestoreGroup {
    next: u64,
    waiting: BTreeMap<u64, RestoreRequest>,
    /// Tickets that another rank's thread is serving.
    served: BTreeSet<u64>,
    /// Result by ticket; `None` if the serving thread failed, and the rank must read for itself.
    got: BTreeMap<u64, Option<RestoreBytes>>,
    /// Ranks that restored from images of their own.
    without_read: BTreeSet<Rank>,
}

impl JointRestores {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<RestoreGroupKey, RestoreGroup>> {
        self.groups.lock().expect("no holder of the gatherings panics")
    }

    /// Records that a rank reads nothing: the others of its node do not wait for it.
    pub(super) fn needs_no_read(&self, group: &RestoreGroupKey, rank: Rank) {
        let mut groups = self.lock();
        let (job, generation) = group;
        // Restores of earlier generations are over.
        groups.retain(|(of, number), known| of != job || number >= generation || !known.is_idle());
        groups.entry(group.clone()).or_default().without_read.insert(rank);
        self.changed.notify_all();
    }

    /// Serves `wish` together with those of the other `ranks - 1` ranks, in the thread that comes last or waits
    /// longest: `serve` fills all of them and returns the bytes by source. An error goes to the serving rank alone;
    /// the others read for themselves.
    pub(super) fn serve<E>(
        &self,
        group: &RestoreGroupKey,
        ranks: usize,
        wish: &RestoreRequest,
        serve: impl Fn(&[RestoreRequest]) -> Result<RestoreBytes, E>,
    ) -> Result<RestoreBytes, E> {
        let until = Instant::now() + self.longest_wait;
        let mut groups = self.lock();
        let gathering = groups.entry(group.clone()).or_default();
        let ticket = gathering.next;
        gathering.next += 1;
        gathering.waiting.insert(ticket, wish.clone());
        let mine = loop {
            let gathering = groups.entry(group.clone()).or_default();
            if let Some(got) = gathering.got.remove(&ticket) {
                tidy(&mut groups, group);
                drop(groups);
                return got.map_or_else(|| serve(std::slice::from_ref(wish)), Ok);
            }
            let left = until.saturating_duration_since(Instant::now());
            let waits = gathering.waiting.contains_key(&ticket);
            let known = gathering.waiting.len() + gathering.without_read.len();
            if waits && (known >= ranks || left.is_zero()) {
                let mine = std::mem::take(&mut gathering.waiting);
                gathering.served.extend(mine.keys());
                break mine;
            }
            // A rank that is being served waits for the serving thread; the sources of that thread have deadlines of
            // their own.
            let limit = if waits { left } else { self.longest_wait };
            let waited = self.changed.wait_timeout(groups, limit);
            groups = waited.expect("no holder of the gatherings panics").0;
        };
        drop(groups);
        let wishes: Vec<RestoreRequest> = mine.values().cloned().collect();
        let served = serve(&wishes);
        let all: u64 = wishes.iter().map(bytes).sum();
        let mut groups = self.lock();
        let gathering = groups.entry(group.clone()).or_default();
        for (other, wish) in &mine {
            gathering.served.remove(other);
            if *other != ticket {
                let part = served.as_ref().ok().map(|from| share(from, bytes(wish), all));
                gathering.got.insert(*other, part);
            }
        }
        tidy(&mut groups, group);
        self.changed.notify_all();
        served.map(|from| share(&from, bytes(wish), all))
    }
}

impl RestoreGroup {
    /// Returns true if no rank waits for a read.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.served.is_empty() && self.got.is_empty()
    }
}

/// Removes a gathering that is over; ranks without a read are recorded until the next generation.
fn tidy(groups: &mut BTreeMap<RestoreGroupKey, RestoreGroup>, group: &RestoreGroupKey) {
    let is_over = |gathering: &RestoreGroup| gathering.is_idle() && gathering.without_read.is_empty();
    if groups.get(group).is_some_and(is_over) {
        groups.remove(group);
    }
}

fn bytes(wish: &RestoreRequest) -> u64 {
    wish.wanted.iter().filter_map(TensorBox::bytes).sum()
}

/// Returns the part of a joint restore that belongs to a rank that requested `own` of `all` bytes.
fn share(from: &RestoreBytes, own: u64, all: u64) -> RestoreBytes {
    let part = |bytes: u64| (u128::from(bytes) * u128::from(own) / u128::from(all.max(1))) as u64;
    RestoreBytes {
        arena: part(from.arena),
        peer: part(from.peer),
        disk: part(from.disk),
    }
}

/// Returns true if `ranks` ranks that each request as much as this one must request some bytes twice.
pub(super) fn overlap(checkpoint: &Checkpoint, wanted: &[TensorBox], ranks: usize) -> bool {
    let whole = |boxed: &TensorBox| {
        let elements = boxed
            .global_shape
            .iter()
            .fold(1u64, |all, side| all.saturating_mul(*side));
        elements.saturating_mul(boxed.dtype.bytes())
    };
    let tensors = checkpoint.indexes.iter().flat_map(|index| &index.tensors);
    let sizes: BTreeMap<&str, u64> = tensors
        .map(|entry| (entry.boxed.name.as_str(), whole(&entry.boxed)))
        .collect();
    let all = sizes.values().fold(0u64, |sum, size| sum.saturating_add(*size));
    let own: u64 = wanted.iter().filter_map(TensorBox::bytes).sum();
    // Small tensors that every rank has are no reason to wait.
    ranks > 1 && own.saturating_mul(ranks as u64) > all.saturating_add(all / 4)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rankguard_checkpoint::format::Dtype;

    use super::*;

    fn wish() -> RestoreRequest {
        RestoreRequest {
            wanted: [TensorBox::whole("w", Dtype::U8, vec![100])].into(),
            arena: Arc::new(Arena::create("test", 1, 100).expect("memory for a small arena")),
            slot: 0,
            reader: None,
        }
    }

    fn group() -> RestoreGroupKey {
        (JobId::from("train"), Generation(1))
    }

    #[test]
    fn ranks_that_ask_together_are_served_once() {
        let joint = JointRestores::default();
        let served = AtomicUsize::new(0);
        let serve = |wishes: &[RestoreRequest]| {
            served.fetch_add(wishes.len() << 8 | 1, Ordering::Relaxed);
            let disk = 100 * wishes.len() as u64;
            Ok::<_, ()>(RestoreBytes {
                disk,
                ..RestoreBytes::default()
            })
        };
        let wishes = [wish(), wish(), wish()];
        std::thread::scope(|scope| {
            let ranks: Vec<_> = wishes
                .iter()
                .map(|wish| scope.spawn(|| joint.serve(&group(), 3, wish, serve)))
                .collect();
            for rank in ranks {
                assert_eq!(rank.join().expect("no panic").expect("served").disk, 100);
            }
        });
        assert_eq!(served.load(Ordering::Relaxed), 3 << 8 | 1, "three wishes in one go");
        assert!(joint.lock().is_empty(), "nothing is left behind");
    }

    /// One of two ranks finds its state in its own image, before or after the other asks.
    #[test]
    fn a_rank_that_reads_nothing_is_not_awaited() {
        let hour = Duration::from_secs(3_600);
        let joint = JointRestores {
            longest_wait: hour,
            ..JointRestores::default()
        };
        let serve = |wishes: &[RestoreRequest]| Ok::<_, ()>(bytes_of(wishes.len()));
        joint.needs_no_read(&group(), Rank(1));
        joint.needs_no_read(&group(), Rank(1));
        assert_eq!(joint.serve(&group(), 2, &wish(), serve), Ok(bytes_of(1)));
        let next = (JobId::from("train"), Generation(2));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| joint.serve(&next, 2, &wish(), serve));
            while joint.lock().get(&next).is_none_or(|known| known.waiting.is_empty()) {
                std::thread::yield_now();
            }
            joint.needs_no_read(&next, Rank(0));
            assert_eq!(waits.join().expect("no panic"), Ok(bytes_of(1)));
        });
        assert_eq!(joint.lock().len(), 1, "the earlier generation is forgotten");
    }

    fn bytes_of(wishes: usize) -> RestoreBytes {
        RestoreBytes {
            disk: 100 * wishes as u64,
            ..RestoreBytes::default()
        }
    }

    #[test]
    fn an_error_is_told_to_one_and_the_others_try_for_themselves() {
        let joint = JointRestores::default();
        let calls = AtomicUsize::new(0);
        let serve = |wishes: &[RestoreRequest]| {
            calls.fetch_add(1, Ordering::Relaxed);
            match wishes.len() {
                1 => Ok(RestoreBytes::default()),
                _ => Err("one of them asks for too much"),
            }
        };
        let wishes = [wish(), wish()];
        let results: Vec<_> = std::thread::scope(|scope| {
            let ranks: Vec<_> = wishes
                .iter()
                .map(|wish| scope.spawn(|| joint.serve(&group(), 2, wish, serve)))
                .collect();
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn who_is_alone_is_served_when_the_time_is_up() {
        let joint = JointRestores::default();
        let alone = joint.serve(&group(), 2, &wish(), |wishes| {
            assert_eq!(wishes.len(), 1);
            Ok::<_, ()>(RestoreBytes::default())
        });
        assert!(alone.is_ok());
    }
}
