//! `--resume-from`: selects the checkpoint that a job starts from.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use rankguard_checkpoint::Store;
use rankguard_checkpoint_tiers::object::{ObjectError, ObjectTier};
use rankguard_model::{JobId, ResumePlace, ResumeSource, Step, with_causes};

use crate::error::CliError;
use crate::out;
use crate::waiting::report_long_wait;

/// Source of a checkpoint: `JOB[:STEP]`, `PATH[:STEP]` or `URL[:STEP]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResumeArg {
    place: ResumeSourceArg,
    step: Option<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ResumeSourceArg {
    Job(String),
    Path(PathBuf),
    Url(String),
}

impl FromStr for ResumeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_step = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (place, step) = match text.rsplit_once(':') {
            Some((place, step)) if is_step(step) => {
                let step = step.parse().map_err(|_| format!("{step} is not a step"))?;
                (place, Some(Step(step)))
            }
            _ => (text, None),
        };
        let wanted = "expected JOB, PATH or URL, and optionally :STEP";
        let place = if place.is_empty() {
            return Err(wanted.to_owned());
        } else if place.contains("://") {
            ResumeSourceArg::Url(place.to_owned())
        } else if place.contains('/') {
            ResumeSourceArg::Path(place.into())
        } else if place.contains(':') {
            let (_, step) = place.rsplit_once(':').unwrap_or_default();
            return Err(if step.is_empty() {
                format!("{text:?} has no step after the colon; {wanted}")
            } else {
                format!("{step:?} in {text:?} is not a step; {wanted}")
            });
        } else {
            ResumeSourceArg::Job(place.to_owned())
        };
        Ok(Self { place, step })
    }
}

impl ResumeArg {
    /// Returns the source for the submission. A checkpoint of an object store is first pulled into the store, by this
    /// process and with its credentials.
    pub(crate) async fn resolve(&self, store: &Path) -> Result<ResumeSource, CliError> {
        let place = match &self.place {
            ResumeSourceArg::Job(job) => ResumePlace::Job(JobId::from(job.as_str())),
            ResumeSourceArg::Path(path) => {
                let absolute = std::path::absolute(path).map_err(|problem| {
                    let what = format!("cannot make {} absolute", path.display());
                    CliError::usage(what, "use an absolute path").because(problem)
                })?;
                ResumePlace::Path(absolute.display().to_string())
            }
            ResumeSourceArg::Url(url) => ResumePlace::Job(pull(url, self.step, store).await?),
        };
        Ok(ResumeSource { place, step: self.step })
    }
}

/// Pulls the checkpoint of `step`, or the newest that is not superseded, with the records of its run.
async fn pull(url: &str, step: Option<Step>, store: &Path) -> Result<JobId, CliError> {
    let failed = |problem: ObjectError| {
        CliError::failure(
            format!("cannot resume from {url}: {}", with_causes(&problem)),
            "`rankguard checkpoint ls --dir URL` lists its checkpoints; this machine needs credentials for the URL and access to --checkpoint-dir",
        )
    };
    let (tier, job) = open(url).await.map_err(failed)?;
    let Some(job) = job else {
        return Err(CliError::failure(
            format!("cannot resume from {url}: it has no job, or several"),
            "select one with URL/JOB; `rankguard checkpoint ls --dir URL` lists the jobs",
        ));
    };
    let superseded = tier.attempt_set(&job).await.map_err(failed)?;
    let committed = tier.committed(&job).await.map_err(failed)?;
    let fits = |id: &&rankguard_checkpoint::format::CheckpointId| match step {
        Some(step) => id.step == step,
        None => !superseded.is_superseded(**id),
    };
    let Some(id) = committed.iter().rev().find(fits).copied() else {
        let steps: Vec<String> = committed.iter().map(|id| id.step.to_string()).collect();
        return Err(CliError::failure(
            format!("cannot resume from {url}: job {job} has no such checkpoint"),
            format!(
                "steps with checkpoints: {}",
                if steps.is_empty() {
                    "none".to_owned()
                } else {
                    steps.join(", ")
                }
            ),
        ));
    };
    let store = Store::open(store).map_err(|problem| {
        let what = format!("cannot open the checkpoint store {}", store.display());
        CliError::failure(
            what,
            "this machine needs access to the store to copy the checkpoint into it",
        )
        .because(problem)
    })?;
    let what = format!("copying checkpoint {id} of job {job} from {url}");
    let pulled = report_long_wait(&what, tier.pull(&job, id, &store))
        .await
        .map_err(failed)?;
    out::note(&format!(
        "copied checkpoint {id} of job {job}, {} bytes",
        pulled.read_bytes
    ));
    Ok(job)
}

/// Opens the object store and selects its job: the only job, or the last part of the URL if the rest contains a job of
/// that name.
async fn open(url: &str) -> Result<(ObjectTier, Option<JobId>), ObjectError> {
    let tier = ObjectTier::open(url)?;
    let mut jobs = Vec::new();
    for job in tier.jobs().await? {
        if !tier.committed(&job).await?.is_empty() {
            jobs.push(job);
        }
    }
    if let [job] = &jobs[..] {
        let job = job.clone();
        return Ok((tier, Some(job)));
    }
    if let Some((base, name)) = url.trim_end_matches('/').rsplit_once('/').filter(|_| jobs.is_empty()) {
        let tier = ObjectTier::open(base)?;
        let job = JobId::from(name);
        if tier.jobs().await?.contains(&job) {
            return Ok((tier, Some(job)));
        }
    }
    Ok((tier, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_job_a_path_or_a_url_with_or_without_a_step() {
        let parse = |text: &str| text.parse::<ResumeArg>();
        let job = |step: Option<u64>| ResumeArg {
            place: ResumeSourceArg::Job("train".to_owned()),
            step: step.map(Step),
        };
        assert_eq!((parse("train"), parse("train:30")), (Ok(job(None)), Ok(job(Some(30)))));
        let path = parse("./ck/train:7").expect("a path");
        assert_eq!(path.place, ResumeSourceArg::Path("./ck/train".into()));
        let url = parse("s3://bucket/run-7:12").expect("a URL");
        assert_eq!(url.place, ResumeSourceArg::Url("s3://bucket/run-7".to_owned()));
        assert_eq!(url.step, Some(Step(12)));
        assert!(parse("s3://bucket/run").is_ok_and(|source| source.step.is_none()));
        for wrong in ["", ":3", "train:", "train:x"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
