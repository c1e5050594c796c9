//! `rankguard diagnose`: the words of the command line, handed to the part that reads logs.

use std::io::{self, Write};

use rankguard_model::NodeId;

use crate::args::{DiagnoseArgs, Format};
use crate::error::CliError;
use crate::exit::Exit;
use crate::{diagnose, out};

pub(super) fn run(args: DiagnoseArgs) -> Result<Exit, CliError> {
    let format = match args.format.format {
        Format::Table => diagnose::Format::Table,
        Format::Json => diagnose::Format::Json,
        Format::Jsonl => diagnose::Format::Jsonl,
        Format::Csv => {
            return Err(CliError::usage(
                "a diagnosis is a tree and does not fit into csv",
                "--format json or jsonl gives all of it",
            ));
        }
    };
    let hint = if args.flight_recorder.is_some() {
        "name the folder that TORCH_NCCL_DEBUG_INFO_TEMP_FILE points into, with one dump a rank"
    } else if args.timings.is_some() {
        "give Parquet, CSV or JSON lines of operations, or of rank, step, duration_s"
    } else {
        "name files or folders of logs: plain, .gz or .zst"
    };
    let nothing = |problem| CliError::failure("nothing could be diagnosed", hint).because(problem);
    let found = if let Some(folder) = &args.flight_recorder {
        diagnose::dumps::run(folder, args.world, format, &mut Data, &mut Notes)
    } else if let Some(file) = &args.timings {
        diagnose::timings::run(file, args.meta.as_deref(), format, &mut Data, &mut Notes)
    } else {
        diagnose::run(&logs(args, format), &mut Data, &mut Notes)
    };
    Ok(if found.map_err(nothing)? {
        Exit::Finding
    } else {
        Exit::Fine
    })
}

fn logs(args: DiagnoseArgs, format: diagnose::Format) -> diagnose::DiagnoseArgs {
    diagnose::DiagnoseArgs {
        paths: args.paths,
        healthy: args.healthy,
        clocks: args
            .clock_offset
            .into_iter()
            .map(|(node, seconds)| (NodeId(node), (seconds * 1e9) as i64))
            .collect(),
        format,
    }
}

/// Standard output as something to write to.
struct Data;

impl Write for Data {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        out::bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard error as something to write to.
struct Notes;

impl Write for Notes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
