//! Timings of operations or steps: a file of them as one report of who slows the job down.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use rankguard_stragglers::{CauseKind, analyse, read_meta, read_timings};

use super::{DiagnoseError, Format};

/// Reads the timings, prints the report, and says whether something slows the job down.
pub(crate) fn run(
    path: &Path,
    meta: Option<&Path>,
    format: Format,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<bool, DiagnoseError> {
    let unreadable =
        |path: &Path, error: io::Error| DiagnoseError::NothingReadable(format!("{}: {error}", path.display()));
    let bytes = fs::read(path).map_err(|error| unreadable(path, error))?;
    let (timings, problems) = read_timings(&path.display().to_string(), &bytes);
    let meta = match meta {
        None => None,
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
            let (meta, problems) = read_meta(&path.display().to_string(), &text);
            for line in problems.lines() {
                writeln!(notes, "skipped: {line}")?;
            }
            Some(meta)
        }
    };
    let name = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    let report = analyse(&name, &timings, meta.as_ref(), problems);
    if report.steps == 0 {
        let first = report.problems.first().or(report.reasoning.first());
        let why = first.cloned().unwrap_or_else(|| "no rows".to_owned());
        return Err(DiagnoseError::NothingReadable(why));
    }
    // The note for people holds them already.
    for line in report.problems.iter().filter(|_| format != Format::Table) {
        writeln!(notes, "skipped: {line}")?;
    }
    match format {
        Format::Table => report.lines().iter().try_for_each(|line| writeln!(out, "{line}"))?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &report).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Format::Jsonl => {
            serde_json::to_writer(&mut *out, &report).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    }
    Ok(!matches!(report.cause, CauseKind::None | CauseKind::Unknown))
}
