//! A second reader for checkpoints that a node has reported damaged.
//!
//! The controller reads the manifest, the indexes and the chunk that the report names, twice where it finds damage, the second time
//! past the page cache. A node with a bad memory module, cable or mount so costs no checkpoint that others can read.

use std::time::Duration;

use rankguard_checkpoint::format::{CheckpointId, ChunkDigest};
use rankguard_checkpoint::source::{ChunkId, ChunkSource};
use rankguard_checkpoint::{Checkpoint, ReadFailure, Store, failure};
use rankguard_core::{CheckFinding, ChunkName, Event};
use rankguard_model::{JobId, with_causes};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long the store may take for both reads.
const CHECK_DEADLINE: Duration = Duration::from_secs(60);

/// Between the two reads.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);

/// Checks a checkpoint, and of its images the chunk that is named.
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

/// Damage that the second read does not show is none.
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
        // The index that names the file is there and intact: a file that is absent is lost.
        Err(problem) => match failure::failure_of(&problem) {
            ReadFailure::Missing => CheckFinding::Damaged {
                what: format!("{place}: {}", with_causes(problem.as_ref())),
            },
            other => finding(other, format!("{place}: {}", with_causes(problem.as_ref()))),
        },
    }
}

/// A manifest or index that is absent proves nothing: a file system that is not mounted looks alike.
fn finding(failure: ReadFailure, what: String) -> CheckFinding {
    match failure {
        ReadFailure::Damaged => CheckFinding::Damaged { what },
        _ => unavailable(what),
    }
}

/// The chunk of a name, if the checkpoint has it.
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
