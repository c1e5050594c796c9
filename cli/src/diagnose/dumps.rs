//! Report on a folder of NCCL flight-recorder dumps, one per rank.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rankguard_files::open_regular;
use rankguard_flight::{AnalysisReport, DumpLimits, RecorderDump, analyze, rank_of_file_name};
use rankguard_model::{Rank, printable};
use rankguard_offline::{NamedDump, NodeNames};
use serde::Serialize;

use super::{DiagnoseError, Format, print};

/// Maximum number of dumps: more than the ranks of any job.
const DUMPS: usize = 1 << 17;

/// The report with the files that could not be read.
#[derive(Debug, Serialize)]
struct DumpReport {
    #[serde(flatten)]
    report: AnalysisReport,
    /// Files that are no dumps, with the reason.
    skipped: Vec<String>,
}

/// Reads all dumps of a folder (or one file) and prints the report. Returns true if a group has a problem.
pub(crate) fn run(
    path: &Path,
    world: Option<u32>,
    format: Format,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<bool, DiagnoseError> {
    let mut dumps = Vec::new();
    let mut skipped = Vec::new();
    let mut odd = Vec::new();
    for file in files(path)? {
        let name = file.display().to_string();
        let rank = rank_of_file_name(&name);
        match read(&file, rank) {
            Ok((dump, problems)) => {
                dumps.push(dump);
                odd.extend(problems.into_iter().map(|problem| format!("{name}: {problem}")));
            }
            // A file without a rank in its name is a note or a log, which deserves a single line.
            Err(why) => skipped.push(format!("{name}: {why}")),
        }
    }
    if dumps.is_empty() {
        let why = skipped
            .first()
            .cloned()
            .unwrap_or_else(|| format!("{}: no files", path.display()));
        return Err(DiagnoseError::NothingReadable(why));
    }
    for line in skipped.iter().chain(&odd) {
        writeln!(notes, "skipped: {}", printable(line))?;
    }
    let report = analyze(&dumps, world);
    let trouble = !report.groups.is_empty() || !report.culprits.is_empty();
    match format {
        Format::Table => report
            .lines()
            .iter()
            .try_for_each(|line| writeln!(out, "{}", printable(line)))?,
        Format::Json => {
            print::json_pretty(&DumpReport { report, skipped }, out)?;
        }
        Format::Jsonl => {
            print::json_line(&DumpReport { report, skipped }, out)?;
        }
    }
    Ok(trouble)
}

/// Bytes at the start of a JSON dump that contain its part names.
const HEAD: usize = 4 << 10;

/// Reads a dump among logs: a file with a rank at the end of its name that begins as a pickle or as the recorder's
/// JSON. Returns `None` for other files.
pub(super) fn found(root: &Path, file: &Path, nodes: &NodeNames) -> Option<Result<NamedDump, String>> {
    let name = file.display().to_string();
    let rank = rank_of_file_name(&name)?;
    let mut head = Vec::new();
    let opened = open_regular(file).ok()?;
    opened.take(HEAD as u64).read_to_end(&mut head).ok()?;
    let holds = |part: &[u8]| head.windows(part.len()).any(|window| window == part);
    let dump = match head.first()? {
        0x80 => holds(b"pg_config") || holds(b"entries"),
        b'{' => holds(b"\"pg_config\"") || holds(b"\"entries\"") && holds(b"\"version\""),
        _ => false,
    };
    dump.then(|| {
        let (dump, _) = read(file, Some(rank)).map_err(|why| format!("{name}: {why}"))?;
        Ok(NamedDump {
            name,
            rank: Rank(rank),
            node: nodes.node(root, file),
            dump,
        })
    })
}

fn files(path: &Path) -> Result<Vec<PathBuf>, DiagnoseError> {
    let unreadable = |error: io::Error| DiagnoseError::NothingReadable(format!("{}: {error}", path.display()));
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)?.take(DUMPS) {
        let file = entry.map_err(unreadable)?.path();
        if file.is_file() {
            files.push(file);
        }
    }
    // By rank, then by name: the order must not depend on the file system.
    files.sort_by_key(|file| (rank_of_file_name(&file.display().to_string()), file.clone()));
    Ok(files)
}

fn read(file: &Path, rank: Option<u32>) -> Result<(RecorderDump, Vec<String>), String> {
    let limit = DumpLimits::default().bytes as u64;
    let mut bytes = Vec::new();
    let opened = open_regular(file).map_err(|error| error.to_string())?;
    let read = opened.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > limit {
        return Err(format!("above the limit of {limit} bytes for a dump"));
    }
    let (dump, problems) = RecorderDump::read(rank, &bytes).map_err(|error| error.to_string())?;
    Ok((
        dump,
        problems
            .iter()
            .map(|odd| format!("{}: {}", odd.place, odd.what))
            .collect(),
    ))
}
