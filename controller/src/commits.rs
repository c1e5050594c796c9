//! The executor of commits: writes manifests and clears away what retention no longer keeps, on blocking threads.

use std::error::Error;
use std::time::Duration;

use rankguard_checkpoint::format::Manifest;
use rankguard_checkpoint::{Store, retention};
use rankguard_core::Event;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use tracing::{info, warn};

/// How long a store may take. Then the checkpoint counts as void; should its manifest appear later after all, it is a
/// whole checkpoint that nobody was told of, and never a wrong one.
const COMMIT_DEADLINE: Duration = Duration::from_secs(60);

/// Commits that are being carried out: the brain asks for one a job at a time, so there are no more than jobs.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    running: JoinSet<Event>,
}

impl Commits {
    /// Begins a commit; its outcome comes from [`next`](Self::next).
    pub(crate) fn start(&mut self, store: String, manifest: Manifest, keep: u32) {
        self.running.spawn(carry_out(store, manifest, keep, COMMIT_DEADLINE));
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

async fn carry_out(store: String, manifest: Manifest, keep: u32, deadline: Duration) -> Event {
    let (job, step, generation) = (manifest.job.clone(), manifest.step, manifest.generation);
    let outcome = match timeout(deadline, spawn_blocking(move || commit(&store, &manifest, keep))).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(problem)) => Err(format!("the committing thread failed: {problem}")),
        Err(_) => Err(format!("the store has not answered within {} s", deadline.as_secs())),
    };
    match outcome {
        Ok(()) => Event::ManifestCommitted { job, step, generation },
        Err(reason) => Event::ManifestRefused {
            job,
            step,
            generation,
            reason,
        },
    }
}

/// Commits, then collects. A collection that fails is tried again after the next commit and refuses nothing.
fn commit(store: &str, manifest: &Manifest, keep: u32) -> Result<(), String> {
    let store = Store::open(store).map_err(|e| with_causes(&e))?;
    let committed = store.commit(manifest).map_err(|e| with_causes(&e))?;
    let (job, checkpoint) = (&manifest.job, manifest.id());
    info!(%job, %checkpoint, ?committed, "checkpoint committed");
    match retention::collect(&store, job, keep, &[]) {
        Ok(collected) => {
            for problem in &collected.problems {
                warn!(%job, %problem, "retention");
            }
        }
        Err(problem) => warn!(%job, problem = with_causes(&problem), "retention did not run"),
    }
    Ok(())
}

/// An error with its causes, as one line for the journal.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use rankguard_checkpoint::format::{Digest, ManifestShard};
    use rankguard_model::{Generation, JobId, Rank, Step};

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
        commits.start(dir.path().display().to_string(), manifest(), 2);
        let Event::ManifestRefused { job, step, reason, .. } = commits.next().await else {
            panic!("committed")
        };
        assert_eq!((job, step), (JobId::from("digits"), Step(20)));
        assert!(reason.contains("rank-00000.index is missing"), "{reason}");
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_made_is_a_refusal_and_no_panic() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut commits = Commits::default();
        commits.start(file.path().join("store").display().to_string(), manifest(), 2);
        assert!(matches!(commits.next().await, Event::ManifestRefused { .. }));
    }
}
