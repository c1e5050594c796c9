//! The comparison as a picture: a bar a policy, its confidence interval across the end.

use std::fmt::Write as _;

use rankguard_policies::compare::Row;

use super::Answer;
use super::print::label;

const ROW: f64 = 20.0;
const LEFT: f64 = 150.0;
const WIDE: f64 = 480.0;

/// An SVG document.
pub(super) fn svg(answer: &Answer) -> String {
    let rows: usize = answer
        .scenarios
        .iter()
        .map(|scenario| scenario.comparison.rows.len() + 2)
        .sum();
    let height = ROW * (rows as f64 + 3.0);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"12\">",
        LEFT + WIDE + 120.0
    );
    let _ = writeln!(text, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>");
    let _ = writeln!(text, "<text x=\"8\" y=\"16\">{}</text>", escaped(&answer.trace));
    let mut y = 2.0 * ROW;
    for scenario in &answer.scenarios {
        let _ = writeln!(
            text,
            "<text x=\"8\" y=\"{:.0}\" font-weight=\"bold\">{}: goodput, % of wall time</text>",
            y + 14.0,
            escaped(&label(scenario))
        );
        y += ROW;
        for row in &scenario.comparison.rows {
            bar(&mut text, row, y);
            y += ROW;
        }
        y += ROW;
    }
    text.push_str("</svg>\n");
    text
}

fn bar(text: &mut String, row: &Row, y: f64) {
    let at = |share: f64| LEFT + WIDE * share.clamp(0.0, 1.0);
    let (mean, low, high) = (row.goodput.mean, row.goodput.low, row.goodput.high);
    let middle = y + ROW / 2.0;
    let _ = writeln!(
        text,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
        LEFT - 6.0,
        y + 14.0,
        escaped(&row.policy.to_string())
    );
    let _ = writeln!(
        text,
        "<rect x=\"{LEFT:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#7fa7d1\"/>",
        y + 3.0,
        at(mean) - LEFT,
        ROW - 6.0
    );
    let _ = writeln!(
        text,
        "<path d=\"M{0:.1} {middle:.1}H{1:.1}M{0:.1} {2:.1}v6M{1:.1} {2:.1}v6\" stroke=\"#222\" fill=\"none\"/>",
        at(low),
        at(high),
        middle - 3.0
    );
    let _ = writeln!(
        text,
        "<text x=\"{:.0}\" y=\"{:.0}\">{:.2}</text>",
        LEFT + WIDE + 8.0,
        y + 14.0,
        100.0 * mean
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
