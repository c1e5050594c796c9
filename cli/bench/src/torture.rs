//! `rankguard checkpoint torture`: a real scratch checkpoint is damaged in every known way and saved while processes
//! die and disks fail; the engine's result is judged byte by byte.
//!
//! `subject` is the job with content that follows from its step; `damage` and `corruption` are the corruption matrix,
//! `crash` is the crash matrix. The judge knows what was saved and nothing of the engine's checks.
//!
//! Absent: damage to memory between a copy and its check, a complete checkpoint replaced by another complete one of the
//! same step and generation (nothing in a store can distinguish them), and a loss of power (data that a disk reports as
//! synced).

pub mod corruption;
pub mod crash;
mod damage;
mod dice;
mod subject;

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rankguard_checkpoint::StoreError;
use rankguard_checkpoint::arena::{ArenaError, FillError};
use rankguard_model::with_causes;

/// Failure of the test itself, which is not a finding.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TortureError(pub(crate) String);

impl TortureError {
    pub(crate) fn new(problem: impl std::error::Error) -> Self {
        Self(with_causes(&problem))
    }
}

impl From<std::io::Error> for TortureError {
    fn from(problem: std::io::Error) -> Self {
        Self::new(problem)
    }
}

impl From<StoreError> for TortureError {
    fn from(problem: StoreError) -> Self {
        Self::new(problem)
    }
}

impl From<ArenaError> for TortureError {
    fn from(problem: ArenaError) -> Self {
        Self::new(problem)
    }
}

impl From<FillError> for TortureError {
    fn from(problem: FillError) -> Self {
        Self::new(problem)
    }
}

/// Processes every job once, on as many threads as there are cores. `hand` creates the worker of a thread from the
/// thread's number. The first error stops all threads.
pub(crate) fn on_threads<J: Sync, T: Send, W: FnMut(&J) -> Result<T, TortureError>>(
    jobs: &[J],
    hand: impl Fn(usize) -> Result<W, TortureError> + Sync,
) -> Result<Vec<T>, TortureError> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let failed = Mutex::new(None);
    let work = |worker| -> Result<(), TortureError> {
        let mut hand = hand(worker)?;
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let one = hand(job)?;
            done.lock().expect("nobody panics while it pushes").push(one);
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for worker in 0..threads.min(jobs.len()) {
            let work = &work;
            let failed = &failed;
            let next = &next;
            scope.spawn(move || {
                if let Err(problem) = work(worker) {
                    next.store(jobs.len(), Ordering::Relaxed);
                    failed
                        .lock()
                        .expect("nobody panics while it sets")
                        .get_or_insert(problem);
                }
            });
        }
    });
    match failed.into_inner().expect("nobody panics while it sets") {
        Some(problem) => Err(problem),
        None => Ok(done.into_inner().expect("nobody panics while it pushes")),
    }
}
