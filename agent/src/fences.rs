//! The newest generation of each job that this node was told of, on disk: a restarted agent refuses stale orders too
//! (RG-3).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rankguard_model::{Generation, JobId};

/// Jobs that are remembered; those with the lowest generations are forgotten first, long after they ended.
const JOBS_MAX: usize = 4_096;

/// All fences of a node.
#[derive(Debug)]
pub(crate) struct Fences {
    path: PathBuf,
    newest: BTreeMap<JobId, Generation>,
}

impl Fences {
    /// Reads the fences of a state directory; none when the file does not exist.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let newest = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(problem) => return Err(problem),
        };
        Ok(Self {
            path: path.to_owned(),
            newest,
        })
    }

    /// The lowest generation of a job that may act here.
    pub(crate) fn of(&self, job: &JobId) -> Generation {
        self.newest.get(job).copied().unwrap_or_default()
    }

    /// Raises a fence; durable when this returns.
    pub(crate) fn raise(&mut self, job: &JobId, generation: Generation) -> io::Result<()> {
        if self.of(job) >= generation {
            return Ok(());
        }
        let mut newest = self.newest.clone();
        newest.insert(job.clone(), generation);
        while newest.len() > JOBS_MAX {
            let least = newest
                .iter()
                .filter(|(known, _)| *known != job)
                .min_by_key(|(_, generation)| **generation);
            let Some(least) = least.map(|(known, _)| known.clone()) else {
                break;
            };
            newest.remove(&least);
        }
        self.write(&newest)?;
        self.newest = newest;
        Ok(())
    }

    fn write(&self, newest: &BTreeMap<JobId, Generation>) -> io::Result<()> {
        let temp = self.path.with_extension("tmp");
        let mut file = File::create(&temp)?;
        file.write_all(&serde_json::to_vec(newest).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(&temp, &self.path)?;
        match self.path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RG-3.
    #[test]
    fn a_fence_never_sinks_and_outlives_the_agent() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (path, job) = (folder.path().join("fences.json"), JobId::from("train"));
        let mut fences = Fences::open(&path).expect("no fences yet");
        fences.raise(&job, Generation(3)).expect("it can be written");
        fences.raise(&job, Generation(2)).expect("an older one changes nothing");
        assert_eq!(fences.of(&job), Generation(3));
        assert_eq!(Fences::open(&path).expect("it can be read").of(&job), Generation(3));
        assert_eq!(fences.of(&JobId::from("other")), Generation(0));
    }

    #[test]
    fn damaged_fences_are_an_error_and_never_no_fences() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("fences.json");
        fs::write(&path, b"{\"train\": ").expect("it can be written");
        assert!(Fences::open(&path).is_err());
    }
}
