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
        format!(
            "{url} is not a directory; object stores are supported by `ls`, `verify`, `push`, `pull` and `repair --from`"
        ),
        format!("copy it with `rankguard checkpoint pull --from {url} --dir STORE`"),
    )
}

/// Opens an object store with a bandwidth limit of `cap` MB/s.
pub(super) fn tier(url: &str, cap: Option<u64>) -> Result<ObjectTier, CliError> {
    let tier = ObjectTier::open(url).map_err(|problem| {
        CliError::usage(
            "cannot use the URL of the object store",
            "expected file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
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
        (true, _) => "run the command again to resume it",
        (false, true) => "`rankguard checkpoint push --help` lists the environment variables of each provider",
        (false, false) => "`rankguard checkpoint verify --dir STORE` checks a store, a directory or a URL",
    };
    CliError::failure(what, hint).because(problem)
}
