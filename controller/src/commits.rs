//! The executor of commits: looks what can be committed, writes manifests and clears away what retention no longer keeps, on blocking threads.

use std::time::Duration;

use rankguard_checkpoint::format::{CheckpointId, Manifest, ShardIndex};
use rankguard_checkpoint::{Store, retention};
use rankguard_checkpoint_schedule::twins::{Difference, Replica, differences};
use rankguard_core::Event;
use rankguard_model::{Generation, JobId, Step, with_causes};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use tracing::{info, warn};

/// How long a store may take. Then the checkpoint counts as void; should its manifest appear later after all, it is a
/// whole checkpoint that nobody was told of, and never a wrong one.
const COMMIT_DEADLINE: Duration = Duration::from_secs(60);

/// How long it may take to look what is there: a job waits for it to start.
const FIND_DEADLINE: Duration = Duration::from_secs(10);

/// Differences between replicas that one commit reports: the first name the machine, more say nothing new.
const DIFFERENCES_MAX: usize = 16;

/// Commits that are being carried out: the brain asks for one a job at a time, so there are no more than jobs.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    running: JoinSet<Event>,
}

impl Commits {
    /// Begins a commit; its outcome comes from [`next`](Self::next).
    pub(crate) fn start(&mut self, store: String, manifest: Manifest, keep: u32, pinned: Vec<CheckpointId>) {
        self.running
            .spawn(carry_out(store, manifest, keep, pinned, COMMIT_DEADLINE));
    }

    /// Looks what an ended generation has left in a store, of later steps than one; the answer comes from
    /// [`next`](Self::next).
    pub(crate) fn find(&mut self, store: String, job: JobId, generation: Generation, left: (Generation, Option<Step>)) {
        self.running.spawn(find(store, job, generation, left));
    }

    /// The outcome of the next commit that ends; waits for ever while there is none.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            match self.running.join_next().await {
                Some(Ok(event)) => return event,
                // `carry_out` catches the panic of its thread and has none of its own.
                Some(Err(problem)) => warn!(%problem, "a commit ended without an outcome"),
                None => std::future::pending().await,
            }
        }
    }
}

async fn find(store: String, job: JobId, generation: Generation, (of, after): (Generation, Option<Step>)) -> Event {
    let (dir, whose) = (store.clone(), job.clone());
    let looked = timeout(
        FIND_DEADLINE,
        spawn_blocking(move || Store::at(dir).left_by(&whose, of, after)),
    )
    .await;
    let (seals, problem) = match looked {
        Ok(Ok(Ok(seals))) => (seals, None),
        Ok(Ok(Err(problem))) => (Vec::new(), Some(with_causes(&problem))),
        Ok(Err(problem)) => (Vec::new(), Some(format!("the thread that looked failed: {problem}"))),
        Err(_) => {
            let late = format!("{store} has not answered within {} s", FIND_DEADLINE.as_secs());
            (Vec::new(), Some(late))
        }
    };
    Event::ShardsFound {
        job,
        generation,
        seals,
        problem,
    }
}

async fn carry_out(
    store: String,
    manifest: Manifest,
    keep: u32,
    pinned: Vec<CheckpointId>,
    deadline: Duration,
) -> Event {
    let (job, step, generation) = (manifest.job.clone(), manifest.step, manifest.generation);
    let outcome = match timeout(
        deadline,
        spawn_blocking(move || commit(&store, &manifest, keep, &pinned)),
    )
    .await
    {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(problem)) => Err(format!("the committing thread failed: {problem}")),
        Err(_) => Err(format!("the store has not answered within {} s", deadline.as_secs())),
    };
    match outcome {
        Ok(differing) => Event::ManifestCommitted {
            job,
            step,
            generation,
            differing,
        },
        Err(reason) => Event::ManifestRefused {
            job,
            step,
            generation,
            reason,
        },
    }
}

/// Commits, compares replicas, then collects. What fails after the commit refuses nothing: a collection is tried again
/// after the next one. Gives the first differences between replicas that must be equal.
fn commit(store: &str, manifest: &Manifest, keep: u32, pinned: &[CheckpointId]) -> Result<Vec<Difference>, String> {
    let store = Store::open(store).map_err(|e| with_causes(&e))?;
    let committed = store.commit(manifest).map_err(|e| with_causes(&e))?;
    let (job, checkpoint) = (&manifest.job, manifest.id());
    info!(%job, %checkpoint, ?committed, "checkpoint committed");
    let differing = match store.load(job, checkpoint) {
        Ok(loaded) => differing(&loaded.indexes),
        Err(problem) => {
            warn!(%job, problem = with_causes(&problem), "replicas were not compared");
            Vec::new()
        }
    };
    match retention::collect(&store, job, keep, pinned) {
        Ok(collected) => {
            for problem in &collected.problems {
                warn!(%job, %problem, "retention");
            }
        }
        Err(problem) => warn!(%job, problem = with_causes(&problem), "retention did not run"),
    }
    Ok(differing)
}

