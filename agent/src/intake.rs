//! The one door between collectors and the spool.
//!
//! Pushing never waits, so a slow disk cannot hold up a collector, a rank's socket or an order. The queue is bounded;
//! its full-rule is the spool's: the oldest sample or progress goes first, and how many went is recorded as a gap
//! (RG-4).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rankguard_model::{Body, Entity, NodeId, Source};

use crate::outlets::Board;
use crate::sighting::Sighting;

/// Sightings that may wait for the disk.
const CAPACITY: usize = 16_384;

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

    /// Takes a sighting without waiting.
    pub(crate) fn push(&self, sighting: Sighting) {
        self.shared.board.note(&self.shared.node, &sighting);
        let mut queue = self.lock();
        if queue.waiting.len() >= self.shared.capacity {
            queue.lost += 1;
            self.shared.board.dropped();
            match queue.waiting.iter().position(Sighting::is_droppable) {
                Some(oldest) => drop(queue.waiting.remove(oldest)),
                None => return,
            }
        }
        queue.oldest.get_or_insert_with(Instant::now);
        queue.urgent |= sighting.urgent;
        queue.waiting.push_back(sighting);
        if queue.urgent || queue.waiting.len() == 1 {
            self.shared.arrived.notify_one();
        }
    }

    /// Records something that was lost or is absent.
    pub(crate) fn gap(&self, source: Source, what: impl Into<String>, lost: Option<u64>) {
        let what = what.into();
        self.push(Sighting::now(source, self.node_entity(), Body::Gap { what, lost }));
    }

    /// The next sightings to be committed together: at once when one is urgent, else after `linger`. Empty only when
    /// the intake is closed and drained.
    pub(crate) fn take(&self, linger: Duration, most: usize) -> Vec<Sighting> {
        let mut queue = self.lock();
        loop {
            let due = queue.oldest.map(|since| since + linger);
            let now = Instant::now();
            let ready = queue.urgent || queue.closed || due.is_some_and(|due| due <= now);
            if ready && !queue.waiting.is_empty() {
                break;
            }
            if queue.closed {
                return Vec::new();
            }
            let wait = due.map_or(Duration::from_secs(60), |due| due.saturating_duration_since(now));
            let waited = self.shared.arrived.wait_timeout(queue, wait);
            queue = waited.expect("no holder of the intake panics").0;
        }
        let count = queue.waiting.len().min(most);
        let mut batch: Vec<Sighting> = queue.waiting.drain(..count).collect();
        let rest_urgent = queue.waiting.iter().any(|sighting| sighting.urgent);
        queue.urgent = rest_urgent;
        queue.oldest = (!queue.waiting.is_empty()).then(Instant::now);
        let lost = std::mem::take(&mut queue.lost);
        drop(queue);
        if lost > 0 {
            batch.push(Sighting::now(
                Source::Agent,
                self.node_entity(),
                Body::Gap {
                    what: "evidence was dropped before the spool: the disk did not keep up".to_owned(),
                    lost: Some(lost),
                },
            ));
        }
        batch
    }

    /// Puts back, in front, what could not be committed.
    pub(crate) fn put_back(&self, batch: Vec<Sighting>) {
        let mut queue = self.lock();
        queue.oldest.get_or_insert_with(Instant::now);
        for sighting in batch.into_iter().rev() {
            queue.waiting.push_front(sighting);
        }
        while queue.waiting.len() > self.shared.capacity {
            let victim = queue.waiting.iter().position(Sighting::is_droppable);
            match victim {
                Some(oldest) => drop(queue.waiting.remove(oldest)),
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

    /// Everything that waits, without waiting for more.
    #[cfg(test)]
    pub(crate) fn drain(&self) -> Vec<Sighting> {
        let mut queue = self.lock();
        queue.urgent = false;
        queue.oldest = None;
        queue.waiting.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Exit, Step};

    use super::*;

    fn progress(step: u64) -> Sighting {
        Sighting::now(
            Source::Ranks,
            Entity::Unknown,
            Body::Progress {
                step: Step(step),
                loss: None,
                step_ms: 1.0,
            },
        )
    }

    fn exit() -> Sighting {
        Sighting::now(
            Source::Ranks,
            Entity::Unknown,
            Body::RankExited {
                pid: 1,
                exit: Exit::Code(1),
            },
        )
    }

    /// RG-4, RG-9.
    #[test]
    fn a_full_intake_drops_the_oldest_progress_and_says_how_many() {
        let intake = Intake::with_capacity(NodeId::from("a"), 3);
        for step in 1..=3 {
            intake.push(progress(step));
        }
        intake.push(exit());
        intake.push(exit());
        let batch = intake.take(Duration::ZERO, 16);
        let steps: Vec<_> = batch.iter().map(|sighting| sighting.body.clone()).collect();
        assert_eq!(steps.len(), 4, "{steps:?}");
        assert!(matches!(steps[0], Body::Progress { step: Step(3), .. }));
        assert!(matches!(steps[3], Body::Gap { lost: Some(2), .. }));
    }

    #[test]
    fn urgent_evidence_does_not_wait_for_company() {
        let intake = Intake::new(NodeId::from("a"));
        intake.push(progress(1));
        intake.push(exit());
        let batch = intake.take(Duration::from_secs(3600), 16);
        assert_eq!(batch.len(), 2);
    }

    #[test]
    fn a_closed_intake_hands_out_the_rest_and_then_nothing() {
        let intake = Intake::new(NodeId::from("a"));
        intake.push(progress(1));
        intake.close();
        assert_eq!(intake.take(Duration::from_secs(3600), 16).len(), 1);
        assert!(intake.take(Duration::from_secs(3600), 16).is_empty());
    }
}
