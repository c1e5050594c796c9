//! Shared parts of a job's figure: width, time axis and panels.

use rankguard_model::Timestamp;

use super::axis::LinearAxis;

/// Width of the figure and of the margin for labels on its left.
pub(super) const WIDTH: f64 = 960.0;
pub(super) const LEFT: f64 = 92.0;
pub(super) const RIGHT: f64 = 14.0;

/// A part of the figure: its height and its content, drawn at a given upper edge.
pub(super) struct FigurePanel {
    pub(super) height: f64,
    pub(super) svg: String,
}

/// Time axis of the figure.
#[derive(Clone, Copy)]
pub(super) struct TimeAxis {
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    pub(super) axis: LinearAxis,
}

impl TimeAxis {
    pub(super) fn new(start: Timestamp, end: Timestamp) -> Self {
        let span = seconds(end, start);
        Self {
            start,
            end,
            axis: LinearAxis::new(0.0, span, LEFT, WIDTH - RIGHT),
        }
    }

    /// Returns the coordinate of a time.
    pub(super) fn at(&self, at: Timestamp) -> f64 {
        self.axis.at(seconds(at, self.start))
    }

    /// Length of the axis in seconds.
    pub(super) fn span(&self) -> f64 {
        seconds(self.end, self.start)
    }
}

fn seconds(at: Timestamp, start: Timestamp) -> f64 {
    at.millis_since(start) as f64 / 1e3
}
