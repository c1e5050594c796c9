//! `rankguard diagnose`: logs that nobody here wrote, read offline through the same triage and the same engines as live
//! evidence.
//!
//! Files become streams here (`files`, `logs`), or cases whose streams somebody has put together (`records`); what is
//! concluded from them is `rankguard-offline`'s; `print` prints. What cannot be read is a problem line, never an error: one
//! damaged file must not hide what the others tell (RG-11).
//!
//! Work is bounded ([`ReadBudget`]): bytes of text and time, for each file and for all; the rest of a file beyond a limit is a
//! problem line that names the limit. Pipes, sockets, devices and files of the kernel are refused by name.
//!
//! Absent: archives are not unpacked.

pub(crate) mod dumps;
mod files;
pub(crate) mod logs;
mod novelties;
mod print;
pub(crate) mod records;
pub(crate) mod timings;

#[cfg(test)]
mod evaluation;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use rankguard_faults::{Catalogue, Matcher};
use rankguard_files::{ReadBudget, ReadLimits};
use rankguard_model::printable;
use rankguard_templates::Novelty;
use thiserror::Error;

use rankguard_offline::{OfflineCase, add, conclude, incidents, join};

/// What was asked for.
#[derive(Debug, Clone)]
pub(crate) struct DiagnoseArgs {
    /// Files and folders.
    pub(crate) paths: Vec<PathBuf>,
    /// Logs of runs that went well.
    pub(crate) healthy: Vec<PathBuf>,
    /// How far the clocks of nodes are ahead of the reference.
    pub(crate) clocks: logs::Clocks,
    /// What they are judged by.
    pub(crate) rules: Rules,
    /// Most that is read, and for how long.
    pub(crate) limits: ReadLimits,
    /// How to print.
    pub(crate) format: Format,
}

/// What logs are read and judged by: classes, and the signatures that know them.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) catalogue: Cow<'static, Catalogue>,
    pub(crate) matcher: Arc<Matcher>,
}

impl From<Cow<'static, Catalogue>> for Rules {
    fn from(catalogue: Cow<'static, Catalogue>) -> Self {
        let matcher = match &catalogue {
            Cow::Borrowed(_) => Matcher::builtin(),
            Cow::Owned(added) => Arc::new(Matcher::new(added)),
        };
        Self { catalogue, matcher }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Cow::Borrowed(Catalogue::builtin()).into()
    }
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
    #[error("nothing readable: {0}")]
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
    /// What the logs say that those of healthy runs do not, where such were given.
    pub(crate) novelties: Option<Vec<Novelty>>,
    /// What could not be read, and why.
    pub(crate) problems: Vec<String>,
    /// Streams that were read.
    pub(crate) streams: usize,
}

/// Reads the paths, prints the cases to `out` and the problems to `notes`. Says whether something failed.
pub(crate) fn run(args: &DiagnoseArgs, out: &mut dyn Write, notes: &mut dyn Write) -> Result<bool, DiagnoseError> {
    let budget = ReadBudget::begin(args.limits);
    let mut found = diagnose(&args.paths, &args.clocks, &args.rules, &budget);
    if !args.healthy.is_empty() {
        found.novelties = Some(novelties::find(
            &args.paths,
            &args.healthy,
            &budget,
            &mut found.problems,
        ));
    }
    if found.streams == 0 {
        let why = found
            .problems
            .first()
            .cloned()
            .unwrap_or_else(|| "no path was given".to_owned());
        return Err(DiagnoseError::NothingReadable(why));
    }
    for problem in &found.problems {
        writeln!(notes, "skipped: {}", printable(problem))?;
    }
    print::print(&found, args.format, out)?;
    Ok(found.cases.iter().any(OfflineCase::is_failure))
}

/// Reads the paths and concludes.
pub(crate) fn diagnose(paths: &[PathBuf], clocks: &logs::Clocks, rules: &Rules, budget: &ReadBudget) -> Diagnoses {
    let mut found = Diagnoses::default();
    for path in paths {
        let (mut streams, mut dumped) = (Vec::new(), Vec::new());
        let files = files::walk(path, &mut found.problems);
        let newest = logs::newest_moment(&files, budget);
        for file in files {
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
            } else if let Some(dump) = dumps::found(path, &file) {
                found.streams += 1;
                match dump {
                    Ok(dump) => dumped.push(dump),
                    Err(problem) => found.problems.push(problem),
                }
            } else if let Some(stream) = logs::read(path, &file, clocks, newest, rules, budget, &mut found.problems) {
                found.streams += 1;
                streams.push(stream);
            }
        }
        let mut incidents = incidents(streams);
        join(&mut incidents, dumped);
        let concluded = incidents
            .iter()
            .filter_map(|incident| conclude(incident, &rules.catalogue));
        for case in concluded {
            add(&mut found.cases, case);
        }
    }
    found
}
