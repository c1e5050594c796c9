//! Reader of files in an unknown format, by a [`ColumnMapping`].

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::accounting::check_span;
use crate::columnar;
use crate::csv::DelimitedFile;
use crate::dataset::{Dataset, assemble};
use crate::error::Error;
use crate::head::{FileHead, heads};
use crate::input::{InputFile, unpacked};
use crate::load::{LoadState, cut, is_null};
use crate::mapping::{ColumnConversion, ColumnMapping, EXAMPLE, MappedColumn, MappingFormat};
use crate::parallel;
use crate::provenance::Population;
use crate::reading;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::words;

/// Source without recognition: the owner of the file describes it.
pub(crate) const SOURCE: SourceFormat = SourceFormat {
    name: "mapped",
    title: "A file of one's own, read by a mapping",
    licence: "one's own",
    citation: "one's own",
    home: "CSV, JSON lines or Parquet, with --mapping FILE beside it",
    clock: "as the mapping says: instants in Unix seconds; times without an offset lie in its zone",
    example: EXAMPLE,
    ..SourceFormat::PLAIN
};

/// Reads a folder's files, or one file, by a mapping file.
pub fn open_mapped(path: &Path, mapping: &Path) -> Result<Dataset, Error> {
    let text = fs::read_to_string(mapping).map_err(|source| Error::Read {
        path: mapping.to_owned(),
        source,
    })?;
    let mapping: ColumnMapping = text.parse().map_err(|what| Error::Mapping {
        path: mapping.to_owned(),
        what,
    })?;
    let mut load = LoadState::new(
        path,
        mapping.population.map(|count| Population {
            count,
            unit: "nodes",
            from: "the mapping",
        }),
    );
    let (found, more) = heads(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    for head in &found {
        reading::file(head, Some("mapped"), &mut load, |load| {
            read(head, &mapping, load);
            load.end();
        });
    }
    load.whole_folder(more);
    Ok(assemble(&SOURCE, load))
}

fn read(head: &FileHead, mapping: &ColumnMapping, load: &mut LoadState) {
    if let Some(problem) = &head.unreadable {
        return load.cut_short(problem);
    }
    if mapping.format == MappingFormat::Parquet {
        let mut rows = RowConverter::new(mapping);
        missing(&head.columns, mapping, load);
        let places = places(mapping, &head.columns);
        let mut number = 0;
        let ended = columnar::rows(&head.path, |fields| {
            number += 1;
            load.at(number);
            load.read_row();
            load.repeat(fields.join("\u{1f}"));
            rows.add(
                |column| places[column].and_then(|at| fields.get(at)).map_or("", String::as_str),
                load,
            );
        });
        match ended {
            Err(problem) if problem.to_string().contains("Disabled feature") => load.lose("unsupported", "", || {
                format!("{problem}: write the file again, packed with snappy or gzip or not at all")
            }),
            Err(problem) => load.cut_short(&problem),
            Ok(()) => {}
        }
        return;
    }
    let mut input = match unpacked(&head.path) {
        Ok(reader) => InputFile::new(reader),
        Err(problem) => return load.cut_short(&problem),
    };
    if mapping.format == MappingFormat::Csv {
        let Some(csv) = DelimitedFile::new(&mut input, mapping.delimiter, load) else {
            return;
        };
        let header = csv.header().to_vec();
        other_delimiter(&header, mapping, load);
        missing(&header, mapping, load);
        let places = places(mapping, &header);
        return parallel::read(&mut input, load, |input, load| {
            let mut csv = DelimitedFile::with_header(input, mapping.delimiter, header.clone());
            let mut rows = RowConverter::new(mapping);
            while csv.next(load) {
                rows.add(|column| places[column].map_or("", |at| csv.at(at)), load);
            }
        });
    }
    parallel::read(&mut input, load, |input, load| json_lines(input, mapping, load));
}

fn json_lines(input: &mut InputFile, mapping: &ColumnMapping, load: &mut LoadState) {
    let mut rows = RowConverter::new(mapping);
    while let Some(line) = input.line(load) {
        if line.trim().is_empty() {
            continue;
        }
        load.read_row();
        match serde_json::from_str::<BTreeMap<String, serde_json::Value>>(line) {
            Ok(object) => {
                load.repeat(line);
                let texts = mapping.columns.iter().map(|mapped| plain(object.get(&mapped.from)));
                let texts: Vec<String> = texts.collect();
                rows.add(|column| &texts[column], load);
            }
            Err(problem) => load.lose("bad-row", "", || format!("{problem}; passed over")),
        }
    }
}

/// Converts a JSON value to the text of a field.
fn plain(value: Option<&serde_json::Value>) -> String {
    match value {
        None | Some(serde_json::Value::Null) => String::new(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Reports columns that the mapping names and the file lacks.
fn missing(header: &[String], mapping: &ColumnMapping, load: &mut LoadState) {
    let names = mapping.columns.iter().map(|mapped| &mapped.from);
    for name in names.filter(|name| !header.contains(name)) {
        load.report_kept_row("columns", name, || {
            "the file has no such column; null in every row".to_owned()
        });
    }
}

/// Reports a header of one column that contains another delimiter.
fn other_delimiter(header: &[String], mapping: &ColumnMapping, load: &mut LoadState) {
    let [only] = header else {
        return;
    };
    let others = [",", ";", "\t", "|"]
        .into_iter()
        .filter(|other| *other != mapping.delimiter);
    if let Some(other) = others.into_iter().find(|other| only.contains(other)) {
        load.report_kept_row("delimiter", "", || {
            format!(
                "the header is one column, {:?}: say delimiter = {other:?} in the mapping",
                cut(only)
            )
        });
    }
}

/// Returns the index of each mapped column in a header.
fn places(mapping: &ColumnMapping, header: &[String]) -> Vec<Option<usize>> {
    let place = |name: &String| header.iter().position(|column| column == name);
    mapping.columns.iter().map(|mapped| place(&mapped.from)).collect()
}

/// Converter of a file's rows to the table.
struct RowConverter<'a> {
    mapping: &'a ColumnMapping,
    /// Numbers and times of the current row, by mapped column.
    numbers: Vec<Option<f64>>,
    /// Mapped columns that a row of this table requires.
    needed: Vec<usize>,
    /// Mapped columns for the start, the end and the length of a row.
    span: [Option<usize>; 3],
}

impl<'a> RowConverter<'a> {
    fn new(mapping: &'a ColumnMapping) -> Self {
        let place = |name: &&str| mapping.columns.iter().position(|mapped| mapped.column == **name);
        Self {
            mapping,
            numbers: vec![None; mapping.columns.len()],
            needed: mapping.table.needed().iter().filter_map(place).collect(),
            span: mapping.table.span().each_ref().map(place),
        }
    }

    /// Adds a row, given the text of each mapped column.
    fn add<'t>(&mut self, text: impl Fn(usize) -> &'t str, load: &mut LoadState) {
        let ColumnMapping { table, columns, .. } = self.mapping;
        let mut any = false;
        for (at, mapped) in columns.iter().enumerate() {
            self.numbers[at] = match mapped.becomes {
                ColumnConversion::Time => self.mapping.moment(&mapped.from, text(at), load),
                ColumnConversion::Number(scale) => load.number(&mapped.from, text(at)).map(|value| value * scale),
                ColumnConversion::State | ColumnConversion::Text => {
                    any |= !text(at).is_empty();
                    None
                }
            };
            any |= self.numbers[at].is_some();
        }
        if let Some(column) = table.ordered_by() {
            let at = columns.iter().position(|mapped| mapped.column == column);
            load.in_order(*table, at.and_then(|at| self.numbers[at]));
        }
        if !any {
            return load.lose("missing", "", || {
                "none of the mapped columns holds anything; passed over".to_owned()
            });
        }
        self.check(&text, load);
        let mut row = load.row(*table);
        for (at, mapped) in columns.iter().enumerate() {
            row = match mapped.becomes {
                ColumnConversion::Time | ColumnConversion::Number(_) => row.num(&mapped.column, self.numbers[at]),
                ColumnConversion::State => {
                    let raw = text(at);
                    let state = if raw.is_empty() { "" } else { words::state(raw) };
                    row.text("state", state).text(kept_as(*table), raw)
                }
                ColumnConversion::Text => row.text(&mapped.column, text(at)),
            };
        }
    }

    /// Reports a row that lacks a required value or is inconsistent.
    fn check<'t>(&self, text: impl Fn(usize) -> &'t str, load: &mut LoadState) {
        let ColumnMapping { columns, .. } = self.mapping;
        for at in &self.needed {
            let MappedColumn { from, becomes, .. } = &columns[*at];
            // An invalid time or number was reported when it was parsed.
            let number = !matches!(becomes, ColumnConversion::Text | ColumnConversion::State);
            if text(*at).is_empty() || number && is_null(text(*at)) {
                load.report_kept_row("null", from, || "holds nothing; null".to_owned());
            }
        }
        let [start, end, elapsed] = self.span.map(|place| place.and_then(|at| self.numbers[at]));
        let last = self.span[1].or(self.span[2]);
        let field = last.map_or("", |at| columns[at].from.as_str());
        check_span(field, start, end, elapsed, load);
    }
}

/// Returns the column that retains the original state.
fn kept_as(table: TableKind) -> &'static str {
    match table {
        TableKind::Jobs => "state_raw",
        _ => "x_state_raw",
    }
}
