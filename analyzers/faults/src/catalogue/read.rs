//! Parses catalogue files into entries. Every mistake is reported with its line, and reading continues after it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::class::ClassRow;
use crate::code::DriverCode;
use crate::mistake::{CatalogueMistake, EntryPosition, nearest};
use crate::signature::Signature;
use crate::taxonomy::{
    FigureSum, ListPositions, SCHEMA, Taxonomy, TaxonomyCategory, TaxonomyDimension, TaxonomyHeader,
};

/// Maximum size of a user file, bytes; the built-in files together have a tenth of it.
const FILE_LIMIT: usize = 4 << 20;

/// Maximum number of mistakes reported for one file.
const MISTAKE_LIMIT: usize = 100;

/// Keys allowed at the top level of a file.
const KINDS: [&str; 10] = [
    "class",
    "signature",
    "xid",
    "sxid",
    "taxonomy",
    "map",
    "source",
    "action",
    "clears",
    "schema",
];

/// Parsed entry with its file position and the id of the entry it replaces.
#[derive(Debug, Clone)]
pub(crate) struct CatalogueEntry<T> {
    pub(crate) value: T,
    pub(crate) place: EntryPosition,
    pub(crate) replaces: Option<String>,
}

/// Publication or page that recommends an action or describes a failure.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceReference {
    pub(crate) id: String,
    pub title: String,
    pub url: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionDefinition {
    pub(crate) id: String,
    pub(crate) definition: String,
}

/// Taxonomy with the file positions of its list entries.
#[derive(Debug, Clone)]
pub(crate) struct LocatedTaxonomy {
    pub(crate) taxonomy: Taxonomy,
    pub(crate) lists: ListPositions,
}

/// Taxonomy id to category ids of one class.
pub(crate) type CategoryMap = BTreeMap<String, Vec<String>>;

/// All entries of the files read so far, in file order.
#[derive(Debug, Default)]
pub(crate) struct CatalogueEntries {
    pub(crate) classes: Vec<CatalogueEntry<ClassRow>>,
    pub(crate) signatures: Vec<CatalogueEntry<Signature>>,
    pub(crate) xids: Vec<CatalogueEntry<DriverCode>>,
    pub(crate) sxids: Vec<CatalogueEntry<DriverCode>>,
    pub(crate) taxonomies: Vec<CatalogueEntry<LocatedTaxonomy>>,
    pub(crate) maps: Vec<CatalogueEntry<(String, CategoryMap)>>,
    pub(crate) sources: Vec<CatalogueEntry<SourceReference>>,
    pub(crate) actions: Vec<CatalogueEntry<ActionDefinition>>,
    /// Layer to clearing condition, for classes that set none.
    pub(crate) clears: BTreeMap<String, String>,
}

/// Parses one file into `into`.
///
/// `exact` records the line of every key and continues after a mistake inside an entry. Without it, only the first
/// mistake of an entry is reported, with the line of the entry: for files that the tests have parsed exactly.
pub(crate) fn read(
    file: &str,
    text: &str,
    exact: bool,
    into: &mut CatalogueEntries,
    mistakes: &mut Vec<CatalogueMistake>,
) {
    let mut reader = CatalogueReader {
        file: file.into(),
        text,
        exact,
        lines: Vec::new(),
        mistakes: Vec::new(),
    };
    if text.len() > FILE_LIMIT {
        let what = format!("the file has {} bytes", text.len());
        reader.report(0..0, "toml", what, format!("a catalogue file has at most {FILE_LIMIT}"));
    } else {
        reader.file(into);
    }
    let untold = reader.mistakes.len().saturating_sub(MISTAKE_LIMIT);
    reader.mistakes.truncate(MISTAKE_LIMIT);
    if untold > 0 {
        let what = format!("{untold} more mistakes");
        reader.report(0..0, "toml", what, "correct these first".to_owned());
    }
    mistakes.append(&mut reader.mistakes);
}

struct CatalogueReader<'t> {
    file: Arc<str>,
    text: &'t str,
    exact: bool,
    /// Byte offset of each line start; filled on first use.
    lines: Vec<usize>,
    mistakes: Vec<CatalogueMistake>,
}

