//! Restore source that reads chunks from a peer's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rankguard_checkpoint::source::{
    ChunkBytes, ChunkError, ChunkId, ChunkReadResult, ChunkSource, SourceTier, one_of_many,
};
use rankguard_model::Generation;
use tokio::runtime::Handle;

use super::{BulkPeer, PIECE_BYTES, ReplicaKind, ReplicaName};

/// Peer as a source of a restore. Used from threads that may block, on a runtime that other threads
/// drive.
#[derive(Debug)]
pub struct BulkSource {
    peer: Arc<BulkPeer>,
    called: String,
    /// Generation that restores.
    generation: Generation,
    runtime: Handle,
    /// Set after the first failed request; later requests of this restore skip the peer (RG-9).
    given_up: AtomicBool,
}

impl BulkSource {
    /// Creates a source for the chunks that `peer` holds in memory; `node` names it in messages, and
    /// requests carry `generation`.
    pub fn new(peer: Arc<BulkPeer>, node: &str, generation: Generation, runtime: Handle) -> Self {
        let given_up = AtomicBool::new(false);
        Self {
            peer,
            called: format!("peer {node}"),
            generation,
            runtime,
            given_up,
        }
    }
}

/// Groups chunks of one image into requests: positions in the request list, in order of chunk number.
fn batches(ids: &[&ChunkId]) -> Vec<Vec<usize>> {
    let key = |nth: usize| (&ids[nth].job, ids[nth].checkpoint, ids[nth].rank);
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by_key(|&nth| (key(nth), ids[nth].chunk));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0u64;
    for nth in order {
        let more = u64::from(ids[nth].place.bytes);
        match batches.last_mut() {
            // Keeps the reply below a piece and the runs within one header.
            Some(batch) if key(batch[0]) == key(nth) && bytes + more <= PIECE_BYTES && batch.len() < 10_000 => {
                batch.push(nth);
                bytes += more;
            }
            _ => {
                batches.push(vec![nth]);
                bytes = more;
            }
        }
    }
    batches
}

impl ChunkSource for BulkSource {
    fn tier(&self) -> SourceTier {
        SourceTier::Peer
    }

    fn name(&self) -> String {
        self.called.clone()
    }

    fn chunk(&self, id: &ChunkId) -> Result<Option<Vec<u8>>, ChunkError> {
        one_of_many(self, id)
    }

    fn chunks(&self, ids: &[&ChunkId], answer: &mut dyn FnMut(usize, ChunkReadResult<'_>)) {
        for batch in batches(ids) {
            let fetched = if self.given_up.load(Ordering::Relaxed) {
                Ok(None)
            } else {
                let first = ids[batch[0]];
                let name = ReplicaName {
                    job: first.job.clone(),
                    checkpoint: first.checkpoint,
                    rank: first.rank,
                    what: ReplicaKind::Image,
                };
                let runs = batch.iter().map(|&nth| (ids[nth].chunk, 1)).collect();
                self.runtime.block_on(self.peer.fetch(&name, self.generation, runs))
            };
            if fetched.is_err() {
                self.given_up.store(true, Ordering::Relaxed);
            }
            let mut from = 0;
            for nth in batch {
                let to = from + ids[nth].place.bytes as usize;
                match &fetched {
                    Ok(None) => answer(nth, Ok(None)),
                    Ok(Some(bytes)) => match bytes.get(from..to) {
                        Some(part) => answer(nth, Ok(Some(ChunkBytes::Private(part)))),
                        None => answer(nth, Err("the answer is cut off".into())),
                    },
                    Err(problem) => answer(nth, Err(problem.to_string().into())),
                }
                from = to;
            }
        }
    }
}
