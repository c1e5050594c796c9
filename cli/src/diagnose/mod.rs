//! `rankguard diagnose`: logs that nobody here wrote, read offline through the same triage and the same engines as live
//! evidence.
//!
//! Files become streams (`files`, `guess`), streams become signs (`reading`), signs become incidents by time and place
//! (`incident`), incidents become cases (`verdicts`), cases are printed (`print`). What cannot be read is a problem line,
//! never an error: one damaged file must not hide what the others tell (RG-11).
//!
//! Absent: archives are not unpacked, and clocks of nodes are taken as they are.

mod corpus;
mod files;
mod guess;
mod incident;
mod print;
mod reading;
mod verdicts;

#[cfg(test)]
mod evaluation;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;

use thiserror::Error;

pub(crate) use verdicts::OfflineCase;

/// What was asked for.
#[derive(Debug, Clone)]
pub(crate) struct DiagnoseArgs {
    /// Files and folders.
    pub(crate) paths: Vec<PathBuf>,
    /// How to print.
    pub(crate) format: Format,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One array of objects.
    Json,
    /// One object a line.
    Jsonl,
}

/// Why nothing could be diagnosed.
#[derive(Debug, Error)]
pub(crate) enum DiagnoseError {
    /// Not one of the paths could be read.
    #[error("read any log: {0}; name a file or a folder that holds logs")]
    NothingReadable(String),
    /// The result could not be printed.
    #[error("print the cases")]
    Print(#[from] io::Error),
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Diagnoses {
    /// The cases, in the order of the paths.
    pub(crate) cases: Vec<OfflineCase>,
    /// What could not be read, and why.
    pub(crate) problems: Vec<String>,
    /// Streams that were read.
    pub(crate) streams: usize,
}

/// Reads the paths, prints the cases to `out` and the problems to `notes`. Says whether something failed.
pub(crate) fn run(args: &DiagnoseArgs, out: &mut dyn Write, notes: &mut dyn Write) -> Result<bool, DiagnoseError> {
    let found = diagnose(&args.paths);
    if found.streams == 0 {
        let why = found
            .problems
            .first()
            .cloned()
            .unwrap_or_else(|| "no path was given".to_owned());
        return Err(DiagnoseError::NothingReadable(why));
    }
    for problem in &found.problems {
        writeln!(notes, "skipped: {problem}")?;
    }
    print::print(&found, args.format, out)?;
    Ok(found.cases.iter().any(OfflineCase::is_failure))
}

/// Reads the paths and concludes.
pub(crate) fn diagnose(paths: &[PathBuf]) -> Diagnoses {
    let mut found = Diagnoses::default();
    for path in paths {
        let mut streams = Vec::new();
        for file in files::walk(path, &mut found.problems) {
            if corpus::is_corpus(&file) {
                corpus::diagnose(&file, &mut found);
            } else if let Some(stream) = reading::read_file(path, &file, &mut found.problems) {
                found.streams += 1;
                streams.push(stream);
            }
        }
        for incident in incident::incidents(streams) {
            if let Some(case) = verdicts::conclude(incident) {
                verdicts::add(&mut found.cases, case);
            }
        }
    }
    found
}
