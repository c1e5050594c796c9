//! Verification of checkpoints that a node reported as damaged.
//!
//! The controller reads the manifest, the indexes and the reported chunk. If it finds damage, it reads again, past the
//! page cache. So a node with a bad memory module, cable or mount costs no checkpoint that others can read.

use std::time::Duration;

use rankguard_checkpoint::format::{CheckpointId, ChunkDigest};
use rankguard_checkpoint::source::{ChunkId, ChunkSource};
use rankguard_checkpoint::{Checkpoint, ReadFailure, Store, failure};
use rankguard_core::{CheckFinding, ChunkName, Event};
use rankguard_model::{JobId, with_causes};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Time limit of the store for both reads.
const CHECK_DEADLINE: Duration = Duration::from_secs(60);

/// Pause between the two reads.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);

/// Checks a checkpoint and, if a chunk is named, that chunk.
pub(super) async fn check(store: String, job: JobId, id: CheckpointId, chunk: Option<ChunkName>) -> Event {
    let whose = job.clone();
    let read = timeout(
        CHECK_DEADLINE,
        spawn_blocking(move || check_twice(&Store::at(store), &whose, id, chunk)),
    );
    let finding = match read.await {
        Ok(Ok(finding)) => finding,
        Ok(Err(problem)) => unavailable(format!("the checking thread failed: {problem}")),
        Err(_) => unavailable(format!(
            "the store has not answered within {} s",
            CHECK_DEADLINE.as_secs()
        )),
    };
    Event::CheckpointChecked {
        job,
        step: id.step,
        generation: id.generation,
        finding,
    }
}

fn unavailable(reason: String) -> CheckFinding {
    CheckFinding::Unavailable { reason }
}

/// Checks twice: damage that the second read does not confirm is discarded.
fn check_twice(store: &Store, job: &JobId, id: CheckpointId, chunk: Option<ChunkName>) -> CheckFinding {
    match check_once(store, job, id, chunk) {
        CheckFinding::Damaged { .. } => {
            std::thread::sleep(CONFIRM_AFTER);
            if let Ok(checkpoint) = store.describe(job, id) {
                store.drop_cached(&checkpoint);
            }
            check_once(store, job, id, chunk)
        }
        other => other,
    }
}

fn check_once(store: &Store, job: &JobId, id: CheckpointId, chunk: Option<ChunkName>) -> CheckFinding {
    let checkpoint = match store.describe(job, id) {
        Ok(checkpoint) => checkpoint,
        Err(problem) => return finding(problem.failure(), with_causes(&problem)),
    };
    match chunk.and_then(|name| chunk_id(&checkpoint, name)) {
        Some(chunk) => check_chunk(store, &checkpoint, &chunk),
        None => CheckFinding::Intact,
    }
}

fn check_chunk(store: &Store, checkpoint: &Checkpoint, chunk: &ChunkId) -> CheckFinding {
    let index = checkpoint.indexes.iter().find(|index| index.rank == chunk.rank);
    let tensor = index.map_or("", |index| index.tensor_in(chunk.chunk));
    let place = format!("rank {}, chunk {}, tensor {tensor}", chunk.rank, chunk.chunk);
    match store.chunk(chunk) {
        Ok(Some(bytes)) => match ChunkDigest::of(&bytes) {
            found if found == chunk.digest => CheckFinding::Intact,
            found => CheckFinding::Damaged {
                what: format!("{place}: digest is {found}, the index says {}", chunk.digest),
            },
        },
        Ok(None) => unavailable(format!("{place}: the store did not answer")),
        // The index that lists the file is intact, so an absent file is lost.
        Err(problem) => match failure::failure_of(&problem) {
            ReadFailure::Missing => CheckFinding::Damaged {
                what: format!("{place}: {}", with_causes(problem.as_ref())),
            },
            other => finding(other, format!("{place}: {}", with_causes(problem.as_ref()))),
        },
    }
}

/// Treats an absent manifest or index as unavailable: a file system that is not mounted gives the same error.
fn finding(failure: ReadFailure, what: String) -> CheckFinding {
    match failure {
        ReadFailure::Damaged => CheckFinding::Damaged { what },
        _ => unavailable(what),
    }
}

/// Returns the chunk with this name, if the checkpoint contains it.
fn chunk_id(checkpoint: &Checkpoint, name: ChunkName) -> Option<ChunkId> {
    let index = checkpoint.indexes.iter().find(|index| index.rank == name.rank)?;
    let range = index.chunking().range(name.chunk)?;
    Some(ChunkId {
        job: index.job.clone(),
        checkpoint: index.id(),
        rank: index.rank,
        chunk: name.chunk,
        at: range.start,
        place: *index.places().get(name.chunk as usize)?,
        digest: *index.chunks.get(name.chunk as usize)?,
    })
}
