//! The one door between collectors and the spool.
//!
//! Pushing never waits, so a slow disk cannot hold up a collector, a rank's socket or an order. The queue is bounded;
//! its full-rule is the spool's: the oldest sample or progress goes first, and how many went is recorded as a gap
//! (RG-4).
//!
//! Positions of readers go the same way as what they have read, so that none can come to the disk before it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use rankguard_model::{Body, Entity, NodeId, Source};

use crate::inject::Covers;
use crate::outlets::{Board, LogQueue};
use crate::sighting::{Cursor, Sighting};

/// Sightings that may wait for the disk.
const CAPACITY: usize = 16_384;
/// Longest wait of readers' positions for a sighting whose commit they can share. What a reader would read again after a
/// crash is what it found nothing in for this long.
const POSITIONS_LINGER: Duration = Duration::from_secs(30);

/// Where collectors leave what they have seen. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Intake {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    node: NodeId,
    capacity: usize,
    /// What passed, for whoever asks on this node.
    board: Board,
    /// What counts as the work of an injection.
    covers: Covers,
    /// Where a copy goes, if anywhere.
    copies: OnceLock<LogQueue>,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Sighting>,
    oldest: Option<Instant>,
    urgent: bool,
    lost: u64,
    closed: bool,
    /// Sightings that were handed out or dropped so far.
    gone: u64,
    /// Where readers stand that have read on without seeing anything, and how many sightings came before that.
    positions: BTreeMap<String, (String, u64)>,
    /// Since when there are positions.
    moved: Option<Instant>,
}

/// What is committed together.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Batch {
    pub(crate) sightings: Vec<Sighting>,
    /// Where readers stand after them.
    pub(crate) positions: Vec<Cursor>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.sightings.is_empty() && self.positions.is_empty()
    }
}

impl Queue {
    /// The positions of readers all of whose sightings were handed out.
    fn take_positions(&mut self) -> Vec<Cursor> {
        let gone = self.gone;
        let all = std::mem::take(&mut self.positions);
        let (ready, early): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.into_iter().partition(|(_, (_, after))| *after <= gone);
        self.moved = (!early.is_empty()).then(Instant::now);
        self.positions = early;
        let cursors = ready.into_iter().map(|(key, (value, _))| Cursor { key, value });
        cursors.collect()
    }

    /// How many to hand out when `most` are wanted: more, where these would end within what is committed as one.
    fn whole(&self, most: usize) -> usize {
        let joined = |count: usize| count.checked_sub(1).and_then(|last| self.waiting.get(last));
        let mut count = self.waiting.len().min(most);
        while count < self.waiting.len() && joined(count).is_some_and(|last| last.joined) {
            count += 1;
        }
        count
    }

    /// Readers that stand further on after what waits.
    fn keys(&self) -> impl Iterator<Item = String> {
        let cursors = self.waiting.iter().filter_map(|sighting| sighting.cursor.as_ref());
        cursors.map(|cursor| cursor.key.clone())
    }

    /// A dropped sighting counts as handed out: those that were pushed after it have one fewer before them.
    fn drop_at(&mut self, place: usize) {
        if self.waiting.remove(place).is_some() {
            self.gone += 1;
        }
    }
}

impl Intake {
    pub(crate) fn new(node: NodeId) -> Self {
        Self::with_capacity(node, CAPACITY)
    }

    fn with_capacity(node: NodeId, capacity: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                node,
                capacity,
                board: Board::default(),
                covers: Covers::default(),
                copies: OnceLock::new(),
                queue: Mutex::new(Queue::default()),
                arrived: Condvar::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.shared.queue.lock().expect("no holder of the intake panics")
    }

    /// The node itself, as an entity.
    pub(crate) fn node_entity(&self) -> Entity {
        Entity::Node {
            node: self.shared.node.clone(),
        }
    }

    /// The node's name.
    pub(crate) fn node(&self) -> &NodeId {
        &self.shared.node
    }

    /// What passed so far.
    pub(crate) fn board(&self) -> &Board {
        &self.shared.board
    }

    /// What counts as the work of an injection.
    pub(crate) fn covers(&self) -> &Covers {
        &self.shared.covers
    }

