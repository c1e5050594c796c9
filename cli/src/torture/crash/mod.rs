//! The crash matrix: saves in which a process is killed or the disk fails, and what is left after each.
//!
//! Kills are real: a rank that fills and seals an arena, an agent that writes a shard and its index, a controller that
//! commits and removes are processes of their own, ended by SIGKILL. One half dies at a moment, killed from outside at a
//! random time after it began; the other half at a place, by its own hand right before a random system call of the phase
//! or in the middle of a write, which is the only way to spread deaths evenly over what a save does.
//!
//! All of it twice: with images that are sealed whole and then written, and with images that pass through windows, where the
//! other side of the window lives on and the controller dies while the next step passes.
//!
//! After each case the store is judged as a restart would find it, and the save is done again: it must succeed.

mod faults;
pub(crate) mod hand;
mod kills;
mod scene;
mod stage;
mod victim;
mod whole;
mod windows;

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::TortureError;
use scene::Way;

/// What became of the cases of one phase or fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// `kill-fill`, `disk-window-full` and so on; empty in the total.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) phase: String,
    /// Saves that were disturbed.
    pub(crate) cases: u64,
    /// Of these, the disturbance came while the phase lasted. The others ended just before or after it, which is a case too.
    pub(crate) in_phase: u64,
    /// Checkpoints that were committed, ought to be kept, and do not load.
    pub(crate) lost_commits: u64,
    /// Loads and images of other bytes than were saved.
    pub(crate) wrong_bytes: u64,
    /// Most checkpoint intervals between what was being saved and what loads.
    pub(crate) intervals_lost_max: u64,
    /// Saves that could not be done again afterwards.
    pub(crate) stuck: u64,
}

impl Row {
    pub(crate) fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        self.in_phase += other.in_phase;
        self.lost_commits += other.lost_commits;
        self.wrong_bytes += other.wrong_bytes;
        self.intervals_lost_max = self.intervals_lost_max.max(other.intervals_lost_max);
        self.stuck += other.stuck;
    }

    /// Whether every case went as it must.
    pub(crate) fn is_good(&self) -> bool {
        self.lost_commits == 0 && self.wrong_bytes == 0 && self.stuck == 0 && self.intervals_lost_max <= 1
    }
}

/// What one case came to.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    in_phase: bool,
    lost_commits: u64,
    wrong_bytes: u64,
    intervals_lost: u64,
    stuck: bool,
    faults: Vec<String>,
}

/// Runs `cases` kills, spread over the phases, and as many faults, spread over their kinds, of saves of whole images, and as
/// many of saves through windows; tells `watch` of each that is done, and of what went wrong. `program` is this program,
/// which plays the victims.
pub(crate) fn run(
    program: &Path,
    dir: &Path,
    seed: u64,
    cases: u64,
    watch: &(dyn Fn(Option<String>) + Sync),
) -> Result<Vec<Row>, TortureError> {
    let mut rows = Vec::new();
    for way in Way::ALL {
        rows.extend(kills::run(program, dir, way, seed, cases, watch)?);
        rows.extend(faults::run(dir, way, seed, cases, watch)?);
    }
    Ok(rows)
}

/// How many cases [`run`] makes: as many of each phase, and of each fault.
pub(crate) fn cases(cases: u64) -> u64 {
    [stage::PHASES.len(), faults::FAULTS.len()]
        .map(|kinds| cases.next_multiple_of(kinds as u64))
        .iter()
        .map(|each| each * Way::ALL.len() as u64)
        .sum()
}

/// Removes the folders below `dir` whose names begin like this.
fn clear(dir: &Path, name: &str) -> Result<(), TortureError> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(name) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Rows of what was judged, in the order of `names`.
fn rows(names: impl IntoIterator<Item = String>, verdicts: &[(String, Verdict)]) -> Vec<Row> {
    let row = |name: String| {
        let mut row = Row {
            phase: name.clone(),
            ..Row::default()
        };
        for (_, verdict) in verdicts.iter().filter(|(of, _)| *of == name) {
            row.add(&Row {
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
