//! Measured panels of a job's figure.

use std::fmt::Write as _;

use rankguard_model::{JobView, ProgressPoint};

use super::axis::{self, LinearAxis};
use super::canvas::{FigurePanel, LEFT, RIGHT, TimeAxis, WIDTH};

/// Space above a panel's plot for its heading, and below the plot.
const HEAD: f64 = 22.0;
const FOOT: f64 = 14.0;

/// Renders the loss, one line per generation, with the checkpoints below it.
pub(super) fn loss(job: &JobView, clock: &TimeAxis, top: f64) -> Option<FigurePanel> {
    let values: Vec<(&ProgressPoint, f64)> = job
        .progress
        .iter()
        .filter_map(|point| Some((point, point.loss.filter(|loss| loss.is_finite())?)))
        .collect();
    if values.is_empty() {
        return None;
    }
    let high = values.iter().map(|(_, loss)| *loss).fold(f64::MIN, f64::max);
    let low = values.iter().map(|(_, loss)| *loss).fold(0.0, f64::min);
    let mut plot = PanelPlot::new("loss", top, 130.0, low, high * 1.04);
    plot.lines(clock, &values, "loss");
    for checkpoint in &job.checkpoints {
        let x = clock.at(checkpoint.committed_at);
        let y = plot.bottom();
        let _ = write!(
            plot.svg,
            "<path class=\"checkpoint\" d=\"M{x:.1} {:.1} l3.5 4 l-3.5 4 l-3.5 -4 z\"><title>checkpoint of step {}, \
             generation {}</title></path>",
            y - 4.0,
            checkpoint.step,
            checkpoint.generation
        );
    }
    Some(plot.panel())
}

/// Renders the wall time of steps; outliers are drawn at the upper edge.
pub(super) fn step_time(job: &JobView, clock: &TimeAxis, top: f64) -> Option<FigurePanel> {
    let values: Vec<(&ProgressPoint, f64)> = job
        .progress
        .iter()
        .filter(|point| point.step_ms.is_finite())
        .map(|point| (point, point.step_ms))
        .collect();
    let high = values.iter().map(|(_, ms)| *ms).fold(f64::MIN, f64::max);
    let usual = share(values.iter().map(|(_, ms)| *ms).collect(), 0.95)? * 2.0;
    let mut plot = PanelPlot::new("step time, ms", top, 86.0, 0.0, high.min(usual) * 1.06);
    plot.lines(clock, &values, "step-time");
    for (point, ms) in values.iter().filter(|(_, ms)| plot.axis.is_above(*ms)) {
        let x = clock.at(point.at);
        let y = plot.axis.at(*ms);
        let _ = write!(
            plot.svg,
            "<path class=\"beyond\" d=\"M{x:.1} {y:.1} l4 6 h-8 z\"><title>step {}: {} ms</title></path>",
            point.step,
            axis::number(*ms)
        );
    }
    Some(plot.panel())
}

/// Renders the wait of each rank for each checkpoint.
pub(super) fn stalls(job: &JobView, clock: &TimeAxis, top: f64) -> Option<FigurePanel> {
    let stalls = || {
        let all = job
            .checkpoints
            .iter()
            .flat_map(|saved| saved.stall_ms.iter().map(move |(rank, ms)| (saved, *rank, *ms)));
        all.filter(|(_, _, ms)| ms.is_finite())
    };
    let high = stalls().map(|(_, _, ms)| ms).fold(f64::MIN, f64::max);
    stalls().next()?;
    let mut plot = PanelPlot::new("checkpoint stall, ms a rank", top, 62.0, 0.0, high * 1.1);
    for (saved, rank, ms) in stalls() {
        let x = clock.at(saved.committed_at);
        let y = plot.axis.at(ms);
        let _ = write!(
            plot.svg,
            "<circle class=\"stall\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\"><title>step {}, rank {rank}: {} ms</title></circle>",
            saved.step,
            axis::number(ms)
        );
    }
    Some(plot.panel())
}

/// Returns the quantile of the values at `share`.
fn share(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let place = (values.len().checked_sub(1)? as f64 * share).round() as usize;
    values.get(place).copied()
}

struct PanelPlot {
    top: f64,
    height: f64,
    axis: LinearAxis,
    svg: String,
}

impl PanelPlot {
    fn new(heading: &str, top: f64, height: f64, low: f64, high: f64) -> Self {
        let axis = LinearAxis::new(low, high, top + HEAD + height, top + HEAD);
        let mut svg = format!(
            "<text class=\"panel-name\" x=\"{LEFT}\" y=\"{:.1}\">{heading}</text>",
            top + HEAD - 7.0
        );
        for tick in axis.ticks(if height > 100.0 { 4 } else { 2 }) {
            let y = axis.at(tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                axis::number(tick)
            );
        }
        Self { top, height, axis, svg }
    }

    fn bottom(&self) -> f64 {
        self.top + HEAD + self.height
    }

    /// Draws one line per generation: there is no measurement between two generations.
    fn lines(&mut self, clock: &TimeAxis, values: &[(&ProgressPoint, f64)], class: &str) {
        for run in values.chunk_by(|(a, _), (b, _)| a.generation == b.generation) {
            let place = |(point, value): &(&ProgressPoint, f64)| (clock.at(point.at), self.axis.at(*value));
            if let [single] = run {
                let (x, y) = place(single);
                let _ = write!(
                    self.svg,
                    "<circle class=\"{class}-dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.8\"/>"
                );
                continue;
            }
            let places = run.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}"));
            let places = places.collect::<Vec<_>>().join(" ");
            let _ = write!(self.svg, "<polyline class=\"{class}\" points=\"{places}\"/>");
        }
    }

    fn panel(self) -> FigurePanel {
        FigurePanel {
            height: HEAD + self.height + FOOT,
            svg: self.svg,
        }
    }
}
