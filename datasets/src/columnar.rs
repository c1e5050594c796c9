//! Reading and writing of Parquet: plain doubles and UTF-8 strings, which every reader of the format supports.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::types::Type;
use polars::prelude::{DataFrame, DataType};

use crate::panic_guard::quietly;
use crate::time;

/// Metadata key for data stored beside the rows.
const BESIDE: &str = "rankguard";
/// Number of rows in a row group.
const GROUP: usize = 1 << 17;

/// Converts panics of the Parquet library, which it raises for some damaged files, to errors.
fn guarded<T>(read: impl FnOnce() -> Result<T>) -> io::Result<T> {
    let wrong = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    // The closure's state is dropped with the file and not used again.
    match quietly(read) {
        Ok(read) => read.map_err(|problem| wrong(problem.to_string())),
        Err(_) => Err(wrong("the file is damaged".to_owned())),
    }
}

/// Returns the column names and the number of rows of a Parquet file.
pub(crate) fn about(path: &Path) -> Option<(Vec<String>, u64)> {
    let file = rankguard_files::open_regular(path).ok()?;
    let about = guarded(|| {
        let reader = SerializedFileReader::new(file)?;
        let about = reader.metadata().file_metadata();
        let names = about.schema().get_fields().iter().map(|field| field.name().to_owned());
        Ok((names.collect(), u64::try_from(about.num_rows()).unwrap_or(0)))
    });
    about.ok()
}

/// Properties of a file that are read before its rows.
pub(crate) struct FileDetails {
    /// True for each column of numbers.
    pub(crate) numbers: Vec<bool>,
    /// Data that this program stored beside the rows.
    pub(crate) beside: Option<String>,
}

pub(crate) fn details(path: &Path) -> Option<FileDetails> {
    let file = rankguard_files::open_regular(path).ok()?;
    let details = guarded(|| {
        let reader = SerializedFileReader::new(file)?;
        let about = reader.metadata().file_metadata();
        let is_number = |column: &Arc<Type>| {
            let held = column.is_primitive().then(|| column.get_physical_type());
            !matches!(
                held,
                None | Some(Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY | Physical::BOOLEAN)
            )
        };
        let mut noted = about.key_value_metadata().into_iter().flatten();
        Ok(FileDetails {
            numbers: about.schema().get_fields().iter().map(is_number).collect(),
            beside: noted
                .find(|note| note.key == BESIDE)
                .and_then(|note| note.value.clone()),
        })
    });
    details.ok()
}

/// Reads every row as texts in column order, null as an empty text; times as ISO 8601, with a `Z` if the file marks
/// them as instants.
pub(crate) fn rows(path: &Path, mut row: impl FnMut(Vec<String>)) -> io::Result<()> {
    let file = rankguard_files::open_regular(path)?;
    let reader = guarded(|| SerializedFileReader::new(file))?;
    let moments: Vec<Option<TimeEncoding>> = guarded(|| {
        let schema = reader.metadata().file_metadata().schema();
        Ok(schema
            .get_fields()
            .iter()
            .map(|field| TimeEncoding::of(field))
            .collect())
    })?;
    let mut found = guarded(|| reader.get_row_iter(None))?;
    while let Some(next) = guarded(|| found.next().transpose())? {
        let fields = next.get_column_iter().zip(&moments);
        row(fields
            .map(|((_, field), moments)| text(field, moments.as_ref()))
            .collect());
    }
    Ok(())
}

/// Encoding of times in a column.
struct TimeEncoding {
    /// Nanoseconds of one count.
    unit: i128,
    /// True for instants; false for wall clock times.
    instants: bool,
}

impl TimeEncoding {
    fn of(column: &Type) -> Option<Self> {
        let about = column.get_basic_info();
        let instants = match about.logical_type_ref() {
            Some(LogicalType::Timestamp(about)) => about.is_adjusted_to_u_t_c,
            _ => true,
        };
        let unit = match (about.logical_type_ref(), about.converted_type()) {
            (Some(LogicalType::Timestamp(about)), _) if about.unit == TimeUnit::NANOS => 1,
            (_, ConvertedType::TIMESTAMP_MICROS) => 1_000,
            (_, ConvertedType::TIMESTAMP_MILLIS) => 1_000_000,
            // 96-bit times of older writers, which the library returns as milliseconds.
            _ if column.is_primitive() && column.get_physical_type() == Physical::INT96 => 1_000_000,
            _ => return None,
        };
        Some(Self { unit, instants })
    }

    fn text(&self, count: i64) -> String {
        let written = time::written(i128::from(count) * self.unit, self.instants);
        written.unwrap_or_else(|| count.to_string())
    }
}

fn text(field: &Field, moments: Option<&TimeEncoding>) -> String {
    match (field, moments) {
        (Field::Null, _) => String::new(),
        (Field::Str(text), _) => text.clone(),
        (Field::Bytes(bytes), _) => String::from_utf8_lossy(bytes.data()).into_owned(),
        (Field::TimestampMillis(count) | Field::TimestampMicros(count) | Field::Long(count), Some(moments)) => {
            moments.text(*count)
        }
        (other, _) => other.to_string(),
    }
}

/// Writes a frame of number and text columns, and the data beside its rows.
pub(crate) fn write<W: Write + Send>(frame: &DataFrame, beside: String, sink: W) -> std::result::Result<(), String> {
    try_write(frame, beside, sink).map_err(|problem| problem.to_string())
}

fn try_write<W: Write + Send>(frame: &DataFrame, beside: String, sink: W) -> Result<()> {
    let mut fields = Vec::new();
    for column in frame.columns() {
        let name = column.name().as_str();
        let field = if *column.dtype() == DataType::String {
            Type::primitive_type_builder(name, Physical::BYTE_ARRAY).with_logical_type(Some(LogicalType::String))
        } else {
            Type::primitive_type_builder(name, Physical::DOUBLE)
        };
        fields.push(Arc::new(field.with_repetition(Repetition::OPTIONAL).build()?));
    }
    let schema = Arc::new(Type::group_type_builder("table").with_fields(fields).build()?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(vec![KeyValue::new(BESIDE.to_owned(), beside)]))
        .build();
    let mut writer = SerializedFileWriter::new(sink, schema, Arc::new(properties))?;
    let mut from = 0;
    while from < frame.height() {
        let part = frame.slice(from as i64, GROUP);
        let mut group = writer.next_row_group()?;
        for column in part.columns() {
            let Some(mut target) = group.next_column()? else {
                break;
            };
            if let Ok(texts) = column.str() {
                let levels: Vec<i16> = texts.iter().map(|text| i16::from(text.is_some())).collect();
                let values: Vec<ByteArray> = texts.iter().flatten().map(ByteArray::from).collect();
                target
                    .typed::<ByteArrayType>()
                    .write_batch(&values, Some(&levels), None)?;
            } else if let Ok(numbers) = column.f64() {
                let levels: Vec<i16> = numbers.iter().map(|number| i16::from(number.is_some())).collect();
                let values: Vec<f64> = numbers.iter().flatten().collect();
                target.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
            }
            target.close()?;
        }
        group.close()?;
        from += GROUP;
    }
    writer.close()?;
    Ok(())
}