    /// From now on a copy of what is taken goes there, too. Only the first who asks is heard.
    pub(crate) fn copy_to(&self, copies: LogQueue) {
        let _ = self.shared.copies.set(copies);
    }

    /// Takes a sighting without waiting.
    pub(crate) fn push(&self, sighting: Sighting) {
        self.push_all(vec![sighting]);
    }

    /// Takes what one look of a reader gave, without waiting. It is committed as one: a reader that is killed has read either
    /// all of it or nothing.
    pub(crate) fn push_all(&self, mut sightings: Vec<Sighting>) {
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

    fn admit(&self, queue: &mut Queue, sighting: Sighting) {
        if queue.waiting.len() >= self.shared.capacity {
            queue.lost += 1;
            self.shared.board.dropped();
            match queue.waiting.iter().position(Sighting::is_droppable) {
                Some(oldest) => queue.drop_at(oldest),
                None => return,
            }
        }
        if let Some(cursor) = &sighting.cursor {
            // It is further on.
            queue.positions.remove(&cursor.key);
        }
        queue.oldest.get_or_insert_with(Instant::now);
        queue.urgent |= sighting.urgent;
        queue.waiting.push_back(sighting);
    }

    /// A reader has read on and seen nothing. It becomes durable with the next sightings, or after a while.
    pub(crate) fn moved(&self, cursor: Cursor) {
        let mut queue = self.lock();
        let after = queue.gone + queue.waiting.len() as u64;
        queue.positions.insert(cursor.key, (cursor.value, after));
        if queue.moved.is_none() {
            queue.moved = Some(Instant::now());
            self.shared.arrived.notify_one();
        }
    }

    /// Records something that was lost or is absent.
    pub(crate) fn gap(&self, source: Source, what: impl Into<String>, lost: Option<u64>) {
        let what = what.into();
        self.push(Sighting::now(source, self.node_entity(), Body::Gap { what, lost }));
    }

    /// What is to be committed next: at once when a sighting is urgent, else after `linger`. Empty only when the intake is
    /// closed and drained; more than `most` only where what one look gave is more.
    pub(crate) fn take(&self, linger: Duration, most: usize) -> Batch {
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
                return Batch::default();
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
        let mut sightings: Vec<Sighting> = queue.waiting.drain(..count).collect();
        queue.gone += count as u64;
        let rest_urgent = queue.waiting.iter().any(|sighting| sighting.urgent);
        queue.urgent = rest_urgent;
        queue.oldest = (!queue.waiting.is_empty()).then(Instant::now);
        let positions = queue.take_positions();
        let lost = std::mem::take(&mut queue.lost);
        drop(queue);
        if lost > 0 {
            sightings.push(Sighting::now(
                Source::Agent,
                self.node_entity(),
                Body::Gap {
                    what: "evidence was dropped before the spool: the disk did not keep up".to_owned(),
                    lost: Some(lost),
                },
            ));
        }
        Batch { sightings, positions }
    }

    /// Puts back, in front, what could not be committed.
    pub(crate) fn put_back(&self, batch: Batch) {
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
        // A reader may have gone on meanwhile.
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
            let victim = queue.waiting.iter().position(Sighting::is_droppable);
            match victim {
                Some(oldest) => queue.drop_at(oldest),
                None => drop(queue.waiting.pop_back()),
            }
            queue.lost += 1;
            self.shared.board.dropped();
        }
    }

    /// No more will be pushed; what waits is still handed out.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.shared.arrived.notify_all();
    }

    /// Whether no more will be pushed.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Everything that waits, without waiting for more.
    #[cfg(test)]
    pub(crate) fn drain(&self) -> Vec<Sighting> {
        let mut queue = self.lock();
        queue.urgent = false;
        queue.oldest = None;
        queue.gone += queue.waiting.len() as u64;
        queue.waiting.drain(..).collect()
    }

    /// The positions of readers after what [`Intake::drain`] gave.
    #[cfg(test)]
    pub(crate) fn drain_positions(&self) -> Vec<Cursor> {
        self.lock().take_positions()
    }
}

#[cfg(test)]
mod tests;
