//! Inputs of a replay, recognised by content and name.

use std::path::{Path, PathBuf};

use super::tally::ReplayTally;
use super::{recorded, records};

/// Maximum number of files that are read in parallel.
const FILES: usize = 256;

/// Inputs of a replay, sorted by name.
#[derive(Default)]
pub(super) struct ReplayInputs {
    pub(super) cases: Vec<PathBuf>,
    pub(super) evidence: Vec<PathBuf>,
    pub(super) journals: Vec<PathBuf>,
    pub(super) logs: Vec<LogPath>,
}

/// Log below a given path: the names between the two may contain its node and rank.
pub(super) struct LogPath {
    pub(super) root: PathBuf,
    pub(super) path: PathBuf,
}

/// Maximum folder depth.
const DEPTH: usize = 16;
/// Maximum number of skipped files that a problem names.
const SKIPPED_NAMED: usize = 3;

/// Files of a folder and its subfolders.
#[derive(Default)]
struct FolderFiles {
    logs: Vec<PathBuf>,
    /// Files that are not named as logs are.
    skipped: Vec<PathBuf>,
}

/// Finds the files in a folder and its subfolders, sorted by name. Links are not followed.
fn files_below(folder: &Path, depth: usize, found: &mut FolderFiles, tally: &mut ReplayTally) {
    let entries = match std::fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>()) {
        Ok(entries) => entries,
        Err(problem) => return tally.problem(format!("{}: {problem}", folder.display())),
    };
    let mut paths: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
    paths.sort();
    let own = paths.iter().filter(|path| path.is_file()).cloned();
    let (mut logs, mut skipped): (Vec<PathBuf>, Vec<PathBuf>) = own.partition(|path| is_log(path));
    reductions(&mut logs, tally);
    found.logs.append(&mut logs);
    found.skipped.append(&mut skipped);
    for path in paths.iter().filter(|path| path.is_dir() && !path.is_symlink()) {
        if depth < DEPTH && !rankguard_journal::is_journal(path) {
            files_below(path, depth + 1, found, tally);
        }
    }
}

/// Adds a problem that names the files of a folder that are not read, if there are any.
fn report_skipped(folder: &Path, skipped: &[PathBuf], tally: &mut ReplayTally) {
    if skipped.is_empty() {
        return;
    }
    let names = skipped.iter().take(SKIPPED_NAMED);
    let names: Vec<String> = names
        .map(|path| path.strip_prefix(folder).unwrap_or(path).display().to_string())
        .collect();
    let more = match skipped.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    tally.problem(format!(
        "{}: skipped {}{more}: not logs by their names; name a file itself to replay it",
        folder.display(),
        names.join(", ")
    ));
}

impl ReplayInputs {
    /// Classifies paths and the contents of folders; paths given as journals are accepted as such.
    pub(super) fn below(paths: &[PathBuf], journals: &[PathBuf], tally: &mut ReplayTally) -> Self {
        let mut all = Self {
            journals: journals.to_vec(),
            ..Self::default()
        };
        for path in paths {
            if rankguard_journal::is_journal(path) {
                all.journals.push(path.clone());
                continue;
            }
            let mut found = FolderFiles::default();
            if path.is_dir() {
                files_below(path, 0, &mut found, tally);
                report_skipped(path, &found.skipped, tally);
            } else {
                found.logs.push(path.clone());
            }
            for file in found.logs {
                if recorded::holds_evidence(&file) {
                    all.evidence.push(file);
                } else if records::holds_cases(&file) {
                    all.cases.push(file);
                } else if all.logs.len() < FILES {
                    all.logs.push(LogPath {
                        root: path.clone(),
                        path: file,
                    });
                } else {
                    tally.problem(format!(
                        "{}: more than {FILES} files; replay the rest separately",
                        file.display()
                    ));
                }
            }
        }
        all
    }
}

/// Returns true for log names: documents and tables may be in the same folder.
fn is_log(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = [".gz", ".zst"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(&name);
    let has_ending = [".log", ".jsonl", ".out", ".err"].iter().any(|end| name.ends_with(end));
    // Names of system logs, without ending, or with a number after rotation.
    let system = ["syslog", "messages", "dmesg", "kern", "kmsg", "journal"];
    has_ending || system.contains(&name.split('.').next().unwrap_or(name))
}

/// Selects one of Blue Gene/L's files, which contain the same events four times: the one with all of them.
fn reductions(files: &mut Vec<PathBuf>, tally: &mut ReplayTally) {
    let named = |path: &Path, wanted: &str| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(wanted))
    };
    if files.iter().any(|file| named(file, "Best.all-fail.")) {
        let before = files.len();
        files.retain(|file| !named(file, "Best.") || named(file, "Best.all-fail."));
        if files.len() < before {
            tally.problem("the reduced copies of Best.all-fail are omitted: they contain the same events".to_owned());
        }
    }
}
