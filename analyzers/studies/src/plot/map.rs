//! Cells of a floor or of a row of nodes, the darker the more.

use std::fmt::Write as _;

use super::WIDTH;

const LEFT: f64 = 40.0;
const TOP: f64 = 40.0;
/// Cells of a line where there is one row alone.
const LINE: u32 = 32;
/// The largest side of a cell.
const SIDE: f64 = 28.0;
/// Columns or rows past this are not drawn: nobody would see them.
const MOST: u32 = 400;

/// The drawing and its height.
pub(super) fn draw(cells: &[((u32, u32), f64)]) -> (String, f64) {
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
    let mut body = String::new();
    for (cell, (column, row), value) in seen() {
        let name = if is_line {
            cell.0.to_string()
        } else {
            format!("column {}, row {}", cell.0, cell.1)
        };
        let _ = write!(
            body,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{name}: {}</title></rect>",
            LEFT + side * f64::from(column),
            TOP + side * f64::from(row),
            side - 1.0,
            side - 1.0,
            colour(value / most),
            crate::Cell::from(value),
        );
    }
    let mut label = |x: f64, y: f64, anchor: &str, text: u32| {
        let _ = write!(
            body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    };
    for row in (0..rows).step_by((rows as usize / 16).max(1)) {
        let first = if is_line { row * LINE } else { row };
        label(LEFT - 6.0, TOP + side * (f64::from(row) + 0.5) + 4.0, "end", first);
    }
    let below = TOP + side * f64::from(rows) + 14.0;
    for column in (0..columns)
        .step_by((columns as usize / 16).max(1))
        .filter(|_| !is_line)
    {
        label(LEFT + side * (f64::from(column) + 0.5), below, "middle", column);
    }
    legend(most, below + 14.0, &mut body);
    (body, below + 70.0)
}

/// Five colours and the values that they stand for.
fn legend(most: f64, y: f64, body: &mut String) {
    for (at, share) in [0.0, 0.25, 0.5, 0.75, 1.0].into_iter().enumerate() {
        let x = LEFT + 110.0 * at as f64;
        let _ = write!(
            body,
            "<rect x=\"{x}\" y=\"{y:.1}\" width=\"14\" height=\"14\" fill=\"{}\" stroke=\"#999\"/><text x=\"{}\" \
             y=\"{:.1}\">{}</text>",
            colour(share),
            x + 19.0,
            y + 11.0,
            crate::Cell::from(most * share),
        );
    }
}

/// From nearly white to dark red.
fn colour(share: f64) -> String {
    let share = share.clamp(0.0, 1.0);
    let mix = |from: f64, to: f64| (from + (to - from) * share).round() as u8;
    format!(
        "#{:02x}{:02x}{:02x}",
        mix(250.0, 127.0),
        mix(246.0, 0.0),
        mix(240.0, 25.0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_darkest_and_one_row_is_broken_into_lines() {
        let (body, height) = draw(&[((0, 0), 0.0), ((1, 0), 2.0), ((0, 1), f64::NAN), ((1, 1), 1.0)]);
        assert!(body.contains(&format!("fill=\"{}\"><title>column 1, row 0: 2<", colour(1.0))));
        assert!(!body.contains("NaN") && body.matches("<title>").count() == 3);
        let line: Vec<_> = (0..100).map(|number| ((number, 0), f64::from(number))).collect();
        let (body, taller) = draw(&line);
        assert!(body.contains(">96</text>") && taller > height, "{taller}");
        assert!(!draw(&[]).0.contains("NaN"));
    }
}
