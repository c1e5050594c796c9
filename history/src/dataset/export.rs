//! `dataset export`: writes one table of a data set, or its events as evidence, to a file or to
//! standard output.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use rankguard_console::error::CliError;
use rankguard_console::exit::CommandExit;
use rankguard_console::out;
use rankguard_datasets::{Error, OutputFormat, TableKind};

use super::{DatasetInput, TableFormat, lost};

/// Writes the events as evidence for a replay.
pub(super) fn evidence(input: &DatasetInput, file: Option<&Path>) -> Result<CommandExit, CliError> {
    let data = input.open()?;
    let cannot = |problem: Error| {
        CliError::failure(
            "cannot write the data as evidence",
            "evidence requires a table of events or failures; `rankguard dataset check PATH` lists the tables",
        )
        .because(problem)
    };
    let written = match file {
        Some(path) => data.evidence(BufWriter::new(create(path)?)),
        None => data.evidence(StdoutWriter),
    };
    let written = written.map_err(cannot)?;
    out::note(&format!(
        "{} evidence records; {} rows without time or text, or of other kinds, are omitted",
        written.pieces, written.left_out
    ));
    Ok(lost(&data))
}

fn create(path: &Path) -> Result<File, CliError> {
    File::create(path).map_err(|problem| {
        CliError::failure(
            format!("cannot create {}", path.display()),
            "check that the folder exists",
        )
        .because(problem)
    })
}

/// Writes one table.
pub(super) fn table(
    input: &DatasetInput,
    table: &str,
    shape: TableFormat,
    file: Option<&Path>,
) -> Result<CommandExit, CliError> {
    let names = || TableKind::ALL.map(TableKind::name).join(", ");
    let Some(table) = TableKind::named(table) else {
        return Err(CliError::usage(
            format!("there is no table {table}"),
            format!("tables: {}", names()),
        ));
    };
    let shape = match shape {
        TableFormat::Csv => OutputFormat::Csv,
        TableFormat::Jsonl => OutputFormat::Jsonl,
        TableFormat::Parquet => OutputFormat::Parquet,
    };
    let data = input.open()?;
    let cannot = |problem: Error| {
        CliError::failure(
            format!("cannot write the table {}", table.name()),
            "`rankguard dataset check PATH` lists the tables of a data set",
        )
        .because(problem)
    };
    match file {
        Some(path) => {
            data.export(table, shape, BufWriter::new(create(path)?))
                .map_err(cannot)?;
        }
        None => data.export(table, shape, StdoutWriter).map_err(cannot)?,
    }
    Ok(lost(&data))
}

/// Writer to standard output through the programs' common output function.
struct StdoutWriter;

impl Write for StdoutWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        out::bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