impl<'t> CatalogueReader<'t> {
    fn file(&mut self, into: &mut CatalogueEntries) {
        let (root, problems) = DeTable::parse_recoverable(self.text);
        if !problems.is_empty() {
            // Entries recovered from broken TOML would only cause follow-up mistakes.
            for problem in problems {
                let help = "correct the TOML here".to_owned();
                self.report(
                    problem.span().unwrap_or(0..0),
                    "toml",
                    problem.message().to_owned(),
                    help,
                );
            }
            return;
        }
        let span = root.span();
        let root = root.into_inner();
        if root.contains_key("schema") {
            into.taxonomies.extend(self.study(root, span));
            return;
        }
        for (key, value) in root {
            match key.get_ref().as_ref() {
                "class" => into.classes.extend(self.rows(&key, value)),
                "signature" => into.signatures.extend(self.rows(&key, value)),
                "xid" => into.xids.extend(self.rows(&key, value)),
                "sxid" => into.sxids.extend(self.rows(&key, value)),
                "source" => into.sources.extend(self.rows(&key, value)),
                "action" => into.actions.extend(self.rows(&key, value)),
                "taxonomy" => {
                    for (table, span) in self.tables("taxonomy", key.span(), value) {
                        into.taxonomies.extend(self.study(table, span));
                    }
                }
                "map" => self.maps(&key, value, into),
                "clears" => {
                    let clears: Option<BTreeMap<String, String>> = self.value("clears", value);
                    into.clears.extend(clears.unwrap_or_default());
                }
                unknown => {
                    let help = nearest(unknown, KINDS).unwrap_or_else(|| format!("a file holds {}", KINDS.join(", ")));
                    self.report(key.span(), unknown, "no such kind of entry".to_owned(), help);
                }
            }
        }
    }

