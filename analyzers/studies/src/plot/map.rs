//! Heat maps of floor cells or of a row of nodes: a darker colour is a larger value.

use super::{DrawingItem, RgbColour, SvgDrawing, TextAnchor, WIDTH};

const LEFT: f64 = 40.0;
const TOP: f64 = 40.0;
/// Cells a line if there is a single row.
const LINE: u32 = 32;
/// Maximum side of a cell.
const SIDE: f64 = 28.0;
/// Border of legend boxes, because the lightest colour is nearly white.
const EDGE: RgbColour = [0x99, 0x99, 0x99];
/// Maximum columns or rows that are drawn: further cells would be too small to see.
const MOST: u32 = 400;

/// Draws cells; returns the height of the picture.
pub(super) fn draw(cells: &[((u32, u32), f64)], into: &mut SvgDrawing) -> f64 {
    let is_line = cells.iter().all(|(cell, _)| cell.1 == 0);
    let placed = |(column, row): (u32, u32)| {
        if is_line {
            (column % LINE, column / LINE)
        } else {
            (column, row)
        }
    };
    let seen = || {
        cells
            .iter()
            .map(|(cell, value)| (*cell, placed(*cell), *value))
            .filter(|(_, (column, row), value)| *column < MOST && *row < MOST && value.is_finite())
    };
    let columns = seen().map(|(_, at, _)| at.0 + 1).max().unwrap_or(1);
    let rows = seen().map(|(_, at, _)| at.1 + 1).max().unwrap_or(1);
    let side = ((WIDTH - LEFT - 20.0) / f64::from(columns)).min(SIDE);
    let most = seen().map(|(_, _, value)| value).fold(f64::MIN_POSITIVE, f64::max);
    for (cell, (column, row), value) in seen() {
        let name = if is_line {
            cell.0.to_string()
        } else {
            format!("column {}, row {}", cell.0, cell.1)
        };
        into.items.push(DrawingItem::Box {
            at: (LEFT + side * f64::from(column), TOP + side * f64::from(row)),
            size: (side - 1.0, side - 1.0),
            fill: colour(value / most),
            title: Some(format!("{name}: {}", crate::ResultCell::from(value))),
        });
    }
    for row in (0..rows).step_by((rows as usize / 16).max(1)) {
        let first = if is_line { row * LINE } else { row };
        let at = (LEFT - 6.0, TOP + side * (f64::from(row) + 0.5) + 4.0);
        into.words(at, TextAnchor::End, first.to_string());
    }
    let below = TOP + side * f64::from(rows) + 14.0;
    for column in (0..columns)
        .step_by((columns as usize / 16).max(1))
        .filter(|_| !is_line)
    {
        let at = (LEFT + side * (f64::from(column) + 0.5), below);
        into.words(at, TextAnchor::Middle, column.to_string());
    }
    legend(most, below + 14.0, into);
    below + 70.0
}

/// Draws five colours with their values.
fn legend(most: f64, y: f64, into: &mut SvgDrawing) {
    for (at, share) in [0.0, 0.25, 0.5, 0.75, 1.0].into_iter().enumerate() {
        let x = LEFT + 110.0 * at as f64;
        into.boxed((x, y), (14.0, 14.0), EDGE);
        into.boxed((x + 1.0, y + 1.0), (12.0, 12.0), colour(share));
        let value = crate::ResultCell::from(most * share).to_string();
        into.words((x + 19.0, y + 11.0), TextAnchor::Start, value);
    }
}

/// Returns a colour between nearly white and dark red.
fn colour(share: f64) -> RgbColour {
    let share = share.clamp(0.0, 1.0);
    let mix = |from: f64, to: f64| (from + (to - from) * share).round() as u8;
    [mix(250.0, 127.0), mix(246.0, 0.0), mix(240.0, 25.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_darkest_and_one_row_is_broken_into_lines() {
        let drawn = |cells: &[((u32, u32), f64)]| {
            let mut drawing = SvgDrawing::new(WIDTH, 0.0);
            let height = draw(cells, &mut drawing);
            (drawing, height)
        };
        let (drawing, height) = drawn(&[((0, 0), 0.0), ((1, 0), 2.0), ((0, 1), f64::NAN), ((1, 1), 1.0)]);
        let of_cells: Vec<(RgbColour, &str)> = drawing.items.iter().filter_map(cell).collect();
        assert_eq!(of_cells.len(), 3);
        assert!(of_cells.contains(&(colour(1.0), "column 1, row 0: 2")), "{of_cells:?}");
        assert!(!drawing.svg().contains("NaN"));
        let line: Vec<_> = (0..100).map(|number| ((number, 0), f64::from(number))).collect();
        let (drawing, taller) = drawn(&line);
        assert!(drawing.svg().contains(">96</text>") && taller > height, "{taller}");
        assert!(!drawn(&[]).0.svg().contains("NaN"));
    }

    fn cell(item: &DrawingItem) -> Option<(RgbColour, &str)> {
        match item {
            DrawingItem::Box { fill, title, .. } => Some((*fill, title.as_deref()?)),
            _ => None,
        }
    }
}
