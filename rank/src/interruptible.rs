//! Restores from a store that the caller may interrupt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};

use rankguard_checkpoint::format::TensorBox;
use rankguard_checkpoint::restore::{RankRestore, RestoreError, assemble_many};
use rankguard_checkpoint::source::{ChunkError, ChunkId, ChunkReadResult, ChunkSource, SourceTier, one_of_many};
use rankguard_checkpoint::{Checkpoint, ScatteredBuffers, Store};
use rankguard_model::Rank;

use crate::CallInterrupted;
use crate::interrupt::{CHECK_INTERVAL, check_interrupts};

/// Store that refuses further reads once `stop` is set.
struct StoppableStore<'a> {
    store: &'a Store,
    stop: &'a AtomicBool,
}

impl ChunkSource for StoppableStore<'_> {
    fn tier(&self) -> SourceTier {
        self.store.tier()
    }

    fn name(&self) -> String {
        self.store.name()
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        one_of_many(self, id)
    }

    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, ChunkReadResult<'_>)) {
        if self.stop.load(Ordering::Relaxed) {
            (0..ids.len()).for_each(|nth| answer(nth, Err(Box::new(CallInterrupted))));
        } else {
            self.store.chunks(ids, answer);
        }
    }
}

/// Fills the buffers from the checkpoint on a separate thread, while the caller's thread checks for interrupts. After
/// an interrupt the running reads are finished first, because they write to the caller's memory. `reader` is that of
/// [`RankRestore`].
pub(crate) fn restore_boxes(
    store: &Store,
    checkpoint: &Checkpoint,
    wanted: &mut [(TensorBox, &mut [u8])],
    reader: Option<Rank>,
) -> Result<Result<(), RestoreError>, CallInterrupted> {
    let boxes: Vec<TensorBox> = wanted.iter().map(|(boxed, _)| boxed.clone()).collect();
    let mut buffers = ScatteredBuffers(wanted.iter_mut().map(|(_, buffer)| &mut **buffer).collect());
    let stop = AtomicBool::new(false);
    let source = StoppableStore { store, stop: &stop };
    std::thread::scope(|scope| {
        let (ending, ended) = channel::<()>();
        let worker = scope.spawn(|| {
            let _ending = ending;
            let sources: [&dyn ChunkSource; 1] = [&source];
            let request = RankRestore {
                wanted: &boxes,
                out: &mut buffers,
                reader,
            };
            assemble_many(&checkpoint.manifest, &checkpoint.indexes, &mut [request], &sources).map(drop)
        });
        let mut interrupted = Ok(());
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(CHECK_INTERVAL) {
            interrupted = check_interrupts();
            if interrupted.is_err() {
                stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        let restored = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        interrupted.map(|()| restored)
    })
}
