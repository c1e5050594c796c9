//! Mapping files, by which an owner describes files in an unknown format: [`EXAMPLE`].

use std::collections::BTreeMap;
use std::str::FromStr;

use jiff::tz::TimeZone;
use serde::Deserialize;

use crate::accounting::unix;
use crate::load::LoadState;
use crate::table::{ColumnType, TableKind};
use crate::time;

/// Mapping with every option and its meaning.
pub(crate) const EXAMPLE: &str = include_str!("mapping.toml");

/// Treatment of times without an offset, for messages.
const WITHOUT_OFFSET: &str = "lie in the mapping's zone";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MappingFile {
    table: String,
    #[serde(default)]
    format: MappingFormat,
    delimiter: Option<String>,
    #[serde(default)]
    time: TimeFormat,
    zone: Option<String>,
    population: Option<u64>,
    columns: BTreeMap<String, String>,
    #[serde(default)]
    scale: BTreeMap<String, f64>,
}

#[derive(Deserialize, Default, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MappingFormat {
    #[default]
    Csv,
    Jsonl,
    Parquet,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum TimeFormat {
    #[default]
    Iso,
    Unix,
    UnixMs,
    American,
}

/// Type of a mapped column.
#[derive(Clone, Copy)]
pub(crate) enum ColumnConversion {
    Time,
    /// Number, multiplied by this factor.
    Number(f64),
    /// State of the table; the original text is retained beside it.
    State,
    Text,
}

/// Table column and the file column that it is read from.
pub(crate) struct MappedColumn {
    pub(crate) column: String,
    pub(crate) from: String,
    pub(crate) becomes: ColumnConversion,
}

/// Validated mapping of a file to a table.
pub(crate) struct ColumnMapping {
    pub(crate) table: TableKind,
    pub(crate) format: MappingFormat,
    pub(crate) delimiter: &'static str,
    pub(crate) population: Option<u64>,
    pub(crate) columns: Vec<MappedColumn>,
    time: TimeFormat,
    zone: TimeZone,
}

impl FromStr for ColumnMapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let written: MappingFile = toml::from_str(text).map_err(|problem| problem.to_string())?;
        let Some(table) = TableKind::named(&written.table) else {
            let names = TableKind::ALL.map(TableKind::name).join(", ");
            return Err(format!("table {:?} is none of {names}", written.table));
        };
        let known = |name: &str| table.columns().iter().any(|(column, _)| *column == name);
        if let Some(name) = written
            .columns
            .keys()
            .find(|name| !known(name) && !name.starts_with("x_"))
        {
            let names: Vec<&str> = table.columns().iter().map(|(column, _)| *column).collect();
            return Err(format!(
                "column {name:?} is none of {}; a column of one's own begins with x_",
                names.join(", ")
            ));
        }
        let scalable = |name: &str| {
            let is_number = table.columns().contains(&(name, ColumnType::Number));
            written.columns.contains_key(name) && is_number && !table.is_time(name)
        };
        if let Some(name) = written.scale.keys().find(|name| !scalable(name)) {
            return Err(format!(
                "scale of {name:?}: only numbers under [columns] have one; the unit of times is `time`: unix or unix_ms"
            ));
        }
        if let Some((name, scale)) = written
            .scale
            .iter()
            .find(|(_, scale)| !scale.is_finite() || **scale == 0.0)
        {
            return Err(format!(
                "scale of {name:?} is {scale}, which leaves nothing of a number"
            ));
        }
        let zone = written.zone.as_deref().unwrap_or("UTC");
        let Some(zone) = time::zone(zone) else {
            return Err(format!(
                "zone {zone:?} is neither UTC nor an offset like +08:00 nor a POSIX rule like EST5EDT,M3.2.0,M11.1.0"
            ));
        };
        let delimiter = match written.delimiter.as_deref().unwrap_or(",") {
            "," => ",",
            ";" => ";",
            "\t" => "\t",
            "|" => "|",
            other => {
                return Err(format!("delimiter {other:?} is none of , ; | and tab"));
            }
        };
        let becomes = |column: &str| match table.columns().iter().find(|(known, _)| *known == column) {
            _ if table.is_time(column) => ColumnConversion::Time,
            Some((_, ColumnType::Number)) => {
                ColumnConversion::Number(written.scale.get(column).copied().unwrap_or(1.0))
            }
            // A node is up or down, which are not job states.
            _ if column == "state" && table != TableKind::Outages => ColumnConversion::State,
            _ => ColumnConversion::Text,
        };
        let columns = written.columns.iter().map(|(column, from)| MappedColumn {
            column: column.clone(),
            from: from.clone(),
            becomes: becomes(column),
        });
        Ok(Self {
            table,
            format: written.format,
            delimiter,
            population: written.population,
            columns: columns.collect(),
            time: written.time,
            zone,
        })
    }
}

impl ColumnMapping {
    /// Parses a time by the mapping's clock and zone.
    pub(crate) fn moment(&self, name: &str, text: &str, load: &mut LoadState) -> Option<f64> {
        if text.is_empty() {
            return None;
        }
        let clock = match self.format {
            // A Parquet timestamp is passed as ISO text, independently of its unit.
            MappingFormat::Parquet if time::iso(text).is_some() => TimeFormat::Iso,
            _ => self.time,
        };
        let wall = match clock {
            TimeFormat::Unix | TimeFormat::UnixMs => {
                let a_second = if matches!(clock, TimeFormat::Unix) { 1.0 } else { 1000.0 };
                let count = load.number(name, text);
                return count.and_then(|count| unix(name, count / a_second, load));
            }
            TimeFormat::American => load.time(name, text, time::american)?,
            TimeFormat::Iso => match time::iso(text) {
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
        let (instant, unsure) = time::in_zone(wall, &self.zone)?;
        if unsure {
            load.report_kept_row("clock-change", name, || {
                "the clock showed this time twice or never that day; read by its offset before the change".to_owned()
            });
        }
        Some(instant)
    }
}
