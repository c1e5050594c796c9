//! Columns of a loaded table: packed, shared with readers, and convertible to a polars frame.

use std::sync::Arc;

use polars::prelude::{
    Column as Series, DataFrame, Float64Chunked, IntoColumn, IntoSeries, NewChunkedArray, PolarsError, PolarsResult,
    StringChunked,
};

use crate::labels::LabelColumn;
use crate::packed::PackedTexts;

/// Cells of a column.
#[derive(Debug)]
pub(crate) enum ColumnCells {
    /// Values, NaN if absent, and the number of present ones.
    Numbers(Arc<Vec<f64>>, usize),
    Labels(Arc<LabelColumn>),
    Texts(Arc<PackedTexts>),
}

impl ColumnCells {
    pub(crate) fn numbers(values: Vec<f64>) -> Self {
        let known = values.iter().filter(|value| !value.is_nan()).count();
        Self::Numbers(values.into(), known)
    }
}

#[derive(Debug)]
pub(crate) struct TableColumn {
    pub(crate) name: String,
    pub(crate) cells: ColumnCells,
}

impl TableColumn {
    fn series(&self) -> Series {
        let name = self.name.as_str().into();
        let texts = |texts: StringChunked| texts.into_series().into_column();
        match &self.cells {
            ColumnCells::Numbers(values, _) => {
                let cells = values.iter().map(|value| Some(*value).filter(|value| !value.is_nan()));
                Float64Chunked::from_iter_options(name, cells)
                    .into_series()
                    .into_column()
            }
            ColumnCells::Labels(labels) => texts(StringChunked::from_iter_options(name, labels.texts())),
            ColumnCells::Texts(packed) => texts(StringChunked::from_iter_options(name, packed.texts())),
        }
    }
}

/// Columns of a table, all of one length.
#[derive(Debug)]
pub(crate) struct TableColumns {
    rows: usize,
    columns: Vec<TableColumn>,
}

impl TableColumns {
    pub(crate) fn new(rows: usize, columns: Vec<TableColumn>) -> Self {
        Self { rows, columns }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    fn cells(&self, name: &str) -> Option<&ColumnCells> {
        Some(&self.column(name)?.cells)
    }

    /// Returns a column of numbers, NaN if absent; `None` if there is no such column of numbers.
    pub(crate) fn numbers(&self, name: &str) -> Option<Arc<Vec<f64>>> {
        match self.cells(name)? {
            ColumnCells::Numbers(values, _) => Some(Arc::clone(values)),
            _ => None,
        }
    }

    /// Returns the number of rows with a number in a column of numbers.
    pub(crate) fn known(&self, name: &str) -> Option<usize> {
        match self.cells(name)? {
            ColumnCells::Numbers(_, known) => Some(*known),
            _ => None,
        }
    }

    /// Returns a column of texts; `None` if there is no such column of texts.
    pub(crate) fn labels(&self, name: &str) -> Option<Arc<LabelColumn>> {
        match self.cells(name)? {
            ColumnCells::Labels(labels) => Some(Arc::clone(labels)),
            ColumnCells::Texts(packed) => Some(Arc::new(packed.texts().collect())),
            ColumnCells::Numbers(..) => None,
        }
    }

    /// Returns the texts of a column of texts.
    pub(crate) fn strings(&self, name: &str) -> Option<Vec<Option<String>>> {
        let own = |text: Option<&str>| text.map(str::to_owned);
        match self.cells(name)? {
            ColumnCells::Labels(labels) => Some(labels.texts().map(own).collect()),
            ColumnCells::Texts(packed) => Some(packed.texts().map(own).collect()),
            ColumnCells::Numbers(..) => None,
        }
    }

    /// Returns the least and the greatest value of some columns of numbers.
    pub(crate) fn span(&self, names: &[&str]) -> Option<(f64, f64)> {
        let columns = names.iter().filter_map(|name| self.numbers(name));
        let spans = columns.filter_map(|values| {
            // `min` and `max` ignore NaN.
            let span = values
                .iter()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                    (least.min(*value), most.max(*value))
                });
            Some(span).filter(|(least, most)| least <= most)
        });
        spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Converts one column alone, so that access to it does not convert all others.
    pub(crate) fn only(&self, name: &str) -> PolarsResult<Series> {
        let column = self
            .column(name)
            .ok_or_else(|| PolarsError::ColumnNotFound(name.to_owned().into()))?;
        Ok(column.series())
    }

    /// Converts the table to a frame.
    pub(crate) fn frame(&self) -> PolarsResult<DataFrame> {
        DataFrame::new(self.rows, self.columns.iter().map(TableColumn::series).collect())
    }
}
