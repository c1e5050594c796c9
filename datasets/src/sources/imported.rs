//! Canonical tables as Parquet, written by an import or by another program with these columns.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::columnar;
use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::provenance::Population;
use crate::source::SourceFormat;
use crate::table::TableKind;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "tables",
    title: "Canonical tables as Parquet, as `rankguard dataset import` writes them",
    licence: "that of the data they were made of",
    citation: "those of the data they were made of",
    home: "FOLDER/table=NAME/part-0.parquet",
    clock: "seconds, as in the data they were made of",
    traps: &[
        "what was wrong with the data they were made of was told when they were imported, and is not told again",
        "population and window are those that the import knew; tables of another hand state none",
    ],
    role: |head| table(head).map(TableKind::name),
    read,
    ..SourceFormat::PLAIN
};

/// Metadata that a table's rows do not contain, stored beside them in its file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TableMetadata {
    pub(crate) population: Option<(u64, String)>,
    pub(crate) window: Option<(f64, f64)>,
}

impl fmt::Display for TableMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

/// Returns the table with the most columns of which none is missing: the columns of outages are a subset of
/// those of attempts.
fn table(head: &FileHead) -> Option<TableKind> {
    let whole = |table: &TableKind| {
        let mut wanted = table.columns().iter();
        wanted.all(|(name, _)| head.columns.iter().any(|column| column == name))
    };
    TableKind::ALL
        .into_iter()
        .filter(whole)
        .max_by_key(|table| table.columns().len())
}

fn read(role: &'static str, head: &FileHead, _: &mut InputFile, load: &mut LoadState) {
    let Some((table, about)) = TableKind::named(role).zip(columnar::details(&head.path)) else {
        return;
    };
    if let Some(beside) = about
        .beside
        .and_then(|text| serde_json::from_str::<TableMetadata>(&text).ok())
    {
        load.window = beside.window;
        load.population = beside.population.map(|(count, unit)| Population {
            count,
            unit: if unit.contains("node") || unit.contains("server") {
                "nodes"
            } else {
                "devices"
            },
            from: "the data that were imported",
        });
    }
    let columns: Vec<(&String, bool)> = head.columns.iter().zip(about.numbers).collect();
    let mut number = 0;
    let ended = columnar::rows(&head.path, |fields| {
        number += 1;
        load.at(number);
        load.read_row();
        let cells: Vec<(&str, &str, Option<f64>)> = columns
            .iter()
            .zip(&fields)
            .map(|((name, is_number), text)| {
                let value = if *is_number { load.number(name, text) } else { None };
                (name.as_str(), if *is_number { "" } else { text.as_str() }, value)
            })
            .collect();
        let mut row = load.row(table);
        for (name, text, value) in cells {
            row = match text {
                "" => row.num(name, value),
                text => row.text(name, text),
            };
        }
    });
    if let Err(problem) = ended {
        load.cut_short(&problem);
    }
}
