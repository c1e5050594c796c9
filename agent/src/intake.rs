//! Intake: the queue between collectors and the spool.
//!
//! A push never blocks, so that a slow disk cannot delay a collector, a rank's socket or an order. The queue is
//! bounded; it overflows like the spool: the oldest sample or progress is dropped first, and the number of dropped ones
//! is recorded as a gap (RG-4).
//!
//! Reader positions pass through the same queue as the evidence, so that none is stored before the evidence it follows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use rankguard_model::{Entity, EvidenceBody, EvidenceSource, NodeId};

use crate::outlets::{LogQueue, StatusBoard};
use crate::pending_evidence::{PendingEvidence, ReaderCursor};
use crate::synthetic_targets::SyntheticTargets;

/// Most evidence records that may wait for the disk.
const CAPACITY: usize = 16_384;
/// Longest wait of reader positions for evidence to share a commit with. After a crash a reader reads again at most
/// what it read without evidence in this time.
const POSITIONS_LINGER: Duration = Duration::from_secs(30);

/// Handle of the queue for collectors. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct EvidenceIntake {
    shared: Arc<IntakeShared>,
}

#[derive(Debug)]
struct IntakeShared {
    node: NodeId,
    capacity: usize,
    /// Status board for the agent's API.
    board: StatusBoard,
    /// Targets of injections; evidence about them is marked as synthetic.
    covers: SyntheticTargets,
    /// Outlet that receives a copy of all evidence, if set.
    copies: OnceLock<LogQueue>,
    queue: Mutex<IntakeQueue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct IntakeQueue {
    waiting: VecDeque<PendingEvidence>,
    oldest: Option<Instant>,
    urgent: bool,
    lost: u64,
    closed: bool,
    /// Count of evidence records that were returned or dropped so far.
    gone: u64,
    /// Positions of readers that read on without evidence, each with the count of evidence pushed before it.
    positions: BTreeMap<String, (String, u64)>,
    /// Time since which positions wait.
    moved: Option<Instant>,
}

/// Evidence and positions of one commit.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct IntakeBatch {
    pub(crate) sightings: Vec<PendingEvidence>,
    /// Reader positions after the evidence.
    pub(crate) positions: Vec<ReaderCursor>,
}

impl IntakeBatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.sightings.is_empty() && self.positions.is_empty()
    }
}

impl IntakeQueue {
    /// Takes the positions of readers with no evidence left in the queue.
    fn take_positions(&mut self) -> Vec<ReaderCursor> {
        let gone = self.gone;
        let all = std::mem::take(&mut self.positions);
        let (ready, early): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.into_iter().partition(|(_, (_, after))| *after <= gone);
        self.moved = (!early.is_empty()).then(Instant::now);
        self.positions = early;
        let cursors = ready.into_iter().map(|(key, (value, _))| ReaderCursor { key, value });
        cursors.collect()
    }

    /// Returns the number to take for `most`: more if the last one must be committed together with the next.
    fn whole(&self, most: usize) -> usize {
        let joined = |count: usize| count.checked_sub(1).and_then(|last| self.waiting.get(last));
        let mut count = self.waiting.len().min(most);
        while count < self.waiting.len() && joined(count).is_some_and(|last| last.joined) {
            count += 1;
        }
        count
    }

    /// Returns the readers with a later position in the queue.
    fn keys(&self) -> impl Iterator<Item = String> {
        let cursors = self.waiting.iter().filter_map(|sighting| sighting.cursor.as_ref());
        cursors.map(|cursor| cursor.key.clone())
    }

    /// Drops an item. It counts as returned, because the positions pushed after it have one item fewer before them.
    fn drop_at(&mut self, place: usize) {
        if self.waiting.remove(place).is_some() {
            self.gone += 1;
        }
    }
}

impl EvidenceIntake {
    pub(crate) fn new(node: NodeId) -> Self {
        Self::with_capacity(node, CAPACITY)
    }

