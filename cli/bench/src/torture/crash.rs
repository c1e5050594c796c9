//! Crash matrix: saves in which a process is killed or the disk fails, and the state after each.
//!
//! Kills are real: a rank that fills and seals an arena, an agent that writes a shard and its index, a controller that
//! commits and removes are processes of their own, ended by SIGKILL. One half is killed from outside at a random time
//! after its start; the other half kills itself right before a random system call of the phase or in the middle of a
//! write, which is the only way to spread deaths evenly over the work of a save.
//!
//! Everything runs twice: with images that are sealed whole and then written, and with images that stream through
//! windows, where the other side of the window survives and the controller dies while the next step streams.
//!
//! After each case the store is judged as a restart would find it, and the save is repeated: it must succeed.

mod faults;
mod kills;
mod scene;
mod stage;
mod victim;
pub mod victim_process;
mod whole;
mod windows;

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::TortureError;
use scene::SaveMode;

/// Results of the cases of one phase or fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CrashRow {
    /// Phase or fault, such as `kill-fill` or `disk-window-full`; empty in the total.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Number of disturbed saves.
    pub cases: u64,
    /// Cases in which the disturbance occurred during the phase. The others occurred just before or after it, which is
    /// tested, too.
    pub in_phase: u64,
    /// Committed checkpoints that should be retained and do not load.
    pub lost_commits: u64,
    /// Loads and images with other bytes than were saved.
    pub wrong_bytes: u64,
    /// Maximum number of checkpoint intervals between the disturbed save and the newest loadable checkpoint.
    pub intervals_lost_max: u64,
    /// Saves that could not be repeated afterwards.
    pub stuck: u64,
}

impl CrashRow {
    pub fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        self.in_phase += other.in_phase;
        self.lost_commits += other.lost_commits;
        self.wrong_bytes += other.wrong_bytes;
        self.intervals_lost_max = self.intervals_lost_max.max(other.intervals_lost_max);
        self.stuck += other.stuck;
    }

    /// True if every case passed.
    pub fn is_good(&self) -> bool {
        self.lost_commits == 0 && self.wrong_bytes == 0 && self.stuck == 0 && self.intervals_lost_max <= 1
    }
}

/// Judgement of one case.
#[derive(Debug, Default)]
pub(crate) struct CrashVerdict {
    in_phase: bool,
    lost_commits: u64,
    wrong_bytes: u64,
    intervals_lost: u64,
    stuck: bool,
    faults: Vec<String>,
}

/// Runs `cases` kills, spread over the phases, and as many disk faults, spread over their kinds, for whole images and
/// for windows; calls `watch` for each finished case, with its fault if there is one. `program` is this program, which
/// runs the victims.
pub fn run(
    program: &Path,
    dir: &Path,
    seed: u64,
    cases: u64,
    watch: &(dyn Fn(Option<String>) + Sync),
) -> Result<Vec<CrashRow>, TortureError> {
    let mut rows = Vec::new();
    for way in SaveMode::ALL {
        rows.extend(kills::run(program, dir, way, seed, cases, watch)?);
        rows.extend(faults::run(dir, way, seed, cases, watch)?);
    }
    Ok(rows)
}

/// Returns the number of cases of [`run`]: as many of each phase, and of each fault.
pub fn cases(cases: u64) -> u64 {
    [stage::PHASES.len(), faults::FAULTS.len()]
        .map(|kinds| cases.next_multiple_of(kinds as u64))
        .iter()
        .map(|each| each * SaveMode::ALL.len() as u64)
        .sum()
}

/// Removes the folders below `dir` with this name prefix.
fn clear(dir: &Path, name: &str) -> Result<(), TortureError> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(name) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Sums the judgements into rows, in the order of `names`.
fn rows(names: impl IntoIterator<Item = String>, verdicts: &[(String, CrashVerdict)]) -> Vec<CrashRow> {
    let row = |name: String| {
        let mut row = CrashRow {
            phase: name.clone(),
            ..CrashRow::default()
        };
        for (_, verdict) in verdicts.iter().filter(|(of, _)| *of == name) {
            row.add(&CrashRow {
                phase: String::new(),
                cases: 1,
                in_phase: verdict.in_phase.into(),
                lost_commits: verdict.lost_commits,
                wrong_bytes: verdict.wrong_bytes,
                intervals_lost_max: verdict.intervals_lost,
                stuck: verdict.stuck.into(),
            });
        }
        row
    };
    names.into_iter().map(row).collect()
}
