//! Report on a file of timings of operations or steps: the source of a slowdown.

use std::io::{self, ErrorKind, Read as _, Write};
use std::path::Path;

use rankguard_files::{open_regular, read_text};
use rankguard_model::printable;
use rankguard_stragglers::{CauseKind, analyse, read_meta, read_timings};

use super::{DiagnoseError, Format, print};

/// Maximum size of a file of timings, in bytes: it is held in memory.
const TIMINGS_BYTES: u64 = 4 << 30;
/// Maximum size of a file of a job's sizes, in bytes.
const META_BYTES: u64 = 1 << 20;

/// Reads a regular file of timings.
fn whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(TIMINGS_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TIMINGS_BYTES {
        let what = format!("above the limit of {TIMINGS_BYTES} bytes; select the steps of interest");
        return Err(io::Error::new(ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Reads the timings and prints the report. Returns true if a slowdown was found.
pub(crate) fn run(
    path: &Path,
    meta: Option<&Path>,
    format: Format,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<bool, DiagnoseError> {
    let unreadable =
        |path: &Path, error: io::Error| DiagnoseError::NothingReadable(format!("{}: {error}", path.display()));
    let bytes = whole(path).map_err(|error| unreadable(path, error))?;
    let (timings, problems) = read_timings(&path.display().to_string(), &bytes);
    let meta = match meta {
        None => None,
        Some(path) => {
            let text = read_text(path, META_BYTES).map_err(|error| unreadable(path, error))?;
            let (meta, problems) = read_meta(&path.display().to_string(), &text);
            for line in problems.lines() {
                writeln!(notes, "skipped: {}", printable(&line))?;
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
    // The report for people already contains them.
    for line in report.problems.iter().filter(|_| format != Format::Table) {
        writeln!(notes, "skipped: {}", printable(line))?;
    }
    match format {
        Format::Table => report
            .lines()
            .iter()
            .try_for_each(|line| writeln!(out, "{}", printable(line)))?,
        Format::Json => {
            print::json_pretty(&report, out)?;
        }
        Format::Jsonl => {
            print::json_line(&report, out)?;
        }
    }
    Ok(!matches!(report.cause, CauseKind::None | CauseKind::Unknown))
}
