//! `rankguard diagnose`: foreign logs, read offline through the same triage and engines as live evidence.
//!
//! Files become streams here (`files`, `logs`), or cases with prepared streams (`records`); `rankguard-offline`
//! concludes; `print` prints. Unreadable input is a problem line, never an error: one damaged file must not hide the
//! content of the others (RG-11). Without a failure, a path of which nothing can be read leaves no verdict.
//!
//! Work is bounded ([`ReadBudget`]): bytes of text and time, for each file and for all; the rest of a file beyond a
//! limit is a problem line that names the limit. Pipes, sockets, devices and files of the kernel are refused by name.
//!
//! Absent: archives are not unpacked.

pub(crate) mod dumps;
mod files;
mod generations;
pub(crate) mod logs;
mod novelties;
mod print;
mod reading;
pub(crate) mod records;
pub(crate) mod timings;

#[cfg(test)]
mod evaluation;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rankguard_console::display_text::count;
use rankguard_faults::{Catalogue, SignatureMatcher};
use rankguard_files::{ReadBudget, ReadLimits};
use rankguard_model::printable;
use rankguard_templates::NoveltyFinding;
use thiserror::Error;

use rankguard_offline::{OfflineCase, OpenEnd, add, diagnose_group};

use generations::{JobGeneration, LogGroup, generation_of, host_folders, merged};
use reading::SampledLogs;

use crate::second_reader::{AskedReader, ShownReading};

/// Options of a diagnosis.
#[derive(Debug)]
pub(crate) struct DiagnoseArgs {
    /// Files and folders.
    pub(crate) paths: Vec<PathBuf>,
    /// Logs of successful runs.
    pub(crate) healthy: Vec<PathBuf>,
    /// Offset of each node's clock ahead of the reference.
    pub(crate) clocks: logs::ClockOffsets,
    /// Catalogue and matcher.
    pub(crate) rules: Rules,
    /// Limits on bytes and time.
    pub(crate) limits: ReadLimits,
    /// Format of the output.
    pub(crate) format: Format,
    /// Reader that is asked as well.
    pub(crate) reader: Option<AskedReader>,
}

/// Catalogue of classes, and the matcher of their signatures.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) catalogue: Cow<'static, Catalogue>,
    pub(crate) matcher: Arc<SignatureMatcher>,
}

impl From<Cow<'static, Catalogue>> for Rules {
    fn from(catalogue: Cow<'static, Catalogue>) -> Self {
        let matcher = match &catalogue {
            Cow::Borrowed(_) => SignatureMatcher::builtin(),
            Cow::Owned(added) => Arc::new(SignatureMatcher::new(added)),
        };
        Self { catalogue, matcher }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Cow::Borrowed(Catalogue::builtin()).into()
    }
}

/// Format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text for people.
    Table,
    /// One object.
    Json,
    /// One object per line: cases, then notes.
    Jsonl,
}

