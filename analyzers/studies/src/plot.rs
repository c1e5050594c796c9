//! Pictures as SVG text: bars of a few values, steps of one or more curves, maps of cells.

mod map;

use std::fmt::Write as _;

use serde::Serialize;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 210.0;
const BAR: f64 = 22.0;
const HEIGHT: f64 = 380.0;
const COLOURS: [&str; 6] = ["#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568"];

/// What is drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// A name and a value each.
    Bars(Vec<(String, f64)>),
    /// A name and its points each, from left to right, held until the next.
    Steps(Vec<(String, Vec<(f64, f64)>)>),
    /// Column, row and value of each cell; one row alone is broken into lines.
    Map(Vec<((u32, u32), f64)>),
}

/// One picture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The horizontal axis, with its unit.
    pub across: String,
    /// Values.
    pub shape: Shape,
}

impl Plot {
    /// As an SVG document.
    pub fn svg(&self) -> String {
        let (body, height) = match &self.shape {
            Shape::Bars(bars) => (draw_bars(bars), 70.0 + BAR * bars.len() as f64),
            Shape::Steps(curves) => (draw_steps(curves), HEIGHT + 60.0),
            Shape::Map(cells) => map::draw(cells),
        };
        let (title, across) = (escape(&self.title), escape(&self.across));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/><text x=\"12\" y=\"20\" \
             font-size=\"14\">{title}</text>{body}<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{across}</text></svg>\n",
            0.5 * (LEFT + WIDTH),
            height - 10.0
        )
    }
}

fn draw_bars(bars: &[(String, f64)]) -> String {
    let largest = bars.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let mut body = String::new();
    for (at, (name, value)) in bars.iter().enumerate() {
        let y = 34.0 + BAR * at as f64;
        let wide = (WIDTH - LEFT - 90.0) * value.max(0.0) / largest;
        let _ = write!(
            body,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{LEFT}\" y=\"{y}\" width=\"{wide:.1}\" \
             height=\"{}\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{}\">{}</text>",
            LEFT - 6.0,
            y + 13.0,
            escape(&name.chars().take(34).collect::<String>()),
            BAR - 5.0,
            COLOURS[0],
            LEFT + wide + 5.0,
            y + 13.0,
            crate::Cell::from(*value),
        );
    }
    body
}

fn draw_steps(curves: &[(String, Vec<(f64, f64)>)]) -> String {
    let points = || {
        curves
            .iter()
            .flat_map(|(_, points)| points)
            .filter(|p| p.0.is_finite() && p.1.is_finite())
    };
    let right = points().map(|p| p.0).fold(f64::MIN_POSITIVE, f64::max);
    let low = points().map(|p| p.1).fold(f64::INFINITY, f64::min).min(1.0);
    let high = points().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max);
    let left = 70.0;
    let x = |v: f64| left + (WIDTH - left - 20.0) * v / right;
    let y = |v: f64| 40.0 + (HEIGHT - 40.0) * (high - v) / (high - low).max(f64::MIN_POSITIVE);
    let mut body = String::new();
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let (across, up) = (right * share, low + (high - low) * share);
        let _ = write!(
            body,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text><text x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text><line x1=\"{left}\" x2=\"{}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
            x(across),
            HEIGHT + 18.0,
            crate::Cell::from(across),
            left - 6.0,
            y(up) + 4.0,
            crate::Cell::from(up),
            WIDTH - 20.0,
            y(up),
            y(up),
        );
    }
    for (at, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let mut path = String::new();
        for (at, (px, py)) in points.iter().filter(|p| p.0.is_finite() && p.1.is_finite()).enumerate() {
            if at == 0 {
                let _ = write!(path, "M{:.1} {:.1}", x(*px), y(*py));
            } else {
                let _ = write!(path, "H{:.1}V{:.1}", x(*px), y(*py));
            }
        }
        let _ = write!(
            body,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/><text x=\"{}\" y=\"{}\" \
             text-anchor=\"end\" fill=\"{colour}\">{}</text>",
            WIDTH - 24.0,
            54.0 + 16.0 * at as f64,
            escape(name)
        );
    }
    body
}

/// Text that is safe inside an element: foreign names may hold anything.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_cannot_leave_their_element() {
        let plot = Plot {
            title: "a <script> & \u{1b}".to_owned(),
            across: "s".to_owned(),
            shape: Shape::Bars(vec![("</text>".to_owned(), 3.0), ("b".to_owned(), 6.0)]),
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
            let plot = Plot {
                title: String::new(),
                across: String::new(),
                shape: Shape::Steps(vec![("one".to_owned(), points)]),
            };
            assert!(!plot.svg().contains("NaN"));
        }
    }
}
