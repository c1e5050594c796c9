//! `rankguard diagnose`: diagnoses a failure from logs, flight-recorder dumps or timings, without a controller.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use rankguard_console::catalogue::CatalogueArgs;
use rankguard_console::waiting::WorkNote;
use rankguard_model::{NodeId, printable, printable_lines, with_causes};

use crate::args::{CommonArgs, DocumentFormat, DocumentFormatArgs, LimitArgs};
use crate::error::CliError;
use crate::exit::CommandExit;
use crate::second_reader::AskedReader;
use crate::{diagnose, out};

#[derive(Debug, Clone, Args)]
pub(crate) struct DiagnoseArgs {
    /// Log files and folders: kernel, rank, launcher or scheduler, plain, .gz or .zst; - for standard input; files of a
    /// folder are read together, as one job
    #[arg(required_unless_present_any = ["flight_recorder", "timings"], value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Instead of logs: a folder of NCCL flight-recorder dumps, one per rank; reports which ranks wait for which
    #[arg(long, value_name = "DIR", conflicts_with_all = ["paths", "timings", "healthy", "clock_offset", "catalogue"])]
    pub(crate) flight_recorder: Option<PathBuf>,
    /// Number of ranks of the job, if some left no dump
    #[arg(long, value_name = "RANKS", requires = "flight_recorder", conflicts_with_all = ["paths", "timings"])]
    pub(crate) world: Option<u32>,
    /// Instead of logs: timings of operations (Parquet, CSV or JSON lines) or of steps; reports what slows the job down
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "healthy", "clock_offset", "catalogue"])]
    pub(crate) timings: Option<PathBuf>,
    /// Sizes of the timed job: `key: value` lines such as `dp_size: 4`
    #[arg(long, value_name = "FILE", requires = "timings", conflicts_with_all = ["paths", "flight_recorder"])]
    pub(crate) meta: Option<PathBuf>,
    /// Logs of a successful run, for comparison; differences in the failing logs count as evidence; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) healthy: Vec<PathBuf>,
    /// Measured lead of a node's clock over the others, in seconds; may be repeated
    #[arg(long, value_name = "NODE=SECONDS", value_parser = clock_offset, allow_hyphen_values = true)]
    pub(crate) clock_offset: Vec<(String, f64)>,
    #[command(flatten)]
    pub(crate) catalogue: CatalogueArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Also ask the language model of the settings reader.url and reader.model about redacted lines; its answer is shown
    /// beside the verdict, and nothing depends on it
    #[arg(long, conflicts_with_all = ["flight_recorder", "timings"])]
    pub(crate) reader: bool,
    #[command(flatten)]
    pub(crate) format: DocumentFormatArgs,
}

/// Parses a clock offset such as `node-3=0.25`, in seconds; refuses an empty node and a number that is not finite.
fn clock_offset(text: &str) -> Result<(String, f64), String> {
    let wanted = "write NODE=SECONDS, as in node-3=0.25";
    let (node, seconds) = text.split_once('=').ok_or(wanted)?;
    let seconds: f64 = seconds
        .parse()
        .map_err(|_| format!("{seconds:?} is not a number; {wanted}"))?;
    if node.is_empty() || !seconds.is_finite() {
        return Err(wanted.to_owned());
    }
    Ok((node.to_owned(), seconds))
}

/// Diagnoses the named files and prints the result. Returns the finding exit if a failure was found, and an error if
/// the input cannot be read.
pub(crate) fn run(args: DiagnoseArgs, common: &CommonArgs) -> Result<CommandExit, CliError> {
    let format = match args.format.format {
        DocumentFormat::Table => diagnose::Format::Table,
        DocumentFormat::Json => diagnose::Format::Json,
        DocumentFormat::Jsonl => diagnose::Format::Jsonl,
    };
    let hint = if args.flight_recorder.is_some() {
        "name the folder of TORCH_NCCL_DEBUG_INFO_TEMP_FILE, with one dump per rank"
    } else if args.timings.is_some() {
        "expected Parquet, CSV or JSON lines of operations, or of rank, step, duration_s"
    } else {
        "name log files or folders: plain, .gz or .zst"
    };
    let nothing = |problem: diagnose::DiagnoseError| {
        let hint = match &problem {
            diagnose::DiagnoseError::Incomplete { .. } => {
                "the lines `skipped` give the reasons; raise --read-limit or --time-limit, or use a complete copy"
            }
            diagnose::DiagnoseError::UnreadPaths { .. } => {
                "the lines `skipped` give the reasons; name readable logs only"
            }
            _ => hint,
        };
        let why = with_causes(&problem);
        CliError::failure("cannot diagnose", hint).because(printable(&why).into_owned())
    };
    let mut stdout = StdoutWriter {
        is_page: format == diagnose::Format::Table,
        line: Vec::new(),
    };
    let work = WorkNote::start("reading");
    let found = if let Some(folder) = &args.flight_recorder {
        diagnose::dumps::run(folder, args.world, format, &mut stdout, &mut StderrWriter)
    } else if let Some(file) = &args.timings {
        diagnose::timings::run(file, args.meta.as_deref(), format, &mut stdout, &mut StderrWriter)
    } else {
        diagnose::run(&logs(args, format, common)?, &mut stdout, &mut StderrWriter)
    };
    drop(work);
    Ok(if found.map_err(nothing)? {
        CommandExit::Finding
    } else {
        CommandExit::Fine
    })
}

/// Converts the options for logs; clock offsets become nanoseconds. Fails if a catalogue file is invalid.
fn logs(args: DiagnoseArgs, format: diagnose::Format, common: &CommonArgs) -> Result<diagnose::DiagnoseArgs, CliError> {
    let reader = args.reader.then(|| AskedReader::configured(common)).transpose()?;
    Ok(diagnose::DiagnoseArgs {
        reader,
        paths: args.paths,
        healthy: args.healthy,
        clocks: args
            .clock_offset
            .into_iter()
            .map(|(node, seconds)| (NodeId::from(node), (seconds * 1e9) as i64))
            .collect(),
        rules: args.catalogue.read()?.into(),
        limits: args.limits.limits(),
        format,
    })
}

/// [`Write`] adapter of standard output. Buffers the bytes after the last line end until the line is complete, so that
/// wrapping and escaping apply to whole lines.
struct StdoutWriter {
    /// True for text for people, which is wrapped to the width of the terminal.
    is_page: bool,
    /// Bytes of the incomplete last line.
    line: Vec<u8>,
}

impl Write for StdoutWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.line.split_off(end + 1);
            let lines = std::mem::replace(&mut self.line, rest);
            let text = String::from_utf8_lossy(&lines);
            if self.is_page {
                out::page(&text);
            } else {
                out::text(&text);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// [`Write`] adapter of standard error. Escapes characters that control a terminal.
struct StderrWriter;

impl Write for StderrWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        io::stderr().write_all(printable_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
