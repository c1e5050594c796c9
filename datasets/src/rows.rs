//! Table during loading: columns that grow by rows, packed so that millions of rows fit.
//!
//! A column grows only when it receives a value; gaps are null. Equal texts are stored once ([`LabelDictionary`]), until too
//! few are equal.

use crate::columns::{ColumnCells, TableColumn, TableColumns};
use crate::labels::LabelDictionary;
use crate::packed::PackedTexts;
use crate::table::{ColumnType, TableKind};

/// Maximum rows of a table; further ones are counted as lost.
pub const MAX_ROWS: usize = 50_000_000;

#[derive(Debug)]
enum GrowingColumn {
    /// Values, NaN if absent.
    Numbers(Vec<f64>),
    Labels(LabelDictionary),
    Texts(PackedTexts),
}

impl GrowingColumn {
    fn new(kind: ColumnType) -> Self {
        match kind {
            ColumnType::Number => Self::Numbers(Vec::new()),
            ColumnType::Text => Self::Labels(LabelDictionary::default()),
        }
    }

    /// Creates a column for the next `rows` rows.
    fn part(&mut self, rows: usize) -> Self {
        match self {
            Self::Numbers(values) if !values.is_empty() => Self::Numbers(Vec::with_capacity(rows)),
            Self::Labels(labels) if labels.len() > 0 => Self::Labels(labels.part(rows)),
            _ => self.empty(),
        }
    }

