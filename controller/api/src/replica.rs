//! Copy of the controller's state for readers, in a thread of its own.
//!
//! The event loop passes on each event that it has journalled and applied; the thread applies it to the copy, which is
//! equal because the decision core is deterministic (RG-8). A query reads the copy under a lock and never reaches the
//! event loop. The queue between both is bounded in events and bytes (RG-9): when it is full, it is emptied, and the
//! event loop gives the whole state once the thread has caught up, as it does for a snapshot of its journal.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rankguard_core::{DecisionState, StampedEvent, step};
use rankguard_model::Timestamp;

use crate::changes::{ChangeLog, StateFingerprint};

/// Events, and their bytes in the journal, that wait for the thread.
const EVENTS_MAX: usize = 65_536;
const BYTES_MAX: usize = 64 << 20;
/// Events that are applied while readers wait.
const EVENTS_AT_ONCE: usize = 64;
/// Shortest interval between two comparisons of the state with the change log; changes in between are joined.
const COMPARE_INTERVAL: Duration = Duration::from_millis(200);
/// Shortest interval between two copies of the whole state.
const RESTART_INTERVAL: Duration = Duration::from_secs(10);

/// The event loop's end: passes events on. Dropping it ends the thread.
#[derive(Debug)]
pub struct StateFeed {
    shared: Arc<ReplicaShared>,
    thread: Option<JoinHandle<()>>,
    /// Time of the newest copy of the whole state.
    restarted: Option<Instant>,
}

/// Read handle of the copy; clones share it.
#[derive(Debug, Clone)]
pub struct StateReader(Arc<ReplicaShared>);

#[derive(Debug)]
struct ReplicaShared {
    queue: Mutex<FeedQueue>,
    wake: Condvar,
    copy: RwLock<StateCopy>,
    changes: ChangeLog,
}

#[derive(Debug, Default)]
struct FeedQueue {
    events: VecDeque<QueuedEvent>,
    bytes: usize,
    /// State that replaces the copy before any event is applied.
    restart: Option<Box<StateCopy>>,
    /// True if events were dropped since the newest copy of the state.
    has_dropped: bool,
    has_ended: bool,
}

/// Event with its share of the bytes of its batch.
#[derive(Debug)]
struct QueuedEvent {
    stamped: StampedEvent,
    bytes: usize,
}

#[derive(Debug)]
struct StateCopy {
    state: DecisionState,
    /// Time of the newest event.
    at: Timestamp,
}

impl StateFeed {
    /// Starts the thread over a copy of the state; `at` is the time of its newest event, and `start` identifies this
    /// start of the controller in the ids of changes.
    pub fn start(state: DecisionState, at: Timestamp, start: u64) -> io::Result<(Self, StateReader)> {
        let fingerprint = StateFingerprint::of(&state);
        let shared = Arc::new(ReplicaShared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            copy: RwLock::new(StateCopy { state, at }),
            changes: ChangeLog::new(start),
        });
        let of_thread = Arc::clone(&shared);
        let run = move || of_thread.run(fingerprint);
        let thread = thread::Builder::new().name("api-state".to_owned()).spawn(run)?;
        let reader = StateReader(Arc::clone(&shared));
        let feed = Self {
            shared,
            thread: Some(thread),
            restarted: None,
        };
        Ok((feed, reader))
    }

    /// Passes on events that `state` has applied, with their bytes in the journal; never waits for a reader.
    pub fn push(&mut self, events: Vec<StampedEvent>, bytes: usize, state: &DecisionState) {
        let Some(at) = events.last().map(|stamped| stamped.at) else {
            return;
        };
        let mut queue = self.shared.queue();
        if queue.has_dropped {
            let is_recent = self
                .restarted
                .is_some_and(|restarted| restarted.elapsed() < RESTART_INTERVAL);
            if is_recent || queue.restart.is_some() {
                return;
            }
            drop(queue);
            let copy = Box::new(StateCopy {
                state: state.clone(),
                at,
            });
            self.restarted = Some(Instant::now());
            queue = self.shared.queue();
            queue.restart = Some(copy);
            queue.has_dropped = false;
        } else if queue.events.len() + events.len() > EVENTS_MAX || queue.bytes + bytes > BYTES_MAX {
            queue.events = VecDeque::new();
            queue.bytes = 0;
            queue.has_dropped = true;
        } else {
            let bytes = bytes / events.len();
            queue.bytes += bytes * events.len();
            let events = events.into_iter();
            queue
                .events
                .extend(events.map(|stamped| QueuedEvent { stamped, bytes }));
        }
        drop(queue);
        self.shared.wake.notify_one();
    }
}

impl Drop for StateFeed {
    fn drop(&mut self) {
        self.shared.queue().has_ended = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the panic hook; readers see it as well.
            let _ = thread.join();
        }
    }
}

