//! A table while it is being read: columns that grow by a row, packed so that millions of rows fit.

use polars::prelude::{
    Column as Series, DataFrame, Float64Chunked, IntoColumn, IntoSeries, NewChunkedArray, PolarsResult, StringChunked,
};

use crate::table::{Kind, Table};

/// The most rows a table takes; what comes after is counted as lost.
pub const MAX_ROWS: usize = 50_000_000;

#[derive(Debug)]
enum Cells {
    Numbers(Vec<f64>),
    /// All texts one after the other, and where each ends.
    Texts(String, Vec<usize>),
}

#[derive(Debug)]
struct Column {
    name: String,
    cells: Cells,
    present: Vec<bool>,
}

impl Column {
    fn new(name: &str, kind: Kind) -> Self {
        let cells = match kind {
            Kind::Number => Cells::Numbers(Vec::new()),
            Kind::Text => Cells::Texts(String::new(), Vec::new()),
        };
        Self {
            name: name.to_owned(),
            cells,
            present: Vec::new(),
        }
    }

    fn grow_to(&mut self, rows: usize) {
        match &mut self.cells {
            Cells::Numbers(values) => values.resize(rows, 0.0),
            Cells::Texts(text, ends) => ends.resize(rows, text.len()),
        }
        self.present.resize(rows, false);
    }

    fn into_series(self) -> Series {
        let name = self.name.as_str().into();
        match self.cells {
            Cells::Numbers(values) => {
                let cells = values.into_iter().zip(&self.present);
                let cells = cells.map(|(value, present)| present.then_some(value));
                Float64Chunked::from_iter_options(name, cells)
                    .into_series()
                    .into_column()
            }
            Cells::Texts(text, ends) => {
                let starts = std::iter::once(0).chain(ends.iter().copied());
                let cells = starts.zip(&ends).zip(&self.present);
                let cells = cells.map(|((start, end), present)| present.then_some(&text[start..*end]));
                StringChunked::from_iter_options(name, cells)
                    .into_series()
                    .into_column()
            }
        }
    }
}

/// A growing table.
#[derive(Debug)]
pub(crate) struct Rows {
    columns: Vec<Column>,
    count: usize,
}

impl Rows {
    pub(crate) fn new(table: Table) -> Self {
        let columns = table.columns().iter().map(|(name, kind)| Column::new(name, *kind));
        Self {
            columns: columns.collect(),
            count: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Begins a row, all null.
    pub(crate) fn row(&mut self) -> Row<'_> {
        self.count += 1;
        for column in &mut self.columns {
            column.grow_to(self.count);
        }
        Row { rows: self }
    }

    fn column(&mut self, name: &str, kind: Kind) -> &mut Column {
        let at = match self.columns.iter().position(|column| column.name == name) {
            Some(at) => at,
            None => {
                let mut column = Column::new(name, kind);
                column.grow_to(self.count);
                self.columns.push(column);
                self.columns.len() - 1
            }
        };
        &mut self.columns[at]
    }

    pub(crate) fn into_frame(self) -> PolarsResult<DataFrame> {
        let count = self.count;
        DataFrame::new(count, self.columns.into_iter().map(Column::into_series).collect())
    }

    /// The least and the greatest of some number columns.
    pub(crate) fn span(&self, names: &[&str]) -> Option<(f64, f64)> {
        let mut span: Option<(f64, f64)> = None;
        for column in self
            .columns
            .iter()
            .filter(|column| names.contains(&column.name.as_str()))
        {
            let Cells::Numbers(values) = &column.cells else {
                continue;
            };
            for (value, _) in values.iter().zip(&column.present).filter(|(_, present)| **present) {
                let (least, most) = span.unwrap_or((*value, *value));
                span = Some((least.min(*value), most.max(*value)));
            }
        }
        span
    }
}

/// The row at the end of a table.
pub(crate) struct Row<'a> {
    rows: &'a mut Rows,
}

impl Row<'_> {
    /// Sets a number; what is absent or not finite stays null.
    pub(crate) fn num(self, name: &str, value: impl Into<Option<f64>>) -> Self {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            let column = self.rows.column(name, Kind::Number);
            if let (Cells::Numbers(values), Some(present)) = (&mut column.cells, column.present.last_mut())
                && let Some(last) = values.last_mut()
            {
                *last = value;
                *present = true;
            }
        }
        self
    }

    /// Sets a text; an empty one stays null. Called once a column and row.
    pub(crate) fn text(self, name: &str, value: &str) -> Self {
        if !value.is_empty() {
            let column = self.rows.column(name, Kind::Text);
            if let (Cells::Texts(text, ends), Some(present)) = (&mut column.cells, column.present.last_mut())
                && let Some(end) = ends.last_mut()
                && !*present
            {
                text.push_str(value);
                *end = text.len();
                *present = true;
            }
        }
        self
    }
}
