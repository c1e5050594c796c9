//! Object stores given by URL in place of a directory.

use std::path::Path;
use std::sync::Arc;

use rankguard_checkpoint_tiers::cap::BandwidthCap;
use rankguard_checkpoint_tiers::object::{ObjectError, ObjectTier};

use crate::error::CliError;

/// Returns the URL if the argument is one.
pub(super) fn url(dir: &Path) -> Option<&str> {
    dir.to_str().filter(|text| text.contains("://"))
}

/// Error of commands that work on files only.
pub(super) fn refuse(url: &str) -> CliError {
    CliError::usage(
        format!("{url} is no folder; `ls`, `verify`, `push`, `pull` and `repair --from` work on object stores"),
        format!("`rankguard checkpoint pull --from {url} --dir STORE` brings it here"),
    )
}

/// Opens an object store with a bandwidth limit of `cap` MB/s.
pub(super) fn tier(url: &str, cap: Option<u64>) -> Result<ObjectTier, CliError> {
    let tier = ObjectTier::open(url).map_err(|problem| {
        CliError::usage(
            "cannot tell where that is",
            "file:///folder, s3://bucket/prefix, gs://bucket/prefix and az://container/prefix are places",
        )
        .because(problem)
    })?;
    Ok(tier.with_cap(Arc::new(BandwidthCap::new(
        cap.map(|cap| cap.saturating_mul(1_000_000)),
    ))))
}

/// Maps an error of an object store, with a hint.
pub(super) fn failed(what: &str, problem: ObjectError) -> CliError {
    let hint = match (problem.is_retryable(), problem.is_remote()) {
        (true, _) => "run it again: it goes on where it stopped",
        (false, true) => "`rankguard checkpoint push --help` tells what each kind of place needs in the environment",
        (false, false) => "`rankguard checkpoint verify` tells whether a store is sound, on disk or at a URL",
    };
    CliError::failure(what, hint).because(problem)
}
