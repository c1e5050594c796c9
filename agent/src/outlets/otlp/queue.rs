//! Queue of log records for export, and counters of exported ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use rankguard_proto::otlp::collector::logs::v1::LogRecord;
use tokio::sync::Notify;

use super::records::record;
use crate::pending_evidence::PendingEvidence;
use crate::views::OtlpView;

/// Maximum queued records: some minutes of a node in trouble.
const CAPACITY: usize = 2048;

/// Queue between intake and exporter. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LogQueue(Arc<LogQueueShared>);

#[derive(Debug)]
struct LogQueueShared {
    waiting: Mutex<QueuedRecords>,
    arrived: Notify,
}

#[derive(Debug)]
struct QueuedRecords {
    records: VecDeque<LogRecord>,
    fates: OtlpView,
}

impl LogQueue {
    /// Creates the queue for `endpoint`.
    pub(crate) fn new(endpoint: &str) -> Self {
        let fates = OtlpView {
            endpoint: endpoint.to_owned(),
            ..OtlpView::default()
        };
        let waiting = Mutex::new(QueuedRecords {
            records: VecDeque::new(),
            fates,
        });
        Self(Arc::new(LogQueueShared {
            waiting,
            arrived: Notify::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, QueuedRecords> {
        self.0.waiting.lock().expect("no holder of the queue of records panics")
    }

    /// Queues evidence without waiting. Steps and samples are skipped, because they are metrics.
    pub(crate) fn offer(&self, sighting: &PendingEvidence) {
        if sighting.is_droppable() {
            return;
        }
        let record = record(sighting);
        let mut waiting = self.lock();
        if waiting.records.len() >= CAPACITY {
            waiting.records.pop_front();
            waiting.fates.dropped += 1;
        }
        waiting.records.push_back(record);
        drop(waiting);
        self.0.arrived.notify_one();
    }

    /// Waits until the queue holds a record.
    pub(super) async fn arrived(&self) {
        // A notification may be left from a record that was dropped meanwhile.
        while self.lock().records.is_empty() {
            self.0.arrived.notified().await;
        }
    }

    /// Removes and returns the oldest records.
    pub(super) fn take(&self, most: usize) -> Vec<LogRecord> {
        let mut waiting = self.lock();
        let count = waiting.records.len().min(most);
        waiting.records.drain(..count).collect()
    }

    /// Updates the export counters.
    pub(super) fn note(&self, note: impl FnOnce(&mut OtlpView)) {
        note(&mut self.lock().fates);
    }

    /// Returns the export counters.
    pub(crate) fn view(&self) -> OtlpView {
        let waiting = self.lock();
        OtlpView {
            waiting: waiting.records.len() as u64,
            ..waiting.fates.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Entity, EvidenceBody, EvidenceSource, NodeId, Step};

    use super::*;

    fn gap(number: usize) -> PendingEvidence {
        let entity = Entity::Node {
            node: NodeId::from("a"),
        };
        PendingEvidence::now(
            EvidenceSource::Host,
            entity,
            EvidenceBody::Gap {
                what: format!("gap {number}"),
                lost: None,
            },
        )
    }

    /// RG-9.
    #[test]
    fn the_oldest_go_first_when_it_is_full_and_each_is_counted() {
        let queue = LogQueue::new("127.0.0.1:4317");
        (0..CAPACITY + 7).for_each(|number| queue.offer(&gap(number)));
        let view = queue.view();
        assert_eq!((view.waiting, view.dropped), (CAPACITY as u64, 7));
        let first = queue.take(1);
        assert!(format!("{:?}", first[0].body).contains("gap 7"), "{first:?}");
        assert_eq!(queue.take(10_000).len(), CAPACITY - 1);
    }

    #[test]
    fn steps_are_no_records() {
        let queue = LogQueue::new("");
        let mut sighting = gap(0);
        sighting.body = EvidenceBody::Progress {
            step: Step(1),
            loss: None,
            step_ms: 1.0,
            own_ms: None,
        };
        queue.offer(&sighting);
        assert_eq!(queue.view().waiting, 0);
    }
}