/// Failure of a diagnosis.
#[derive(Debug, Error)]
pub(crate) enum DiagnoseError {
    /// None of the paths could be read.
    #[error("no readable input: {0}")]
    NothingReadable(String),
    /// No failure was found, but a part of the logs was not read.
    #[error("of {streams} log files, {partial} could not be read to the end")]
    Incomplete { partial: usize, streams: usize },
    /// No failure was found, and nothing of some paths could be read.
    #[error("nothing could be read of {unread} of {paths} paths")]
    UnreadPaths { unread: usize, paths: usize },
    /// Writing the result failed.
    #[error("cannot print the cases")]
    Print(#[from] io::Error),
}

/// Comparison with healthy runs.
#[derive(Debug, Default)]
pub(crate) enum HealthyComparison {
    /// No healthy run was named.
    #[default]
    NotRequested,
    /// No line of a healthy run could be read.
    NothingRead,
    /// Lines that the healthy runs do not contain, strongest first.
    Novelties(Vec<NoveltyFinding>),
}

/// Result of a diagnosis.
#[derive(Debug, Default)]
pub(crate) struct Diagnoses {
    /// Cases, in the order of the paths.
    pub(crate) cases: Vec<OfflineCase>,
    /// Comparison with the healthy runs.
    pub(crate) novelties: HealthyComparison,
    /// Unreadable input, with the reason.
    pub(crate) problems: Vec<String>,
    /// Remarks on the selection of logs.
    pub(crate) notes: Vec<String>,
    /// Lines of the logs that were diagnosed together, if they are kept for the second reader.
    sampled: Vec<SampledLogs>,
    /// Answers of the second reader.
    pub(crate) readings: Vec<ShownReading>,
    /// Number of logs that show work and do not state how their run ended, without a failure.
    pub(crate) open_ends: usize,
    /// Number of streams read.
    pub(crate) streams: usize,
    /// Number of paths of which nothing could be read.
    pub(crate) unread_paths: usize,
    /// Number of streams of which only the beginning, or nothing, was read.
    pub(crate) partial: usize,
}

/// Reads the paths, prints the cases to `out` and the problems to `notes`. Returns true if a failure was found, and an
/// error if none was found but a part of the logs was not read.
pub(crate) fn run(args: &DiagnoseArgs, out: &mut dyn Write, notes: &mut dyn Write) -> Result<bool, DiagnoseError> {
    let budget = ReadBudget::begin(args.limits);
    let keeps_samples = args.reader.is_some();
    let mut found = conclude(&args.paths, &args.clocks, &args.rules, &budget, keeps_samples);
    if !args.healthy.is_empty() {
        found.novelties = match novelties::find(&args.paths, &args.healthy, &budget, &mut found.problems) {
            Some(novelties) => HealthyComparison::Novelties(novelties),
            None => HealthyComparison::NothingRead,
        };
    }
    if found.streams == 0 {
        let why = found
            .problems
            .first()
            .cloned()
            .unwrap_or_else(|| "no path given".to_owned());
        return Err(DiagnoseError::NothingReadable(why));
    }
    for problem in &found.problems {
        writeln!(notes, "skipped: {}", printable(problem))?;
    }
    for note in &found.notes {
        writeln!(notes, "note: {}", printable(note))?;
    }
    match &args.reader {
        // People read the verdict while the reader is asked.
        Some(reader) if args.format == Format::Table => {
            print::print(&found, args.format, out)?;
            reading::ask(&mut found, reader, &args.rules.catalogue);
            print::readings(&found.readings, out)?;
        }
        Some(reader) => {
            reading::ask(&mut found, reader, &args.rules.catalogue);
            print::print(&found, args.format, out)?;
        }
        None => print::print(&found, args.format, out)?,
    }
    let has_failure = found.cases.iter().any(OfflineCase::is_failure);
    if !has_failure && found.partial > 0 {
        return Err(DiagnoseError::Incomplete {
            partial: found.partial,
            streams: found.streams,
        });
    }
    if !has_failure && found.unread_paths > 0 {
        return Err(DiagnoseError::UnreadPaths {
            unread: found.unread_paths,
            paths: args.paths.len(),
        });
    }
    Ok(has_failure)
}

/// Reads the paths and concludes cases; keeps lines of the logs if a second reader is asked as well.
pub(crate) fn conclude(
    paths: &[PathBuf],
    clocks: &logs::ClockOffsets,
    rules: &Rules,
    budget: &ReadBudget,
    keeps_samples: bool,
) -> Diagnoses {
    let mut found = Diagnoses::default();
    let mut read_files = BTreeSet::new();
    let mut nodes = BTreeSet::new();
    for path in paths {
        let before = (found.streams, found.problems.len());
        let mut groups: BTreeMap<Option<JobGeneration>, LogGroup> = BTreeMap::new();
        let mut files = files::walk(path, &mut found.problems);
        if paths.len() > 1 {
            skip_read(path, &mut files, &mut read_files, &mut found.notes);
        }
        let hosts = host_folders(&files);
        let heads = logs::FileHeads::read(path, &files, clocks, budget);
        if !clocks.is_empty() {
            nodes.extend(files.iter().filter_map(|file| heads.nodes.node(path, file)));
        }
        let reader = logs::LogReader {
            root: path,
            clocks,
            heads: &heads,
            rules,
            budget,
            samples: keeps_samples,
        };
        for file in files {
            let problems_before = found.problems.len();
            if records::holds_cases(&file, budget) {
                let Diagnoses {
                    cases,
                    problems,
                    streams,
                    ..
                } = &mut found;
                let Ok(()) = records::classify(
                    &file,
                    rules,
                    budget,
                    problems,
                    |case, read| -> Result<(), std::convert::Infallible> {
                        *streams += read.max(1);
                        cases.push(case);
                        Ok(())
                    },
                );
            } else if let Some(dump) = dumps::found(path, &file, &heads.nodes) {
                found.streams += 1;
                match dump {
                    Ok(dump) => groups.entry(generation_of(&file, &hosts)).or_default().dumps.push(dump),
                    Err(problem) => found.problems.push(problem),
                }
            } else if let Some(log) = reader.read(&file, &mut found.problems) {
                found.streams += 1;
                // A stream with a problem was not read to its end.
                found.partial += usize::from(found.problems.len() > problems_before);
                let group = groups.entry(generation_of(&file, &hosts)).or_default();
                group.streams.push(log.stream);
                group.samples.extend(log.sample);
            }
        }
        let has_problem = found.problems.len() > before.1;
        found.unread_paths += usize::from(has_problem && found.streams == before.0);
        let groups = merged(groups, &mut found.notes);
        for LogGroup {
            streams,
            dumps,
            samples,
        } in groups
        {
            let group = diagnose_group(streams, dumps, &rules.catalogue);
            if !samples.is_empty() {
                found.sampled.push(SampledLogs::of(path, samples, &group.cases));
            }
            for case in group.cases {
                add(&mut found.cases, case);
            }
            found.notes.extend(group.reports.iter().map(ToString::to_string));
            note_open_ends(&mut found, &group.open_ends);
        }
    }
    for node in clocks.keys().filter(|node| !nodes.contains(*node)) {
        found.notes.push(format!(
            "--clock-offset of node {node} is not used: no file or folder is named after it"
        ));
    }
    found
}

/// Maximum number of logs without a stated end that are noted one by one.
const OPEN_ENDS: usize = 8;

/// Adds notes about the logs that do not state how their run ended.
fn note_open_ends(found: &mut Diagnoses, open_ends: &[OpenEnd]) {
    found.open_ends += open_ends.len();
    found
        .notes
        .extend(open_ends.iter().take(OPEN_ENDS).map(ToString::to_string));
    if open_ends.len() > OPEN_ENDS {
        let more = count(open_ends.len() - OPEN_ENDS, "further log");
        found.notes.push(format!("{more} without a stated end"));
    }
}

/// Removes the files that an earlier path contains, and adds a note about them.
fn skip_read(path: &Path, files: &mut Vec<PathBuf>, read_files: &mut BTreeSet<PathBuf>, notes: &mut Vec<String>) {
    let mut own = Vec::new();
    files.retain(|file| {
        let real_path = fs::canonicalize(file).unwrap_or_else(|_| file.clone());
        let is_new = !read_files.contains(&real_path);
        own.push(real_path);
        is_new
    });
    let skipped = own.len() - files.len();
    read_files.extend(own);
    if skipped > 0 {
        notes.push(format!(
            "{}: {} read with an earlier path, and not again",
            path.display(),
            count(skipped, "file")
        ));
    }
}
