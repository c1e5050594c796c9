//! Fences: the newest generation of each job that this node was ordered, on disk. A restarted agent also refuses stale
//! orders (RG-3), and a controller with a restored journal learns which generations are used up.
//!
//! A controller that continues from a restored journal can assign a number again that an earlier plan used. So a
//! generation is identified by its number and by the controller start in which it was begun (its life).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rankguard_model::{Generation, JobFence, JobId};
use serde::{Deserialize, Serialize};

/// Maximum number of jobs; those that were ordered longest ago are dropped first.
const JOBS_MAX: usize = 4_096;

/// Fences of a node. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct FenceTable {
    shared: Arc<SharedFences>,
}

#[derive(Debug)]
struct SharedFences {
    path: PathBuf,
    newest: Mutex<BTreeMap<JobId, FencedGeneration>>,
}

/// Newest generation of one job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredFence")]
struct FencedGeneration {
    generation: Generation,
    /// Controller start in which the generation was begun; 0 if unknown.
    life: u64,
    /// Increases with every fence of the node.
    turn: u64,
}

/// Fence as stored in the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredFence {
    /// Format of agents that did not record lives.
    Number(Generation),
    Full {
        generation: Generation,
        life: u64,
        turn: u64,
    },
}

impl From<StoredFence> for FencedGeneration {
    fn from(stored: StoredFence) -> Self {
        match stored {
            StoredFence::Number(generation) => Self {
                generation,
                ..Self::default()
            },
            StoredFence::Full { generation, life, turn } => Self { generation, life, turn },
        }
    }
}

/// Refusal of a stale order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StaleOrder {
    /// A later generation has been ordered.
    #[error("generation {asked} may no longer act: generation {newest} does")]
    Older { asked: Generation, newest: Generation },
    /// The number belongs to a generation of another controller life.
    #[error(
        "generation {newest} of this node was begun before the controller's journal was restored or replaced, and is \
         another one"
    )]
    OtherLife { newest: Generation },
}

impl StaleOrder {
    /// Returns the newest generation that ranks of this node may belong to.
    pub(crate) fn newest(self) -> Generation {
        match self {
            Self::Older { newest, .. } | Self::OtherLife { newest } => newest,
        }
    }
}

impl FenceTable {
    /// Reads the fences of a state directory; an absent file means no fences.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let newest = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(problem) => return Err(problem),
        };
        let shared = SharedFences {
            path: path.to_owned(),
            newest: Mutex::new(newest),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, FencedGeneration>> {
        self.shared.newest.lock().expect("no holder of the fences panics")
    }

    /// Checks that a generation, begun in this life of the controller (0: unknown), may act here.
    pub(crate) fn admit(&self, job: &JobId, generation: Generation, life: u64) -> Result<(), StaleOrder> {
        let known = self.lock().get(job).copied().unwrap_or_default();
        let newest = known.generation;
        if generation < newest {
            return Err(StaleOrder::Older {
                asked: generation,
                newest,
            });
        }
        if generation == newest && known.life != 0 && life != 0 && known.life != life {
            return Err(StaleOrder::OtherLife { newest });
        }
        Ok(())
    }

    /// Raises a fence; it is durable when this returns.
    pub(crate) fn raise(&self, job: &JobId, generation: Generation, life: u64) -> io::Result<()> {
        let mut newest = self.lock();
        let known = newest.get(job).copied().unwrap_or_default();
        let is_known = known.life != 0 || life == 0;
        if known.generation > generation || (known.generation == generation && is_known) {
            return Ok(());
        }
        let turn = newest.values().map(|fence| fence.turn).max().unwrap_or_default() + 1;
        let mut changed = newest.clone();
        let fence = FencedGeneration { generation, life, turn };
        changed.insert(job.clone(), fence);
        while changed.len() > JOBS_MAX {
            let oldest = changed.iter().min_by_key(|(_, fence)| (fence.turn, fence.generation));
            let Some(oldest) = oldest.map(|(known, _)| known.clone()) else {
                break;
            };
            changed.remove(&oldest);
        }
        self.write(&changed)?;
        *newest = changed;
        Ok(())
    }

    /// Returns the newest fences, at most `most`.
    pub(crate) fn newest(&self, most: usize) -> Vec<JobFence> {
        let fences = self.lock();
        let mut all: Vec<(&JobId, &FencedGeneration)> = fences.iter().collect();
        all.sort_by_key(|(_, fence)| std::cmp::Reverse((fence.turn, fence.generation)));
        let report = |(job, fence): (&JobId, &FencedGeneration)| JobFence {
            job: job.clone(),
            generation: fence.generation,
            life: fence.life,
        };
        all.into_iter().take(most).map(report).collect()
    }

    fn write(&self, newest: &BTreeMap<JobId, FencedGeneration>) -> io::Result<()> {
        let path = &self.shared.path;
        let temp = path.with_extension("tmp");
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temp)?;
        file.write_all(&serde_json::to_vec(newest).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(&temp, path)?;
        match path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(job: &str, generation: u64, life: u64) -> JobFence {
        JobFence {
            job: JobId::from(job),
            generation: Generation(generation),
            life,
        }
    }

    /// RG-3.
    #[test]
    fn a_fence_never_sinks_and_outlives_the_agent() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("fences.json");
        let job = JobId::from("train");
        let fences = FenceTable::open(&path).expect("no fences yet");
        fences.raise(&job, Generation(3), 7).expect("it can be written");
        fences
            .raise(&job, Generation(2), 8)
            .expect("an older one changes nothing");
        let again = FenceTable::open(&path).expect("it can be read");
        assert_eq!(again.newest(9), [fence("train", 3, 7)]);
        let older = again.admit(&job, Generation(2), 7).expect_err("an older generation");
        assert_eq!(older.newest(), Generation(3));
        assert_eq!(again.admit(&JobId::from("other"), Generation(1), 7), Ok(()));
    }

    /// RG-3: the number alone does not identify a generation.
    #[test]
    fn a_number_that_another_journal_has_given_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let fences = FenceTable::open(&folder.path().join("fences.json")).expect("no fences yet");
        let job = JobId::from("train");
        fences.raise(&job, Generation(3), 7).expect("it can be written");
        assert_eq!(fences.admit(&job, Generation(3), 7), Ok(()));
        assert_eq!(fences.admit(&job, Generation(3), 0), Ok(()));
        let other = StaleOrder::OtherLife { newest: Generation(3) };
        assert_eq!(fences.admit(&job, Generation(3), 8), Err(other));
        assert_eq!(fences.admit(&job, Generation(4), 8), Ok(()));
    }

    #[test]
    fn the_jobs_that_were_ordered_longest_ago_are_forgotten_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("fences.json");
        let full = |number: usize| (format!("job-{number}"), 5);
        let old: BTreeMap<String, u64> = (0..JOBS_MAX).map(full).collect();
        fs::write(&path, serde_json::to_vec(&old).expect("JSON")).expect("it can be written");
        let fences = FenceTable::open(&path).expect("the form of earlier versions");
        let job = JobId::from("train");
        fences.raise(&job, Generation(1), 7).expect("it can be written");
        assert_eq!(fences.newest(1), [fence("train", 1, 7)]);
        assert_eq!(fences.newest(usize::MAX).len(), JOBS_MAX);
    }

    #[test]
    fn damaged_fences_are_an_error_and_never_no_fences() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("fences.json");
        fs::write(&path, b"{\"train\": ").expect("it can be written");
        assert!(FenceTable::open(&path).is_err());
    }
}
