//! Plots: bars of a few values, step curves, maps of cells.

mod drawing;
mod map;

use serde::Serialize;

pub(crate) use drawing::escape;
pub use drawing::{DrawingItem, INK, RgbColour, SvgDrawing, TextAnchor};

const WIDTH: f64 = 720.0;
const LEFT: f64 = 210.0;
const BAR: f64 = 22.0;
const HEIGHT: f64 = 380.0;
const COLOURS: [RgbColour; 6] = [
    [0x2b, 0x6c, 0xb0],
    [0xc0, 0x56, 0x21],
    [0x2f, 0x85, 0x5a],
    [0x6b, 0x46, 0xc1],
    [0xb8, 0x32, 0x80],
    [0x4a, 0x55, 0x68],
];
/// Colour of grid lines.
const FAINT: RgbColour = [0xdd, 0xdd, 0xdd];

/// Content of a plot.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotContent {
    /// Name and value of each bar.
    Bars(Vec<(String, f64)>),
    /// Name and points of each curve, from left to right; a value holds until the next point.
    Steps(Vec<(String, Vec<(f64, f64)>)>),
    /// Column, row and value of each cell; a single row is broken into lines.
    Map(Vec<((u32, u32), f64)>),
}

/// Plot with title and axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StudyPlot {
    pub title: String,
    /// Label of the horizontal axis, with its unit.
    pub across: String,
    pub shape: PlotContent,
}

impl StudyPlot {
    /// Renders the plot as an SVG document.
    pub fn svg(&self) -> String {
        self.drawing().svg()
    }

    /// Renders the plot as drawing items.
    pub fn drawing(&self) -> SvgDrawing {
        let mut drawing = SvgDrawing::new(WIDTH, 0.0);
        drawing.headline((12.0, 20.0), &*self.title);
        drawing.height = match &self.shape {
            PlotContent::Bars(bars) => draw_bars(bars, &mut drawing),
            PlotContent::Steps(curves) => draw_steps(curves, &mut drawing),
            PlotContent::Map(cells) => map::draw(cells, &mut drawing),
        };
        let below = (0.5 * (LEFT + WIDTH), drawing.height - 10.0);
        drawing.words(below, TextAnchor::Middle, &*self.across);
        drawing
    }
}

/// Draws bars; returns the height of the picture.
fn draw_bars(bars: &[(String, f64)], into: &mut SvgDrawing) -> f64 {
    let largest = bars.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    for (at, (name, value)) in bars.iter().enumerate() {
        let y = 34.0 + BAR * at as f64;
        let wide = (WIDTH - LEFT - 90.0) * value.max(0.0) / largest;
        let name: String = name.chars().take(34).collect();
        into.words((LEFT - 6.0, y + 13.0), TextAnchor::End, name);
        into.boxed((LEFT, y), (wide, BAR - 5.0), COLOURS[0]);
        let value = crate::ResultCell::from(*value).to_string();
        into.words((LEFT + wide + 5.0, y + 13.0), TextAnchor::Start, value);
    }
    70.0 + BAR * bars.len() as f64
}

fn draw_steps(curves: &[(String, Vec<(f64, f64)>)], into: &mut SvgDrawing) -> f64 {
    let finite = |point: &&(f64, f64)| point.0.is_finite() && point.1.is_finite();
    let points = || curves.iter().flat_map(|(_, points)| points).filter(finite);
    let right = points().map(|p| p.0).fold(f64::MIN_POSITIVE, f64::max);
    let low = points().map(|p| p.1).fold(f64::INFINITY, f64::min).min(1.0);
    let high = points().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max);
    let left = 70.0;
    let x = |v: f64| left + (WIDTH - left - 20.0) * v / right;
    let y = |v: f64| 40.0 + (HEIGHT - 40.0) * (high - v) / (high - low).max(f64::MIN_POSITIVE);
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let across = right * share;
        let up = low + (high - low) * share;
        let label = |value: f64| crate::ResultCell::from(value).to_string();
        into.words((x(across), HEIGHT + 18.0), TextAnchor::Middle, label(across));
        into.words((left - 6.0, y(up) + 4.0), TextAnchor::End, label(up));
        into.line(vec![(left, y(up)), (WIDTH - 20.0, y(up))], FAINT, 1.0);
    }
    for (at, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let mut path: Vec<(f64, f64)> = Vec::new();
        for (px, py) in points.iter().filter(finite) {
            // A value holds until the next point.
            if let Some((_, held)) = path.last() {
                path.push((x(*px), *held));
            }
            path.push((x(*px), y(*py)));
        }
        into.line(path, colour, 1.6);
        into.coloured(
            (WIDTH - 24.0, 54.0 + 16.0 * at as f64),
            TextAnchor::End,
            &**name,
            colour,
        );
    }
    HEIGHT + 60.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_cannot_leave_their_element() {
        let plot = StudyPlot {
            title: "a <script> & \u{1b}".to_owned(),
            across: "s".to_owned(),
            shape: PlotContent::Bars(vec![("</text>".to_owned(), 3.0), ("b".to_owned(), 6.0)]),
        };
        let svg = plot.svg();
        assert!(svg.contains("a &lt;script&gt; &amp; \u{fffd}") && !svg.contains("</text></text>"));
        assert!(
            svg.contains("width=\"210.0\"") && svg.contains("width=\"420.0\""),
            "{svg}"
        );
    }

    #[test]
    fn a_curve_without_points_or_of_one_value_draws_no_nan() {
        for points in [vec![], vec![(0.0, 1.0)], vec![(0.0, 1.0), (5.0, 1.0), (f64::NAN, 0.2)]] {
            let plot = StudyPlot {
                title: String::new(),
                across: String::new(),
                shape: PlotContent::Steps(vec![("one".to_owned(), points)]),
            };
            assert!(!plot.svg().contains("NaN"));
        }
    }
}
