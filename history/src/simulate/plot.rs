//! Picture of the comparison: one bar a policy, with its confidence interval across the end.

use rankguard_policies::compare::PolicyResult;
use rankguard_studies::{RgbColour, SvgDrawing, TextAnchor};

use super::SimulationReport;
use super::print::label;

const ROW: f64 = 20.0;
const LEFT: f64 = 150.0;
const WIDE: f64 = 480.0;
const BAR: RgbColour = [0x7f, 0xa7, 0xd1];
const WHISKER: RgbColour = [0x22, 0x22, 0x22];

pub(super) fn drawing(answer: &SimulationReport) -> SvgDrawing {
    let rows: usize = answer
        .scenarios
        .iter()
        .map(|scenario| scenario.comparison.rows.len() + 2)
        .sum();
    let mut drawing = SvgDrawing::new(LEFT + WIDE + 120.0, ROW * (rows as f64 + 3.0));
    drawing.words((8.0, 16.0), TextAnchor::Start, &*answer.trace);
    let mut y = 2.0 * ROW;
    for scenario in &answer.scenarios {
        let headline = format!("{}: goodput, % of wall time", label(scenario));
        drawing.headline((8.0, y + 14.0), headline);
        y += ROW;
        for row in &scenario.comparison.rows {
            bar(&mut drawing, row, y);
            y += ROW;
        }
        y += ROW;
    }
    drawing
}

fn bar(drawing: &mut SvgDrawing, row: &PolicyResult, y: f64) {
    let at = |share: f64| LEFT + WIDE * share.clamp(0.0, 1.0);
    let mean = row.goodput.mean;
    let low = row.goodput.low;
    let high = row.goodput.high;
    let middle = y + ROW / 2.0;
    drawing.words((LEFT - 6.0, y + 14.0), TextAnchor::End, row.policy.to_string());
    drawing.boxed((LEFT, y + 3.0), (at(mean) - LEFT, ROW - 6.0), BAR);
    drawing.line(vec![(at(low), middle), (at(high), middle)], WHISKER, 1.0);
    for end in [at(low), at(high)] {
        drawing.line(vec![(end, middle - 3.0), (end, middle + 3.0)], WHISKER, 1.0);
    }
    let value = format!("{:.2}", 100.0 * mean);
    drawing.words((LEFT + WIDE + 8.0, y + 14.0), TextAnchor::Start, value);
}