    fn with_capacity(node: NodeId, capacity: usize) -> Self {
        Self {
            shared: Arc::new(IntakeShared {
                node,
                capacity,
                board: StatusBoard::default(),
                covers: SyntheticTargets::default(),
                copies: OnceLock::new(),
                queue: Mutex::new(IntakeQueue::default()),
                arrived: Condvar::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, IntakeQueue> {
        self.shared.queue.lock().expect("no holder of the intake panics")
    }

    /// Returns the node as an entity.
    pub(crate) fn node_entity(&self) -> Entity {
        Entity::Node {
            node: self.shared.node.clone(),
        }
    }

    /// Returns the node's name.
    pub(crate) fn node(&self) -> &NodeId {
        &self.shared.node
    }

    /// Returns the status board.
    pub(crate) fn board(&self) -> &StatusBoard {
        &self.shared.board
    }

    /// Returns the targets of injections.
    pub(crate) fn covers(&self) -> &SyntheticTargets {
        &self.shared.covers
    }

    /// Sets an outlet that receives a copy of all evidence. Later calls are ignored.
    pub(crate) fn copy_to(&self, copies: LogQueue) {
        let _ = self.shared.copies.set(copies);
    }

    /// Pushes evidence without blocking.
    pub(crate) fn push(&self, sighting: PendingEvidence) {
        self.push_all(vec![sighting]);
    }

    /// Pushes the evidence of one poll without blocking. It is committed as one: after a crash either all or none of it
    /// counts as read.
    pub(crate) fn push_all(&self, mut sightings: Vec<PendingEvidence>) {
        let Some(last) = sightings.len().checked_sub(1) else {
            return;
        };
        for (index, sighting) in sightings.iter_mut().enumerate() {
            sighting.synthetic |= self.shared.covers.covers(sighting);
            sighting.joined = index < last;
            self.shared.board.note(&self.shared.node, sighting);
            if let Some(copies) = self.shared.copies.get() {
                copies.offer(sighting);
            }
        }
        let mut queue = self.lock();
        for sighting in sightings {
            self.admit(&mut queue, sighting);
        }
        if queue.urgent || queue.waiting.len() == 1 {
            self.shared.arrived.notify_one();
        }
    }

    fn admit(&self, queue: &mut IntakeQueue, sighting: PendingEvidence) {
        if queue.waiting.len() >= self.shared.capacity {
            queue.lost += 1;
            self.shared.board.dropped();
            match queue.waiting.iter().position(PendingEvidence::is_droppable) {
                Some(oldest) => queue.drop_at(oldest),
                None => return,
            }
        }
        if let Some(cursor) = &sighting.cursor {
            // The evidence carries a later position.
            queue.positions.remove(&cursor.key);
        }
        queue.oldest.get_or_insert_with(Instant::now);
        queue.urgent |= sighting.urgent;
        queue.waiting.push_back(sighting);
    }

    /// Records the position of a reader that read on without evidence. It is committed with the next evidence, or after
    /// [`POSITIONS_LINGER`].
    pub(crate) fn record_position(&self, cursor: ReaderCursor) {
        let mut queue = self.lock();
        let after = queue.gone + queue.waiting.len() as u64;
        queue.positions.insert(cursor.key, (cursor.value, after));
        if queue.moved.is_none() {
            queue.moved = Some(Instant::now());
            self.shared.arrived.notify_one();
        }
    }

    /// Pushes a gap for something that was lost or is absent.
    pub(crate) fn gap(&self, source: EvidenceSource, what: impl Into<String>, lost: Option<u64>) {
        let what = what.into();
        self.push(PendingEvidence::now(
            source,
            self.node_entity(),
            EvidenceBody::Gap { what, lost },
        ));
    }

    /// Returns the next batch to commit: at once if evidence is urgent, else after `linger`. Empty only if the intake
    /// is closed and drained; more than `most` only if the evidence of one poll is more.
    pub(crate) fn take(&self, linger: Duration, most: usize) -> IntakeBatch {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            let due = queue.oldest.map(|since| since + linger);
            let positions_due = queue.moved.map(|since| since + POSITIONS_LINGER);
            let reached = |due: Option<Instant>| due.is_some_and(|due| due <= now);
            let sightings = (queue.urgent || queue.closed || reached(due)) && !queue.waiting.is_empty();
            let positions = (queue.closed || reached(positions_due)) && !queue.positions.is_empty();
            if sightings || positions {
                break;
            }
            if queue.closed {
                return IntakeBatch::default();
            }
            let next = due.into_iter().chain(positions_due).min();
            let waited = match next {
                Some(next) => self
                    .shared
                    .arrived
                    .wait_timeout(queue, next.saturating_duration_since(now))
                    .map(|(queue, _)| queue)
                    .map_err(|problem| problem.into_inner().0),
                None => self
                    .shared
                    .arrived
                    .wait(queue)
                    .map_err(std::sync::PoisonError::into_inner),
            };
            queue = waited.expect("no holder of the intake panics");
        }
        let count = queue.whole(most);
        let mut sightings: Vec<PendingEvidence> = queue.waiting.drain(..count).collect();
        queue.gone += count as u64;
        let rest_urgent = queue.waiting.iter().any(|sighting| sighting.urgent);
        queue.urgent = rest_urgent;
        queue.oldest = (!queue.waiting.is_empty()).then(Instant::now);
        let positions = queue.take_positions();
        let lost = std::mem::take(&mut queue.lost);
        drop(queue);
        if lost > 0 {
            sightings.push(PendingEvidence::now(
                EvidenceSource::Agent,
                self.node_entity(),
                EvidenceBody::Gap {
                    what: "evidence was dropped before the spool: the disk did not keep up".to_owned(),
                    lost: Some(lost),
                },
            ));
        }
        IntakeBatch { sightings, positions }
    }

    /// Puts a batch that could not be committed back at the front.
    pub(crate) fn put_back(&self, batch: IntakeBatch) {
        let mut queue = self.lock();
        queue.gone = queue.gone.saturating_sub(batch.sightings.len() as u64);
        let after = queue.gone + batch.sightings.len() as u64;
        let further: BTreeSet<String> = queue.keys().collect();
        for sighting in batch.sightings.into_iter().rev() {
            queue.urgent |= sighting.urgent;
            queue.waiting.push_front(sighting);
        }
        if !queue.waiting.is_empty() {
            queue.oldest.get_or_insert_with(Instant::now);
        }
        // The reader may have moved on meanwhile.
        for cursor in batch
            .positions
            .into_iter()
            .filter(|cursor| !further.contains(&cursor.key))
        {
            queue.positions.entry(cursor.key).or_insert((cursor.value, after));
        }
        if !queue.positions.is_empty() {
            queue.moved.get_or_insert_with(Instant::now);
        }
        while queue.waiting.len() > self.shared.capacity {
            let victim = queue.waiting.iter().position(PendingEvidence::is_droppable);
            match victim {
                Some(oldest) => queue.drop_at(oldest),
                None => drop(queue.waiting.pop_back()),
            }
            queue.lost += 1;
            self.shared.board.dropped();
        }
    }

    /// Closes the intake; evidence in the queue is still returned.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.shared.arrived.notify_all();
    }

    /// True if the intake is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Returns everything in the queue without waiting.
    #[cfg(test)]
    pub(crate) fn drain(&self) -> Vec<PendingEvidence> {
        let mut queue = self.lock();
        queue.urgent = false;
        queue.oldest = None;
        queue.gone += queue.waiting.len() as u64;
        queue.waiting.drain(..).collect()
    }

    /// Returns the reader positions after the evidence of [`EvidenceIntake::drain`].
    #[cfg(test)]
    pub(crate) fn drain_positions(&self) -> Vec<ReaderCursor> {
        self.lock().take_positions()
    }
}

#[cfg(test)]
mod tests;
