//! A table that was read: its columns as they were packed, shared with whoever asks, and as a frame of polars.

use std::sync::Arc;

use polars::prelude::{
    Column as Series, DataFrame, Float64Chunked, IntoColumn, IntoSeries, NewChunkedArray, PolarsError, PolarsResult,
    StringChunked,
};

use crate::labels::Labels;
use crate::packed::Packed;

/// The cells of a column.
#[derive(Debug)]
pub(crate) enum Cells {
    /// NaN where absent, and how many are not.
    Numbers(Arc<Vec<f64>>, usize),
    Labels(Arc<Labels>),
    Texts(Arc<Packed>),
}

impl Cells {
    pub(crate) fn numbers(values: Vec<f64>) -> Self {
        let known = values.iter().filter(|value| !value.is_nan()).count();
        Self::Numbers(values.into(), known)
    }
}

#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) cells: Cells,
}

impl Column {
    fn series(&self) -> Series {
        let name = self.name.as_str().into();
        let texts = |texts: StringChunked| texts.into_series().into_column();
        match &self.cells {
            Cells::Numbers(values, _) => {
                let cells = values.iter().map(|value| Some(*value).filter(|value| !value.is_nan()));
                Float64Chunked::from_iter_options(name, cells)
                    .into_series()
                    .into_column()
            }
            Cells::Labels(labels) => texts(StringChunked::from_iter_options(name, labels.texts())),
            Cells::Texts(packed) => texts(StringChunked::from_iter_options(name, packed.texts())),
        }
    }
}

/// The columns of a table, all of one length.
#[derive(Debug)]
pub(crate) struct Columns {
    rows: usize,
    columns: Vec<Column>,
}

impl Columns {
    pub(crate) fn new(rows: usize, columns: Vec<Column>) -> Self {
        Self { rows, columns }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    fn cells(&self, name: &str) -> Option<&Cells> {
        Some(&self.column(name)?.cells)
    }

    /// A column of numbers, NaN where absent; none where there is no such column of numbers.
    pub(crate) fn numbers(&self, name: &str) -> Option<Arc<Vec<f64>>> {
        match self.cells(name)? {
            Cells::Numbers(values, _) => Some(Arc::clone(values)),
            _ => None,
        }
    }

    /// How many rows have a number in a column of numbers.
    pub(crate) fn known(&self, name: &str) -> Option<usize> {
        match self.cells(name)? {
            Cells::Numbers(_, known) => Some(*known),
            _ => None,
        }
    }

    /// A column of texts; none where there is no such column of texts.
    pub(crate) fn labels(&self, name: &str) -> Option<Arc<Labels>> {
        match self.cells(name)? {
            Cells::Labels(labels) => Some(Arc::clone(labels)),
            Cells::Texts(packed) => Some(Arc::new(packed.texts().collect())),
            Cells::Numbers(..) => None,
        }
    }

    /// The texts of a column of texts.
    pub(crate) fn strings(&self, name: &str) -> Option<Vec<Option<String>>> {
        let own = |text: Option<&str>| text.map(str::to_owned);
        match self.cells(name)? {
            Cells::Labels(labels) => Some(labels.texts().map(own).collect()),
            Cells::Texts(packed) => Some(packed.texts().map(own).collect()),
            Cells::Numbers(..) => None,
        }
    }

    /// The least and the greatest of some columns of numbers.
    pub(crate) fn span(&self, names: &[&str]) -> Option<(f64, f64)> {
        let columns = names.iter().filter_map(|name| self.numbers(name));
        let spans = columns.filter_map(|values| {
            // NaN is neither the less nor the greater of two.
            let span = values
                .iter()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                    (least.min(*value), most.max(*value))
                });
            Some(span).filter(|(least, most)| least <= most)
        });
        spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// One column as a frame: whoever asks whether a column is there does not pay for all others.
    pub(crate) fn only(&self, name: &str) -> PolarsResult<DataFrame> {
        let column = self
            .column(name)
            .ok_or_else(|| PolarsError::ColumnNotFound(name.to_owned().into()))?;
        DataFrame::new(self.rows, vec![column.series()])
    }

    /// The table as a frame.
    pub(crate) fn frame(&self) -> PolarsResult<DataFrame> {
        DataFrame::new(self.rows, self.columns.iter().map(Column::series).collect())
    }
}
