//! Reader of Parquet files: flat columns of numbers and text only.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::problem::{InputProblem, ProblemList};
use crate::table::{ColumnTable, ROWS_MAX, TableCell, is_known};

/// First bytes of every Parquet file.
pub(crate) const MAGIC: &[u8] = b"PAR1";

/// Maximum unpacked size of a column in a row group, 512 MiB; larger ones are left out and reported.
const COLUMN_BYTES_MAX: i64 = 1 << 29;

/// Reads the known columns of all row groups, up to [`ROWS_MAX`] rows. If the file is not valid Parquet, adds a problem
/// and returns an empty table.
pub(crate) fn read(label: &str, bytes: &[u8], problems: &mut ProblemList) -> ColumnTable {
    let empty = || ColumnTable {
        label: label.to_owned(),
        unit: "row",
        ..ColumnTable::default()
    };
    let bytes = Bytes::copy_from_slice(bytes);
    let mut found = ProblemList::default();
    // The Parquet library panics on some damaged files. The panic becomes a problem; it leaves no inconsistent state,
    // because the table is discarded.
    let read = catch_unwind(AssertUnwindSafe(|| {
        let mut table = empty();
        fill(&mut table, bytes, &mut found).map(|()| table)
    }));
    problems.extend(&found);
    let why = match read {
        Ok(Ok(table)) => return table,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "its pages contradict its header".to_owned(),
    };
    problems.note(
        label,
        format!("cannot be read as Parquet: {why}; write the file anew or give CSV or JSON lines"),
    );
    empty()
}

/// Appends the rows of all row groups to the table.
fn fill(table: &mut ColumnTable, bytes: Bytes, problems: &mut ProblemList) -> Result<(), ParquetError> {
    let file = SerializedFileReader::new(bytes)?;
    let schema = file.metadata().file_metadata().schema_descr_ptr();
    for group in 0..file.num_row_groups() {
        let rows = usize::try_from(file.metadata().row_group(group).num_rows()).unwrap_or(0);
        let first = table.places.len();
        if first.saturating_add(rows) > ROWS_MAX {
            problems.note(
                &table.label,
                format!("has more than {ROWS_MAX} rows; those from row {first} on are left out"),
            );
            break;
        }
        let reader = file.get_row_group(group)?;
        let mut columns = Vec::new();
        for (index, column) in schema.columns().iter().enumerate() {
            let name = column.path().string();
            if !is_known(&name) {
                continue;
            }
            let size = reader.metadata().column(index).uncompressed_size();
            if column.max_rep_level() > 0 || column.max_def_level() > 1 || size > COLUMN_BYTES_MAX {
                let what = "is nested or too large; give it as a flat column of numbers or text".to_owned();
                problems.add(|| InputProblem {
                    place: table.label.clone(),
                    field: name.clone(),
                    what,
                });
                continue;
            }
            if matches!(
                reader.metadata().column(index).column_type(),
                parquet::basic::Type::FLOAT
            ) {
                table.narrow.push(name.clone());
            }
            let optional = column.max_def_level() > 0;
            let cells = cells(table, reader.get_column_reader(index)?, rows, optional)?;
            if cells.len() != rows {
                return Err(ParquetError::General(format!(
                    "column {name} has {} of {rows} rows",
                    cells.len()
                )));
            }
            columns.push((name, cells));
        }
        table.places.extend((first..first + rows).map(|row| row as u32 + 1));
        for (name, cells) in columns {
            let column = table.columns.entry(name).or_default();
            column.resize(first, TableCell::Absent);
            column.extend(cells);
        }
    }
    Ok(())
}

/// Reads one column of a row group; values of other types than numbers and text are absent cells.
fn cells(
    table: &mut ColumnTable,
    reader: ColumnReader,
    rows: usize,
    optional: bool,
) -> Result<Vec<TableCell>, ParquetError> {
    match reader {
        ColumnReader::Int32ColumnReader(reader) => values(reader, rows, optional, |v| TableCell::Number(f64::from(*v))),
        ColumnReader::Int64ColumnReader(reader) => values(reader, rows, optional, |v| TableCell::Number(*v as f64)),
        ColumnReader::FloatColumnReader(reader) => values(reader, rows, optional, |v| TableCell::Number(f64::from(*v))),
        ColumnReader::DoubleColumnReader(reader) => values(reader, rows, optional, |v| TableCell::Number(*v)),
        ColumnReader::ByteArrayColumnReader(reader) => values(reader, rows, optional, |v: &ByteArray| {
            TableCell::Word(table.words.id(&String::from_utf8_lossy(v.data())))
        }),
        _ => Ok(vec![TableCell::Absent; rows]),
    }
}

/// Reads up to `rows` values of a column in batches; a null is an absent cell. Returns fewer if the column ends.
fn values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    optional: bool,
    mut cell: impl FnMut(&T::T) -> TableCell,
) -> Result<Vec<TableCell>, ParquetError> {
    // The vectors grow with the values that were read, because a damaged file may state any number of rows.
    let mut levels = Vec::new();
    let mut found = Vec::new();
    let mut cells = Vec::new();
    while cells.len() < rows {
        levels.clear();
        found.clear();
        let batch = (rows - cells.len()).min(1 << 16);
        let (read, _, _) = reader.read_records(batch, optional.then_some(&mut levels), None, &mut found)?;
        if read == 0 {
            break;
        }
        let mut values = found.iter();
        let here = |index: usize| !optional || levels.get(index).is_some_and(|level| *level > 0);
        cells.extend((0..read).map(|index| {
            if here(index) {
                values.next().map_or(TableCell::Absent, &mut cell)
            } else {
                TableCell::Absent
            }
        }));
    }
    Ok(cells)
}
