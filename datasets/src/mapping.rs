//! Files that nobody here knows, with a mapping that their owner wrote:
//!
//! ```toml
//! table = "failures"        # jobs, attempts, nodes, failures, outages, capacity, samples, events
//! format = "csv"            # csv, jsonl or parquet
//! delimiter = ";"           # of csv, a comma where absent
//! time = "iso"              # iso, unix, unix_ms, american (M/D/YYYY H:MM); iso where absent
//! zone = "EST5EDT,M3.2.0,M11.1.0"  # of times without an offset: a POSIX rule, +08:00 or UTC; UTC where absent
//! population = 512          # nodes in all, where it is known
//! [columns]                 # column of the table = column of the file
//! time = "when"
//! node = "host"
//! x_note = "comment"        # any other column, as text
//! [scale]                   # a number is multiplied by this, minutes to seconds here
//! repair_s = 60
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use jiff::tz::TimeZone;
use serde::Deserialize;

use crate::accounting::unix;
use crate::columnar;
use crate::csv::Csv;
use crate::dataset::{Dataset, Population, assemble, file_read};
use crate::error::Error;
use crate::head::{Head, heads};
use crate::input::{Input, unpacked};
use crate::load::Load;
use crate::source::Source;
use crate::table::{Kind, Table};
use crate::time;
use crate::words;

static MAPPED: Source = Source {
    name: "mapped",
    title: "A file of one's own, read by a mapping",
    licence: "one's own",
    clock: "as the mapping says: instants in Unix seconds; times without an offset lie in its zone",
    ..Source::PLAIN
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    table: String,
    #[serde(default)]
    format: Form,
    delimiter: Option<String>,
    #[serde(default)]
    time: Clock,
    zone: Option<String>,
    population: Option<u64>,
    columns: BTreeMap<String, String>,
    #[serde(default)]
    scale: BTreeMap<String, f64>,
}

#[derive(Deserialize, Default, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Form {
    #[default]
    Csv,
    Jsonl,
    Parquet,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Clock {
    #[default]
    Iso,
    Unix,
    UnixMs,
    American,
}

/// A mapping that was checked.
struct Mapping {
    table: Table,
    written: Written,
    zone: TimeZone,
    delimiter: &'static str,
}

