//! Result files of a run. Each file appears complete under its name or not at all.

use std::fs;
use std::io;
use std::path::Path;

use rankguard_rank::RankEnv;
use serde::{Deserialize, Serialize};

use crate::error::FailureCause;

/// Name of the file with the final parameters: all tensors back to back, f32, little-endian.
pub const PARAMETERS_FILE: &str = "parameters.bin";
/// Name of the file with rank 0's [`RunSummary`].
pub const SUMMARY_FILE: &str = "summary.json";

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Rank that reports.
    pub rank: u32,
    /// Generation that finished.
    pub generation: u64,
    /// Number of ranks of that generation.
    pub world_size: u32,
    /// Number of steps of the whole run.
    pub steps: u64,
    /// Number of epochs of the whole run.
    pub epochs: u64,
    /// Number of samples in an epoch.
    pub samples: u64,
    /// Steps completed when this generation began.
    pub started_at: u64,
    /// Mean cross-entropy of the final parameters over the training set.
    pub loss: f64,
    /// Fraction of the training set that the final parameters classify correctly.
    pub accuracy: f64,
    /// BLAKE3 digest of `parameters.bin`, 64 hex digits.
    pub parameters: String,
    /// Median wall time of a step of this generation with its pacing, in milliseconds; `None` if there was no step.
    pub step_ms: Option<f64>,
    /// Median wall time of a step without the pacing, in milliseconds.
    pub work_ms: Option<f64>,
    /// Number of checkpoints that this rank sealed in this generation.
    pub sealed: u64,
    /// Number of checkpoints that this rank skipped.
    pub skipped: u64,
    /// Number of step marks that were not sent to the agent.
    pub marks_dropped: u64,
}

/// Writes a file under a temporary name and renames it. No fsync, because the results can be computed again.
pub(crate) fn write(env: &RankEnv, dir: &Path, name: &str, bytes: &[u8]) -> Result<(), FailureCause> {
    let path = dir.join(name);
    // Two generations may overlap briefly; their temporary files must not collide.
    let temporary = dir.join(format!(".{name}.{}.{}.tmp", env.generation, env.rank));
    let written: io::Result<()> = (|| {
        fs::create_dir_all(dir)?;
        fs::write(&temporary, bytes)?;
        fs::rename(&temporary, &path)
    })();
    written.map_err(|source| {
        let _ = fs::remove_file(&temporary);
        FailureCause::Output { path, source }
    })
}

pub(crate) fn write_json(env: &RankEnv, dir: &Path, name: &str, value: &impl Serialize) -> Result<(), FailureCause> {
    let mut text = serde_json::to_vec_pretty(value).expect("numbers, texts and lists of them are JSON");
    text.push(b'\n');
    write(env, dir, name, &text)
}
