//! Object stores in place of a store on disk: listing, verification and repair sources; other commands propose a pull.

use std::path::Path;

use rankguard_checkpoint::Store;
use rankguard_checkpoint::repair::MirrorSource;
use rankguard_checkpoint_tiers::object::{ObjectSource, ObjectTier};
use rankguard_model::{JobId, Step};
use tokio::runtime::Runtime;

use super::args::StoreArgs;
use super::folder::read_folder;
use super::rows::{FindingRow, FolderRow, findings};
use super::url::{failed, tier, url};
use crate::error::CliError;
use crate::runtime::block_on;

/// Returns the jobs of the object store, or the selected one.
async fn jobs(tier: &ObjectTier, args: &StoreArgs) -> Result<Vec<JobId>, CliError> {
    match &args.job {
        Some(job) => Ok(vec![JobId::from(job.as_str())]),
        None => tier
            .jobs()
            .await
            .map_err(|problem| failed("cannot list the jobs", problem)),
    }
}

/// Lists the folders of each job for `ls`.
pub(super) fn ls(url: &str, args: &StoreArgs) -> Result<Vec<FolderRow>, CliError> {
    let tier = tier(url, None)?;
    block_on(async {
        let mut folders = Vec::new();
        for job in jobs(&tier, args).await? {
            let what = format!("cannot list the checkpoints of job {job}");
            let listing = tier.listing(&job).await.map_err(|problem| failed(&what, problem))?;
            let torn = listing.torn.iter().map(|id| FolderRow::torn(&job, *id, None));
            let mut of_job: Vec<FolderRow> = torn.collect();
            of_job.extend(listing.borrowed.iter().map(|id| FolderRow::borrowed(&job, *id, None)));
            let attempts = tier.attempt_set(&job).await.map_err(|problem| failed(&what, problem))?;
            of_job.extend(listing.manifests.iter().map(|(id, manifest)| {
                match manifest {
                    Ok(manifest) => {
                        FolderRow::committed(&job, manifest, Some(manifest.bytes()).filter(|bytes| *bytes > 0))
                            .among(&attempts)
                    }
                    Err(problem) => FolderRow::damaged(&job, *id, problem.to_string()),
                }
            }));
            of_job.sort_by_key(FolderRow::place);
            folders.extend(of_job);
        }
        Ok(folders)
    })?
}

/// Verifies every byte for `verify`; returns the findings, and the numbers of intact checkpoints and problems.
pub(super) fn verify(
    url: &str,
    args: &StoreArgs,
    step: Option<Step>,
) -> Result<(Vec<FindingRow>, usize, usize), CliError> {
    let tier = tier(url, None)?;
    block_on(async {
        let mut found = Vec::new();
        let mut intact = 0;
        let mut problems = 0;
        for job in jobs(&tier, args).await? {
            let what = format!("cannot verify the checkpoints of job {job}");
            let report = tier.verify(&job, step).await;
            let report = report.map_err(|problem| failed(&what, problem))?;
            intact += report.checkpoints.iter().filter(|checkpoint| checkpoint.intact).count();
            problems += report.problems.len();
            found.extend(findings(&job, &report));
        }
        Ok((found, intact, problems))
    })?
}

/// Opens a store with copies, a directory or a URL. Reads of object stores run on `runtime`.
pub(super) fn mirror(place: &Path, runtime: &Runtime) -> Result<Box<dyn MirrorSource>, CliError> {
    match url(place) {
        Some(url) => Ok(Box::new(ObjectSource::new(tier(url, None)?, runtime.handle().clone()))),
        None => {
            read_folder(
                place,
                "set --from to the directory of another checkpoint store, or to a URL as for push",
            )?;
            Ok(Box::new(Store::at(place)))
        }
    }
}
