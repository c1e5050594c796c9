//! Resolution of a resume source to a job folder.

use std::path::Path;

use rankguard_model::{JobId, ResumePlace, ResumeSource};

use super::ClaimError;
use crate::format::{CheckpointId, check_job};
use crate::store::{Store, StoreError};

/// Folder of a job, and one checkpoint of it if the source names one.
#[derive(Debug)]
pub(super) struct SourcePlace {
    pub(super) store: Store,
    pub(super) job: JobId,
    pub(super) id: Option<CheckpointId>,
}

impl SourcePlace {
    /// True if this is the folder of a job in a store, compared by canonical path.
    pub(super) fn is_folder_of(&self, store: &Store, job: &JobId) -> Result<bool, StoreError> {
        if self.job != *job {
            return Ok(false);
        }
        let real = |store: &Store| -> Result<_, StoreError> {
            let path = store.job_dir(job)?;
            Ok(path.canonicalize().unwrap_or(path))
        };
        Ok(real(&self.store)? == real(store)?)
    }
}

/// Resolves a source. A path may name a store with one job, the folder of a job, or one checkpoint.
pub(super) fn resolve(own: &Store, source: &ResumeSource) -> Result<SourcePlace, ClaimError> {
    let path = match &source.place {
        ResumePlace::Job(job) => {
            check_job(job).map_err(StoreError::from)?;
            let place = SourcePlace {
                store: own.clone(),
                job: job.clone(),
                id: None,
            };
            let jobs = own.jobs()?;
            return if jobs.contains(job) {
                Ok(place)
            } else {
                Err(absent(
                    source,
                    format!("{} has no job {job}", own.root().display()),
                    &jobs,
                ))
            };
        }
        ResumePlace::Path(path) => Path::new(path),
    };
    if !path.is_dir() {
        return Err(no_place(source, "the controller finds no such folder", own));
    }
    let name_of = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    if let (Some(id), Some(job_dir)) = (name_of(path).and_then(|name| name.parse().ok()), path.parent()) {
        return in_folder(job_dir, Some(id), source, own);
    }
    let own_names = path.read_dir().into_iter().flatten().flatten();
    let is_job = own_names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .any(|name| name.parse::<CheckpointId>().is_ok());
    if is_job {
        return in_folder(path, None, source, own);
    }
    let store = Store::at(path);
    let mut having = Vec::new();
    for job in store.jobs()? {
        if !store.committed_ids(&job)?.is_empty() {
            having.push(job);
        }
    }
    match &having[..] {
        [job] => Ok(SourcePlace {
            job: job.clone(),
            store,
            id: None,
        }),
        [] => Err(no_place(source, "the folder holds no checkpoints", own)),
        _ => Err(absent(
            source,
            "the folder holds several jobs; name the folder of one".to_owned(),
            &having,
        )),
    }
}

fn in_folder(
    job_dir: &Path,
    id: Option<CheckpointId>,
    source: &ResumeSource,
    own: &Store,
) -> Result<SourcePlace, ClaimError> {
    let whole = job_dir.canonicalize().unwrap_or_else(|_| job_dir.to_owned());
    let name = whole
        .file_name()
        .map(|name| JobId::from(name.to_string_lossy().as_ref()));
    match (name, whole.parent()) {
        (Some(job), Some(store)) if check_job(&job).is_ok() => Ok(SourcePlace {
            store: Store::at(store),
            job,
            id,
        }),
        _ => Err(no_place(source, "its folder has no name that a job may have", own)),
    }
}

/// Returns the error of a path without checkpoints; it names the jobs in the store of the new job.
fn no_place(source: &ResumeSource, problem: &str, own: &Store) -> ClaimError {
    let jobs = own.jobs().unwrap_or_default();
    let names: Vec<&str> = jobs.iter().map(JobId::as_str).collect();
    let store = own.root().display();
    let present = if names.is_empty() {
        format!("the store {store} has no jobs")
    } else {
        format!("the store {store} has: {}", names.join(", "))
    };
    ClaimError::Source {
        source_name: source.to_string(),
        problem: problem.to_owned(),
        present,
    }
}

fn absent(source: &ResumeSource, problem: String, jobs: &[JobId]) -> ClaimError {
    let names: Vec<&str> = jobs.iter().map(JobId::as_str).collect();
    let present = if names.is_empty() {
        "there are no jobs".to_owned()
    } else {
        format!("there are: {}", names.join(", "))
    };
    ClaimError::Source {
        source_name: source.to_string(),
        problem,
        present,
    }
}