/// Reads a folder's files, or one file, as a mapping file says.
pub fn open_mapped(path: &Path, mapping: &Path) -> Result<Dataset, Error> {
    let text = fs::read_to_string(mapping).map_err(|source| Error::Read {
        path: mapping.to_owned(),
        source,
    })?;
    let mapping = parse(&text)?;
    let mut load = Load::new(
        path,
        mapping.written.population.map(|count| Population {
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
        load.begin(file_read(head, Some("mapped")));
        read(head, &mapping, &mut load);
        load.end();
    }
    load.whole_folder(more);
    assemble(&MAPPED, load)
}

fn parse(text: &str) -> Result<Mapping, Error> {
    let written: Written = toml::from_str(text).map_err(|problem| Error::Mapping(problem.to_string()))?;
    let Some(table) = Table::named(&written.table) else {
        let names = Table::ALL.map(Table::name).join(", ");
        return Err(Error::Mapping(format!("table {:?} is none of {names}", written.table)));
    };
    let known = |name: &str| table.columns().iter().any(|(column, _)| *column == name);
    if let Some(name) = written
        .columns
        .keys()
        .find(|name| !known(name) && !name.starts_with("x_"))
    {
        let names: Vec<&str> = table.columns().iter().map(|(column, _)| *column).collect();
        return Err(Error::Mapping(format!(
            "column {name:?} is none of {}; a column of one's own begins with x_",
            names.join(", ")
        )));
    }
    let scalable = |name: &str| {
        let is_number = table.columns().contains(&(name, Kind::Number));
        written.columns.contains_key(name) && is_number && !table.is_time(name)
    };
    if let Some(name) = written.scale.keys().find(|name| !scalable(name)) {
        return Err(Error::Mapping(format!(
            "scale of {name:?}: only numbers under [columns] have one; the unit of times is `time`: unix or unix_ms"
        )));
    }
    if let Some((name, scale)) = written
        .scale
        .iter()
        .find(|(_, scale)| !scale.is_finite() || **scale == 0.0)
    {
        return Err(Error::Mapping(format!(
            "scale of {name:?} is {scale}, which leaves nothing of a number"
        )));
    }
    let zone = written.zone.as_deref().unwrap_or("UTC");
    let Some(zone) = time::zone(zone) else {
        return Err(Error::Mapping(format!(
            "zone {zone:?} is neither UTC nor an offset like +08:00 nor a POSIX rule like EST5EDT,M3.2.0,M11.1.0"
        )));
    };
    let delimiter = match written.delimiter.as_deref().unwrap_or(",") {
        "," => ",",
        ";" => ";",
        "\t" => "\t",
        "|" => "|",
        other => {
            return Err(Error::Mapping(format!("delimiter {other:?} is none of , ; | and tab")));
        }
    };
    Ok(Mapping {
        table,
        written,
        zone,
        delimiter,
    })
}

fn read(head: &Head, mapping: &Mapping, load: &mut Load) {
    if let Some(problem) = &head.unreadable {
        return load.cut_short(problem);
    }
    if mapping.written.format == Form::Parquet {
        let names = head.columns.clone();
        missing(&names, mapping, load);
        let mut number = 0;
        let ended = columnar::rows(&head.path, |fields| {
            number += 1;
            load.at(number);
            load.read_row();
            load.repeat(&fields.join("\u{1f}"));
            let get = |name: &str| {
                names
                    .iter()
                    .position(|column| column == name)
                    .and_then(|at| fields.get(at))
            };
            row(mapping, |name| get(name).cloned().unwrap_or_default(), load);
        });
        if let Err(problem) = ended {
            load.cut_short(&problem);
        }
        return;
    }
    let mut input = match unpacked(&head.path) {
        Ok(reader) => Input::new(reader),
        Err(problem) => return load.cut_short(&problem),
    };
    if mapping.written.format == Form::Csv {
        let Some(mut csv) = Csv::new(&mut input, mapping.delimiter, load) else {
            return;
        };
        missing(csv.header(), mapping, load);
        while csv.next(load) {
            row(mapping, |name| csv.get(name).to_owned(), load);
        }
        return;
    }
    while let Some(line) = input.line(load) {
        if line.trim().is_empty() {
            continue;
        }
        load.read_row();
        match serde_json::from_str::<BTreeMap<String, serde_json::Value>>(line) {
            Ok(object) => {
                load.repeat(line);
                row(mapping, |name| plain(object.get(name)), load);
            }
            Err(problem) => load.lose("bad-row", "", || format!("{problem}; passed over")),
        }
    }
}

/// A JSON value as the text of a field.
fn plain(value: Option<&serde_json::Value>) -> String {
    match value {
        None | Some(serde_json::Value::Null) => String::new(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A column that the mapping names and the file has not.
fn missing(header: &[String], mapping: &Mapping, load: &mut Load) {
    for name in mapping.written.columns.values().filter(|name| !header.contains(name)) {
        load.odd("columns", name, || {
            "the file has no such column; null in every row".to_owned()
        });
    }
}

fn row(mapping: &Mapping, get: impl Fn(&str) -> String, load: &mut Load) {
    let table = mapping.table;
    let mut numbers = Vec::new();
    let mut texts = Vec::new();
    for (column, name) in &mapping.written.columns {
        let text = get(name);
        let kind = table
            .columns()
            .iter()
            .find(|(known, _)| known == column)
            .map(|(_, kind)| *kind);
        if table.is_time(column) {
            numbers.push((column, moment(mapping, name, &text, load)));
        } else if kind == Some(Kind::Number) {
            let scale = mapping.written.scale.get(column).copied().unwrap_or(1.0);
            numbers.push((column, load.number(name, &text).map(|value| value * scale)));
        } else {
            texts.push((column, text));
        }
    }
    if let Some(column) = table.ordered_by() {
        let when = numbers.iter().find(|(name, _)| name.as_str() == column);
        load.in_order(table, when.and_then(|(_, value)| *value));
    }
    if numbers.iter().all(|(_, value)| value.is_none()) && texts.iter().all(|(_, text)| text.is_empty()) {
        return load.lose("missing", "", || {
            "none of the mapped columns holds anything; passed over".to_owned()
        });
    }
    let mut row = load.row(table);
    for (column, value) in numbers {
        row = row.num(column, value);
    }
    for (column, text) in texts {
        if column == "state" && table != Table::Outages {
            row = row.text("state", if text.is_empty() { "" } else { words::state(&text) });
            row = row.text(
                if table == Table::Jobs {
                    "state_raw"
                } else {
                    "x_state_raw"
                },
                &text,
            );
        } else {
            row = row.text(column, &text);
        }
    }
}

/// Where times without an offset are.
const WITHOUT_OFFSET: &str = "lie in the mapping's zone";

fn moment(mapping: &Mapping, name: &str, text: &str, load: &mut Load) -> Option<f64> {
    if text.is_empty() {
        return None;
    }
    let wall = match mapping.written.time {
        Clock::Unix => return load.number(name, text).and_then(|seconds| unix(name, seconds, load)),
        Clock::UnixMs => return load.number(name, text).map(|millis| millis / 1000.0),
        Clock::American => load.time(name, text, time::american)?,
        Clock::Iso => match time::iso(text) {
            Some((instant, Some(_))) => {
                load.offset(name, true, WITHOUT_OFFSET);
                return Some(instant);
            }
            Some((wall, None)) => {
                load.offset(name, false, WITHOUT_OFFSET);
                wall
            }
            None => return load.time(name, text, |_| None),
        },
    };
    let (instant, unsure) = time::in_zone(wall, &mapping.zone)?;
    if unsure {
        load.odd("clock-change", name, || {
            "the clock showed this time twice or never that day; the earlier reading is taken".to_owned()
        });
    }
    Some(instant)
}
