//! The generation of each job that may act on this node: on disk before it is acted upon, so that an agent that was
//! restarted still refuses stale orders (RG-3).
//!
//! One line of JSON a job would grow with the number of jobs a node ever saw; a few hundred bytes each, never trimmed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rankguard_model::{Generation, JobId};
use serde::{Deserialize, Serialize};

/// The fences of one agent. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Fences {
    path: PathBuf,
    jobs: Arc<Mutex<BTreeMap<JobId, Fence>>>,
}

/// Where a job's fence stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Fence {
    /// Lowest generation that may act.
    generation: Generation,
    /// Newest generation that was stopped for good: it may not be launched again.
    stopped: Generation,
}

impl Fences {
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        let jobs = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            path,
            jobs: Arc::new(Mutex::new(jobs)),
        })
    }

    /// Lowest generation of a job that may act; 0 for a job never heard of.
    pub(crate) fn of(&self, job: &JobId) -> Generation {
        self.get(job).generation
    }

    /// Whether this generation, or a newer one, was stopped.
    pub(crate) fn is_stopped(&self, job: &JobId, generation: Generation) -> bool {
        self.get(job).stopped >= generation
    }

    fn get(&self, job: &JobId) -> Fence {
        let jobs = self.jobs.lock().expect("no holder of the fences panics");
        jobs.get(job).copied().unwrap_or_default()
    }

    /// Lets nothing older than `generation` act from now on. Durable when it returns.
    pub(crate) fn raise(&self, job: &JobId, generation: Generation) -> io::Result<()> {
        self.change(job, |fence| fence.generation = fence.generation.max(generation))
    }

    /// Lets nothing up to `generation` be launched from now on. Durable when it returns.
    pub(crate) fn stop(&self, job: &JobId, generation: Generation) -> io::Result<()> {
        self.change(job, |fence| {
            fence.generation = fence.generation.max(generation);
            fence.stopped = fence.stopped.max(generation);
        })
    }

    fn change(&self, job: &JobId, change: impl FnOnce(&mut Fence)) -> io::Result<()> {
        let mut jobs = self.jobs.lock().expect("no holder of the fences panics");
        let mut fence = jobs.get(job).copied().unwrap_or_default();
        let before = fence;
        change(&mut fence);
        if fence == before {
            return Ok(());
        }
        let mut next = jobs.clone();
        next.insert(job.clone(), fence);
        write(&self.path, &serde_json::to_vec(&next).map_err(io::Error::from)?)?;
        *jobs = next;
        Ok(())
    }
}

/// Replaces a file as a whole: whoever reads it finds the old content or the new one.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// RG-3.
    #[test]
    fn a_fence_is_only_ever_raised_and_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fences.json");
        let job = JobId::from("digits");
        let fences = Fences::open(path.clone()).unwrap();
        assert_eq!(fences.of(&job), Generation(0));
        fences.raise(&job, Generation(3)).unwrap();
        fences.raise(&job, Generation(2)).unwrap();
        assert_eq!(fences.of(&job), Generation(3));
        fences.stop(&job, Generation(3)).unwrap();
        let again = Fences::open(path.clone()).unwrap();
        assert_eq!(again.of(&job), Generation(3));
        assert!(again.is_stopped(&job, Generation(3)));
        assert!(!again.is_stopped(&job, Generation(4)));
        fs::write(&path, b"{torn").unwrap();
        assert!(Fences::open(path).is_err());
    }
}
