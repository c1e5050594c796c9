//! What a run leaves behind. Files appear whole under their name or not at all.

use std::fs;
use std::io;
use std::path::Path;

use rankguard_rank::RankEnv;
use serde::{Deserialize, Serialize};

use crate::error::Failure;

/// Name of the file with the final parameters: all tensors back to back, f32, little-endian.
pub const PARAMETERS_FILE: &str = "parameters.bin";
/// Name of the file with rank 0's [`Summary`].
pub const SUMMARY_FILE: &str = "summary.json";

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The rank that tells.
    pub rank: u32,
    /// The generation that finished.
    pub generation: u64,
    /// Its ranks.
    pub world_size: u32,
    /// Steps of the whole run.
    pub steps: u64,
    /// Epochs of the whole run.
    pub epochs: u64,
    /// Samples an epoch.
    pub samples: u64,
    /// Steps completed when this generation began.
    pub started_at: u64,
    /// Mean cross-entropy of the final parameters over the training set.
    pub loss: f64,
    /// Share of the training set that the final parameters name rightly.
    pub accuracy: f64,
    /// BLAKE3 of `parameters.bin`, 64 hex digits.
    pub parameters: String,
    /// Median wall time of a step of this generation with its pacing, milliseconds; absent when it made none.
    pub step_ms: Option<f64>,
    /// The same without the pacing.
    pub work_ms: Option<f64>,
    /// Checkpoints that this rank sealed in this generation.
    pub sealed: u64,
    /// Checkpoints that it could not take part in.
    pub skipped: u64,
    /// Step marks that the agent was not told.
    pub marks_dropped: u64,
}

/// Writes a file under another name and renames it. No fsync: what is written here can be computed again.
pub(crate) fn write(env: &RankEnv, dir: &Path, name: &str, bytes: &[u8]) -> Result<(), Failure> {
    let path = dir.join(name);
    // Two generations may overlap for a moment; their temporary files must not.
    let temporary = dir.join(format!(".{name}.{}.{}.tmp", env.generation, env.rank));
    let written: io::Result<()> = (|| {
        fs::create_dir_all(dir)?;
        fs::write(&temporary, bytes)?;
        fs::rename(&temporary, &path)
    })();
    written.map_err(|source| {
        let _ = fs::remove_file(&temporary);
        Failure::Output { path, source }
    })
}

/// Writes a value as indented JSON.
pub(crate) fn write_json(env: &RankEnv, dir: &Path, name: &str, value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(value).expect("numbers, texts and lists of them are JSON");
    text.push(b'\n');
    write(env, dir, name, &text)
}