impl StateReader {
    /// Reads the copy; the second argument is the time of its newest event. Returns `None` if the thread has panicked.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&DecisionState, Timestamp) -> T) -> Option<T> {
        let copy = self.0.copy.read().ok()?;
        Some(read(&copy.state, copy.at))
    }

    pub(crate) fn changes(&self) -> &ChangeLog {
        &self.0.changes
    }
}

impl ReplicaShared {
    fn queue(&self) -> MutexGuard<'_, FeedQueue> {
        // The queue is consistent between any two statements that hold it.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut fingerprint: StateFingerprint) {
        let mut compared = Instant::now();
        // True if the copy has changed since the newest comparison.
        let mut has_changed = false;
        loop {
            let due = has_changed.then(|| COMPARE_INTERVAL.saturating_sub(compared.elapsed()));
            let Some(work) = self.take(due) else { return };
            has_changed |= !work.is_empty();
            if self.apply(work).is_none() {
                return;
            }
            if has_changed && compared.elapsed() >= COMPARE_INTERVAL {
                let Ok(copy) = self.copy.read() else { return };
                let newer = StateFingerprint::of(&copy.state);
                self.changes.record(&fingerprint, &newer, copy.at);
                drop(copy);
                fingerprint = newer;
                compared = Instant::now();
                has_changed = false;
            }
        }
    }

    /// Waits for work, at most `due`; without a limit if that is absent. Returns `None` at the end.
    fn take(&self, due: Option<Duration>) -> Option<ReplicaWork> {
        let mut queue = self.queue();
        let is_idle = |queue: &mut FeedQueue| queue.events.is_empty() && queue.restart.is_none() && !queue.has_ended;
        queue = match due {
            Some(due) => {
                let waited = self.wake.wait_timeout_while(queue, due, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.wake.wait_while(queue, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        if queue.has_ended {
            return None;
        }
        let restart = queue.restart.take();
        let count = queue.events.len().min(EVENTS_AT_ONCE);
        let events: Vec<QueuedEvent> = queue.events.drain(..count).collect();
        queue.bytes -= events.iter().map(|event| event.bytes).sum::<usize>();
        let events = events.into_iter().map(|event| event.stamped).collect();
        Some(ReplicaWork { restart, events })
    }

    /// Applies work to the copy; returns `None` if an earlier attempt panicked.
    fn apply(&self, work: ReplicaWork) -> Option<()> {
        if work.is_empty() {
            return Some(());
        }
        let mut copy = self.copy.write().ok()?;
        let replaced = work.restart.map(|restart| std::mem::replace(&mut *copy, *restart));
        for stamped in &work.events {
            // The event loop carries out the actions.
            let _ = step(&mut copy.state, stamped);
            copy.at = stamped.at;
        }
        drop(copy);
        // Readers do not wait until the replaced state is freed.
        drop(replaced);
        Some(())
    }
}

struct ReplicaWork {
    restart: Option<Box<StateCopy>>,
    events: Vec<StampedEvent>,
}

impl ReplicaWork {
    fn is_empty(&self) -> bool {
        self.restart.is_none() && self.events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rankguard_core::{Event, Policy};
    use rankguard_faults::Catalogue;

    use super::*;

    fn stamped(number: i64) -> StampedEvent {
        StampedEvent {
            at: Timestamp(number),
            event: Event::NodeCordoned {
                node: format!("n{number}").as_str().into(),
                reason: "test".to_owned(),
            },
        }
    }

    fn state() -> DecisionState {
        DecisionState::new(Policy::default(), Catalogue::builtin())
    }

    /// RG-8, RG-9: a reader that blocks the copy makes the queue full; later the copy equals the state again.
    #[test]
    fn a_copy_that_fell_behind_equals_the_state_again() {
        let (mut feed, reader) = StateFeed::start(state(), Timestamp(0), 1).expect("a thread");
        let mut original = state();
        let mut push = |feed: &mut StateFeed, number: i64, bytes: usize| {
            let stamped = stamped(number);
            let _ = step(&mut original, &stamped);
            feed.push(vec![stamped], bytes, &original);
        };
        let blocked = reader.0.copy.read().expect("no panic");
        push(&mut feed, 1, 1);
        while !reader.0.queue().events.is_empty() {
            thread::yield_now();
        }
        push(&mut feed, 2, BYTES_MAX);
        push(&mut feed, 3, BYTES_MAX);
        let queue = reader.0.queue();
        assert!(queue.has_dropped && queue.events.is_empty(), "nothing was dropped");
        drop(queue);
        push(&mut feed, 4, 1);
        push(&mut feed, 5, 1);
        assert!(reader.0.queue().restart.is_some(), "the state was not given again");
        drop(blocked);
        while reader.read(|_, at| at) != Some(Timestamp(5)) {
            thread::yield_now();
        }
        assert_eq!(reader.read(|state, _| *state == original), Some(true));
    }
}
