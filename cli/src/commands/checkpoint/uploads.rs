//! Unfinished uploads to object stores, left by a killed process.

use std::collections::BTreeSet;

use rankguard_checkpoint::Store;
use rankguard_checkpoint_tiers::object::{ObjectTier, unfinished_uploads};
use rankguard_model::{JobId, with_causes};

use super::url::failed;
use crate::error::CliError;
use crate::out;
use crate::runtime::block_on;

/// Lists the unfinished uploads of a job, and aborts them unless this is a dry run. An object store that cannot be
/// reached is reported, and its uploads remain for the next call.
pub(super) fn end_unfinished(store: &Store, job: &JobId, dry_run: bool) -> Result<(), CliError> {
    let uploads =
        unfinished_uploads(store, job).map_err(|problem| failed("cannot list unfinished uploads", problem))?;
    for upload in &uploads {
        let url = &upload.url;
        let path = &upload.path;
        out::note(&format!("job {job}: unfinished upload of {path} to {url}"));
    }
    if dry_run {
        return Ok(());
    }
    let urls: BTreeSet<String> = uploads.into_iter().map(|upload| upload.url).collect();
    for url in urls {
        let ended =
            ObjectTier::open(&url).map(|tier| block_on(async { tier.end_unfinished_uploads(store, job).await }));
        match ended {
            Ok(Ok(Ok(count))) => out::note(&format!("job {job}: aborted {count} unfinished uploads to {url}")),
            Ok(Ok(Err(problem))) | Err(problem) => {
                out::note(&format!(
                    "job {job}: cannot abort the uploads to {url}: {}",
                    with_causes(&problem)
                ));
            }
            Ok(Err(problem)) => return Err(problem),
        }
    }
    Ok(())
}
