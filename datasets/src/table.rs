//! Canonical tables and their columns.

use serde::Serialize;

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    /// Double, null if absent. Times are seconds in the data set's own clock.
    Number,
    /// UTF-8 text, null if absent.
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TableKind {
    /// One row a job, from the scheduler's accounting.
    Jobs,
    /// One row an attempt of a job, or a step of it.
    Attempts,
    /// One row a node (or device, if the source counts devices) of an inventory.
    Nodes,
    /// One row a failure, as published: events, not incidents.
    Failures,
    /// One row an interval in which a node was up or down.
    Outages,
    /// One row a change of the number of available nodes, valid from its time on.
    Capacity,
    /// One row a measured or tabulated value.
    Samples,
    /// One row a log event.
    Events,
}

const fn number(name: &'static str) -> (&'static str, ColumnType) {
    (name, ColumnType::Number)
}

const fn text(name: &'static str) -> (&'static str, ColumnType) {
    (name, ColumnType::Text)
}

impl TableKind {
    /// All tables, in listing order.
    pub const ALL: [Self; 8] = [
        Self::Jobs,
        Self::Attempts,
        Self::Nodes,
        Self::Failures,
        Self::Outages,
        Self::Capacity,
        Self::Samples,
        Self::Events,
    ];

    /// Returns the name in commands and folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Attempts => "attempts",
            Self::Nodes => "nodes",
            Self::Failures => "failures",
            Self::Outages => "outages",
            Self::Capacity => "capacity",
            Self::Samples => "samples",
            Self::Events => "events",
        }
    }

    /// Returns the table of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Returns the canonical columns. A source may add more, with names that begin with `x_`.
    pub fn columns(self) -> &'static [(&'static str, ColumnType)] {
        const JOBS: &[(&str, ColumnType)] = &[
            text("job"),
            text("user"),
            text("queue"),
            number("submit"),
            number("start"),
            number("end"),
            number("elapsed_s"),
            text("state"),
            text("state_raw"),
            number("nodes"),
            number("gpus"),
            text("exit_code"),
        ];
        const ATTEMPTS: &[(&str, ColumnType)] = &[
            text("job"),
            text("attempt"),
            number("start"),
            number("end"),
            text("state"),
            text("node"),
        ];
        const NODES: &[(&str, ColumnType)] = &[
            text("node"),
            text("kind"),
            text("rack"),
            text("system"),
            number("installed"),
            number("removed"),
            number("gpus"),
            number("cpus"),
        ];
        const FAILURES: &[(&str, ColumnType)] = &[
            number("time"),
            number("end"),
            number("repair_s"),
            text("node"),
            text("device"),
            text("system"),
            text("class"),
            text("subclass"),
            text("level"),
            text("job"),
        ];
        const OUTAGES: &[(&str, ColumnType)] = &[text("node"), number("start"), number("end"), text("state")];
        const CAPACITY: &[(&str, ColumnType)] = &[number("time"), text("zone"), number("available")];
        const SAMPLES: &[(&str, ColumnType)] = &[
            number("time"),
            text("node"),
            text("metric"),
            number("value"),
            text("unit"),
        ];
        const EVENTS: &[(&str, ColumnType)] = &[
            number("time"),
            text("node"),
            text("label"),
            text("severity"),
            text("message"),
        ];
        match self {
            Self::Jobs => JOBS,
            Self::Attempts => ATTEMPTS,
            Self::Nodes => NODES,
            Self::Failures => FAILURES,
            Self::Outages => OUTAGES,
            Self::Capacity => CAPACITY,
            Self::Samples => SAMPLES,
            Self::Events => EVENTS,
        }
    }

    /// Returns the columns of times, for the window.
    pub(crate) fn times(self) -> &'static [&'static str] {
        match self {
            Self::Jobs => &["submit", "start", "end"],
            Self::Attempts | Self::Outages => &["start", "end"],
            Self::Nodes => &[],
            Self::Failures => &["time", "end"],
            Self::Capacity | Self::Samples | Self::Events => &["time"],
        }
    }

    /// Returns the columns without which a row has little use: time and place, or owner.
    pub(crate) fn needed(self) -> &'static [&'static str] {
        match self {
            Self::Jobs | Self::Attempts => &["job"],
            Self::Nodes => &["node"],
            Self::Failures => &["time", "node"],
            Self::Outages => &["node", "start"],
            Self::Capacity => &["time", "available"],
            Self::Samples => &["time", "metric", "value"],
            Self::Events => &["time"],
        }
    }

    /// Returns the columns with the start, the end and the length in seconds of a row's span.
    pub(crate) fn span(self) -> [&'static str; 3] {
        match self {
            Self::Failures => ["time", "end", "repair_s"],
            Self::Nodes => ["installed", "removed", ""],
            _ => ["start", "end", "elapsed_s"],
        }
    }

    /// Returns true if this column holds a time.
    pub fn is_time(self, column: &str) -> bool {
        self.times().contains(&column) || (self == Self::Nodes && matches!(column, "installed" | "removed"))
    }

    /// Returns the column by which a log of this kind is ordered; accounting files have none.
    pub(crate) fn ordered_by(self) -> Option<&'static str> {
        match self {
            Self::Failures | Self::Capacity | Self::Samples | Self::Events => Some("time"),
            _ => None,
        }
    }
}