    /// Returns the tables of an array of tables; reports anything else as a mistake.
    fn tables(&mut self, key: &str, at: Range<usize>, value: Spanned<DeValue<'t>>) -> Vec<(DeTable<'t>, Range<usize>)> {
        let help = || format!("write each one as [[{key}]]");
        let DeValue::Array(items) = value.into_inner() else {
            self.report(at, key, "not a list of tables".to_owned(), help());
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items {
            let span = item.span();
            match item.into_inner() {
                DeValue::Table(table) => tables.push((table, span)),
                _ => self.report(span, key, "not a table".to_owned(), help()),
            }
        }
        tables
    }

    fn rows<T: DeserializeOwned>(
        &mut self,
        key: &Spanned<std::borrow::Cow<'t, str>>,
        value: Spanned<DeValue<'t>>,
    ) -> Vec<CatalogueEntry<T>> {
        let tables = self.tables(key.get_ref(), key.span(), value);
        tables
            .into_iter()
            .filter_map(|(table, span)| self.row(table, span))
            .collect()
    }

    /// Parses one entry. An unknown key is reported and removed, so that later mistakes in the entry are found too.
    fn row<T: DeserializeOwned>(&mut self, mut table: DeTable<'t>, span: Range<usize>) -> Option<CatalogueEntry<T>> {
        let place = self.place(&table, &span);
        let replaces = table.remove("replaces").map(|value| match value.get_ref() {
            DeValue::Integer(number) => number.as_str().to_owned(),
            other => other.as_str().unwrap_or_default().to_owned(),
        });
        let mut sound = true;
        loop {
            let left = if self.exact {
                table.clone()
            } else {
                std::mem::take(&mut table)
            };
            let left = Spanned::new(span.clone(), DeValue::Table(left));
            let problem = match T::deserialize(ValueDeserializer::from(left)) {
                // The remaining keys may parse, but an entry with a mistake is not used.
                Ok(value) => {
                    return sound.then_some(CatalogueEntry { value, place, replaces });
                }
                Err(problem) => problem,
            };
            sound = false;
            self.report_problem(&problem, &table, &span);
            let unknown = quoted(problem.message(), "unknown field `")?;
            table.remove(unknown)?;
        }
    }

    fn study(&mut self, mut table: DeTable<'t>, span: Range<usize>) -> Option<CatalogueEntry<LocatedTaxonomy>> {
        let before = self.mistakes.len();
        if let Some((key, value)) = table.remove_entry("schema")
            && value.get_ref().as_str() != Some(SCHEMA)
        {
            let what = "not a form that this version reads".to_owned();
            self.report(key.span(), "schema", what, format!("write schema = {SCHEMA:?}"));
        }
        let mut lists = ListPositions::default();
        let dimensions = self.list::<TaxonomyDimension>(&mut table, "dimension", &mut lists.dimensions);
        let categories = self.list::<TaxonomyCategory>(&mut table, "category", &mut lists.categories);
        let sums = self.list::<FigureSum>(&mut table, "sum", &mut lists.sums);
        let head = self.row::<TaxonomyHeader>(table, span)?;
        // A list with a rejected entry no longer matches its positions.
        (self.mistakes.len() == before).then(|| CatalogueEntry {
            value: LocatedTaxonomy {
                taxonomy: head.value.with(sums, dimensions, categories),
                lists,
            },
            place: head.place,
            replaces: head.replaces,
        })
    }

    fn list<T: DeserializeOwned>(
        &mut self,
        table: &mut DeTable<'t>,
        key: &str,
        places: &mut Vec<EntryPosition>,
    ) -> Vec<T> {
        let Some((name, value)) = table.remove_entry(key) else {
            return Vec::new();
        };
        let rows: Vec<CatalogueEntry<T>> = self.rows(&name, value);
        let mut values = Vec::with_capacity(rows.len());
        for row in rows {
            places.push(row.place);
            values.push(row.value);
        }
        values
    }

    fn maps(
        &mut self,
        key: &Spanned<std::borrow::Cow<'t, str>>,
        value: Spanned<DeValue<'t>>,
        into: &mut CatalogueEntries,
    ) {
        let DeValue::Table(classes) = value.into_inner() else {
            let help = "write [map.CLASS] and below it TAXONOMY = [\"CATEGORY\"]".to_owned();
            self.report(key.span(), "map", "not a table".to_owned(), help);
            return;
        };
        for (class, value) in classes {
            let place = match value.get_ref() {
                DeValue::Table(table) => self.place(table, &class.span()),
                _ => self.place(&DeTable::new(), &class.span()),
            };
            if let Some(map) = self.value::<CategoryMap>(class.get_ref(), value) {
                into.maps.push(CatalogueEntry {
                    value: (class.get_ref().to_string(), map),
                    place,
                    replaces: None,
                });
            }
        }
    }

    fn value<T: DeserializeOwned>(&mut self, key: &str, value: Spanned<DeValue<'t>>) -> Option<T> {
        let span = value.span();
        match T::deserialize(ValueDeserializer::from(value)) {
            Ok(value) => Some(value),
            Err(problem) => {
                let at = problem.span().unwrap_or(span);
                let help = "give it the form that the built-in files have".to_owned();
                self.report(at, key, first_line(problem.message()), help);
                None
            }
        }
    }

    fn report_problem(&mut self, problem: &toml::de::Error, table: &DeTable<'t>, span: &Range<usize>) {
        let message = problem.message();
        let at = problem.span().unwrap_or_else(|| span.clone());
        if let Some(key) = quoted(message, "missing field `") {
            self.report(
                span.clone(),
                key,
                "the key is missing".to_owned(),
                format!("add {key} = ..."),
            );
        } else if let Some(key) = quoted(message, "unknown field `") {
            let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
            let help = nearest(key, known.iter().copied()).unwrap_or_else(|| format!("known are {}", known.join(", ")));
            let at = table.get_key_value(key).map_or(at, |(name, _)| name.span());
            self.report(at, key, "no such key".to_owned(), help);
        } else {
            let holds = |value: &Spanned<DeValue<'_>>| value.span().contains(&at.start);
            let key = table.iter().find(|(_, value)| holds(value));
            let key = key.map_or("entry", |(key, _)| key.get_ref()).to_owned();
            self.report(at, &key, first_line(message), "give it a value of that kind".to_owned());
        }
    }

    fn place(&mut self, table: &DeTable<'t>, span: &Range<usize>) -> EntryPosition {
        if !self.exact {
            return EntryPosition::new(&self.file, 0, Vec::new());
        }
        let keys = table
            .keys()
            .map(|key| (key.get_ref().as_ref().into(), self.line(key.span().start)));
        let keys = keys.collect();
        let line = self.line(span.start);
        EntryPosition::new(&self.file, line, keys)
    }

    fn line(&mut self, offset: usize) -> usize {
        if self.lines.is_empty() {
            let ends = self.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            self.lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        }
        self.lines.partition_point(|begin| *begin <= offset)
    }

    fn report(&mut self, at: Range<usize>, key: &str, what: String, help: String) {
        let line = self.line(at.start);
        self.mistakes.push(CatalogueMistake {
            file: self.file.to_string(),
            line,
            key: key.to_owned(),
            what,
            help,
        });
    }
}

/// Returns the text between `beginning` and the next back-quote.
fn quoted<'m>(message: &'m str, beginning: &str) -> Option<&'m str> {
    let rest = message.split_once(beginning)?.1;
    rest.split_once('`').map(|(word, _)| word)
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}