/// Boxes that several ranks hold and whose chunks differ, the first few.
fn differing(indexes: &[ShardIndex]) -> Vec<Difference> {
    let replicas = indexes.iter().flat_map(|index| {
        let chunking = index.chunking();
        index.tensors.iter().enumerate().map(move |(at, entry)| {
            let chunks = chunking.chunks_of(at);
            Replica {
                rank: index.rank,
                tensor: &entry.boxed.name,
                offset: &entry.boxed.offset,
                shape: &entry.boxed.shape,
                chunk_bytes: u64::from(index.chunk_bytes),
                digests: &index.chunks[chunks.start as usize..chunks.end as usize],
            }
        })
    });
    let mut found = differences(replicas);
    found.truncate(DIFFERENCES_MAX);
    found
}

#[cfg(test)]
mod tests {
    use rankguard_checkpoint::format::{Digest, Dtype, ManifestShard, TensorBox};
    use rankguard_model::Rank;

    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            job: JobId::from("digits"),
            step: Step(20),
            generation: Generation(2),
            world_size: 1,
            parent: None,
            ledger: None,
            shards: vec![ManifestShard {
                rank: Rank(0),
                index: Digest::of(b"an index that nobody wrote"),
                bytes: 8,
                schema: String::new(),
            }],
        }
    }

    #[tokio::test]
    async fn rg_1_a_manifest_that_names_a_missing_shard_is_refused_with_the_file() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut commits = Commits::default();
        commits.start(dir.path().display().to_string(), manifest(), 2, Vec::new());
        let Event::ManifestRefused { job, step, reason, .. } = commits.next().await else {
            panic!("committed")
        };
        assert_eq!((job, step), (JobId::from("digits"), Step(20)));
        assert!(reason.contains("rank-00000.index is missing"), "{reason}");
    }

    /// Three ranks that hold the same box; the last holds one byte of it wrong.
    #[tokio::test]
    async fn replicas_that_differ_are_named_with_the_commit_and_pinned_checkpoints_stay() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (store, job) = (Store::open(dir.path()).expect("a store"), JobId::from("digits"));
        let mut commits = Commits::default();
        let manifest_of = |step: u64, wrong: u8| {
            let id = CheckpointId {
                step: Step(step),
                generation: Generation(1),
            };
            let seals: Vec<_> = (0..3_u32)
                .map(|rank| {
                    let image = [if rank == 2 { wrong } else { 7 }; 64];
                    let (tensors, _) = ShardIndex::lay_out([TensorBox::whole("decoder.weight", Dtype::U8, vec![64])]);
                    let mut index = ShardIndex {
                        rank: Rank(rank),
                        world_size: 3,
                        image_bytes: 64,
                        tensors,
                        ..ShardIndex::new(&job, id)
                    };
                    index.digest_image(&image);
                    store.write_shard(&index, &image.as_slice()).expect("room").seal
                })
                .collect();
            Manifest::from_seals(&job, id, None, &seals).expect("whole")
        };
        let first = manifest_of(10, 7);
        let pinned = vec![first.id()];
        commits.start(dir.path().display().to_string(), first, 1, Vec::new());
        let Event::ManifestCommitted { differing, .. } = commits.next().await else {
            panic!("refused")
        };
        assert_eq!(differing, []);
        commits.start(dir.path().display().to_string(), manifest_of(20, 8), 1, pinned.clone());
        let Event::ManifestCommitted { differing, .. } = commits.next().await else {
            panic!("refused")
        };
        assert_eq!(differing.len(), 1);
        assert_eq!(
            (differing[0].tensor.as_str(), differing[0].suspects()),
            ("decoder.weight", vec![Rank(2)])
        );
        assert!(
            store.load(&job, pinned[0]).is_ok(),
            "only the newest is kept, but this one is pinned"
        );
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_made_is_a_refusal_and_no_panic() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut commits = Commits::default();
        commits.start(
            file.path().join("store").display().to_string(),
            manifest(),
            2,
            Vec::new(),
        );
        assert!(matches!(commits.next().await, Event::ManifestRefused { .. }));
    }
}