    /// Creates an empty column of the same kind.
    fn empty(&self) -> Self {
        Self::new(match self {
            Self::Numbers(_) => ColumnType::Number,
            Self::Labels(_) | Self::Texts(_) => ColumnType::Text,
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Numbers(values) => values.len(),
            Self::Labels(labels) => labels.len(),
            Self::Texts(texts) => texts.len(),
        }
    }

    fn grow_to(&mut self, rows: usize) {
        match self {
            Self::Numbers(values) => values.resize(rows, f64::NAN),
            Self::Labels(labels) => labels.grow_to(rows),
            Self::Texts(texts) => texts.grow_to(rows),
        }
    }

    /// Appends the rows of another column of the same kind.
    fn join(&mut self, behind: Self) {
        match (&mut *self, behind) {
            (Self::Numbers(values), Self::Numbers(behind)) => values.extend(behind),
            (Self::Labels(labels), Self::Labels(behind)) => {
                labels.join(behind);
                self.drop_useless();
            }
            (Self::Texts(texts), Self::Labels(behind)) => texts.join(behind.into_labels().texts()),
            (Self::Texts(texts), Self::Texts(behind)) => texts.join(behind.texts()),
            (Self::Labels(labels), Self::Texts(behind)) => {
                let mut texts: PackedTexts = std::mem::take(labels).into_labels().into();
                texts.join(behind.texts());
                *self = Self::Texts(texts);
            }
            // Both columns have the same kind.
            (Self::Numbers(_), _) | (_, Self::Numbers(_)) => {}
        }
    }

    /// Replaces a dictionary that is larger than its texts.
    fn drop_useless(&mut self) {
        if let Self::Labels(labels) = self
            && labels.is_useless()
        {
            *self = Self::Texts(std::mem::take(labels).into_labels().into());
        }
    }

    fn finish(mut self, rows: usize) -> ColumnCells {
        self.grow_to(rows);
        match self {
            Self::Numbers(values) => ColumnCells::numbers(values),
            Self::Labels(labels) => ColumnCells::Labels(labels.into_labels().into()),
            Self::Texts(texts) => ColumnCells::Texts(texts.into()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct GrowingTable {
    columns: Vec<(String, GrowingColumn)>,
    count: usize,
    /// Column of each value of the last row: a source sets values in the same order in every row.
    order: Vec<usize>,
}

impl GrowingTable {
    pub(crate) fn new(table: TableKind) -> Self {
        let columns = table.columns().iter();
        Self {
            columns: columns
                .map(|(name, kind)| ((*name).to_owned(), GrowingColumn::new(*kind)))
                .collect(),
            count: 0,
            order: Vec::new(),
        }
    }

    /// Creates a table for the next `rows` rows, to be [joined](Self::join) to this one.
    pub(crate) fn part(&mut self, rows: usize) -> Self {
        let columns = self.columns.iter_mut();
        Self {
            columns: columns.map(|(name, cells)| (name.clone(), cells.part(rows))).collect(),
            count: 0,
            order: self.order.clone(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Starts a row; all its values are null.
    pub(crate) fn row(&mut self) -> LastRow<'_> {
        self.count += 1;
        LastRow { rows: self, turn: 0 }
    }

    /// Returns the column for a row's value number `turn`.
    fn column(&mut self, name: &str, kind: ColumnType, turn: usize) -> &mut GrowingColumn {
        let before = self.order.get(turn).copied();
        let at = match before.filter(|at| self.columns[*at].0 == name) {
            Some(at) => at,
            None => self.search(name, kind, turn),
        };
        &mut self.columns[at].1
    }

    fn search(&mut self, name: &str, kind: ColumnType, turn: usize) -> usize {
        let at = match self.columns.iter().position(|(known, _)| known == name) {
            Some(at) => at,
            None => {
                self.columns.push((name.to_owned(), GrowingColumn::new(kind)));
                self.columns.len() - 1
            }
        };
        self.order.resize(self.order.len().max(turn + 1), at);
        self.order[turn] = at;
        at
    }

    /// Sets a column's numbers to null from a row on.
    pub(crate) fn forget(&mut self, name: &str, row: usize) {
        for (_, cells) in self.columns.iter_mut().filter(|(known, _)| known == name) {
            if let GrowingColumn::Numbers(values) = cells {
                values.truncate(row);
            }
        }
    }

    /// Appends the rows of the following part.
    pub(crate) fn join(&mut self, behind: Self) {
        for (name, cells) in behind.columns.into_iter().filter(|(_, cells)| cells.len() > 0) {
            let at = self.columns.iter().position(|(known, _)| *known == name);
            let at = at.unwrap_or_else(|| {
                self.columns.push((name, cells.empty()));
                self.columns.len() - 1
            });
            let column = &mut self.columns[at].1;
            column.grow_to(self.count);
            column.join(cells);
        }
        self.count += behind.count;
    }

    pub(crate) fn into_columns(self) -> TableColumns {
        let count = self.count;
        let finished = self.columns.into_iter().map(|(name, cells)| TableColumn {
            name,
            cells: cells.finish(count),
        });
        TableColumns::new(count, finished.collect())
    }
}

/// Last row of a table.
pub(crate) struct LastRow<'a> {
    rows: &'a mut GrowingTable,
    /// Number of values given so far, absent ones included.
    turn: usize,
}

impl LastRow<'_> {
    /// Sets a number; an absent or not finite one is null.
    pub(crate) fn num(mut self, name: &str, value: impl Into<Option<f64>>) -> Self {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            let row = self.rows.count - 1;
            let column = self.rows.column(name, ColumnType::Number, self.turn);
            if column.len() < row {
                column.grow_to(row);
            }
            if let GrowingColumn::Numbers(values) = column {
                values.truncate(row);
                values.push(value);
            }
        }
        self.turn += 1;
        self
    }

    /// Sets a text; an empty one is null, and only the first text of a column and row is retained.
    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        if !value.is_empty() {
            let row = self.rows.count - 1;
            let column = self.rows.column(name, ColumnType::Text, self.turn);
            if column.len() < row {
                column.grow_to(row);
            }
            match column {
                GrowingColumn::Labels(labels) if labels.len() == row => {
                    labels.push(value);
                    column.drop_useless();
                }
                GrowingColumn::Texts(texts) if texts.len() == row => texts.push(value),
                _ => {}
            }
        }
        self.turn += 1;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_which_few_are_equal_lose_their_dictionary_and_nothing_else() {
        let mut rows = GrowingTable::new(TableKind::Events);
        let text = |at: usize| {
            if at.is_multiple_of(3) {
                String::new()
            } else {
                format!("text {at}")
            }
        };
        for at in 0..200_000 {
            rows.row()
                .num("time", at as f64)
                .text("message", &text(at))
                .text("node", "a");
        }
        assert!(matches!(
            rows.column("message", ColumnType::Text, 1),
            GrowingColumn::Texts(_)
        ));
        assert!(matches!(
            rows.column("node", ColumnType::Text, 2),
            GrowingColumn::Labels(_)
        ));
        let columns = rows.into_columns();
        let found = columns.labels("message").expect("a column");
        assert_eq!(found.names.len(), 133_333);
        let wanted = |(at, found): (usize, Option<&str>)| found.unwrap_or_default() == text(at);
        assert!(found.texts().enumerate().all(wanted));
    }

    #[test]
    fn a_row_that_skips_a_value_and_one_that_names_them_in_another_order_are_right() {
        let mut rows = GrowingTable::new(TableKind::Failures);
        rows.row().num("time", 1.0).text("node", "a").text("x_more", "one");
        rows.row().num("time", None).text("node", "").text("x_more", "two");
        rows.row().text("x_more", "three").text("node", "c").num("time", 3.0);
        rows.row().text("node", "d").text("node", "not this").num("time", 4.0);
        let columns = rows.into_columns();
        let texts = |name: &str| {
            let labels = columns.labels(name).expect("a column");
            labels
                .texts()
                .map(|text| text.unwrap_or("-").to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(texts("node"), ["a", "-", "c", "d"]);
        assert_eq!(texts("x_more"), ["one", "two", "three", "-"]);
        let times = columns.numbers("time").expect("a column");
        assert_eq!(
            (times[0], times[2], times[3], columns.known("time")),
            (1.0, 3.0, 4.0, Some(3))
        );
        assert!(times[1].is_nan());
    }
}
