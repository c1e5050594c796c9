//! Intervals in which nodes were up or down.

use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, TableKind as Canonical};
use rankguard_statistics::kaplan_meier::ObservedLifetime;

use crate::error::StudyError;

/// Interval of one node, times in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeInterval {
    /// Index among the names of the node column.
    pub(crate) node: u32,
    pub(crate) start: f64,
    /// `None` if no end was observed.
    pub(crate) end: Option<f64>,
    /// True if the interval is censored: it has no end, or only the end of observation, which the source
    /// marks in `x_cut`.
    pub(crate) went_on: bool,
    pub(crate) up: bool,
}

/// Time of one interval within the observation.
pub(crate) struct ObservedTime {
    /// Index among the names of the node column.
    pub(crate) node: u32,
    pub(crate) up: bool,
    /// Seconds, 0 or more.
    pub(crate) seconds: f64,
}

/// All intervals with a node, a start and a state.
pub(crate) struct IntervalTable {
    pub(crate) rows: Vec<NodeInterval>,
}

impl IntervalTable {
    pub(crate) fn of(data: &Dataset) -> Result<Self, StudyError> {
        let nodes = data.labels(Canonical::Outages, "node")?;
        let starts = data.numbers(Canonical::Outages, "start")?;
        let ends = data.numbers(Canonical::Outages, "end")?;
        let states = data.labels(Canonical::Outages, "state")?;
        let cut = data.numbers(Canonical::Outages, "x_cut").ok();
        let up = states.names.iter().position(|name| name == "up");
        let rows = nodes.of.iter().zip(starts.iter()).zip(ends.iter()).zip(&states.of);
        let rows = rows.enumerate().filter_map(|(at, (((node, start), end), state))| {
            Some(NodeInterval {
                node: node.name()?,
                start: Some(*start).filter(|start| !start.is_nan())?,
                end: Some(*end).filter(|end| !end.is_nan()),
                went_on: end.is_nan() || cut.as_ref().is_some_and(|cut| cut[at] == 1.0),
                up: Some(state.name()? as usize) == up,
            })
        });
        Ok(Self { rows: rows.collect() })
    }

    /// Returns how long each interval was observed. One without an end lasts to the next interval of its node, or to
    /// `seen_until` in seconds; it is left out if neither is known.
    pub(crate) fn observed(&self, seen_until: Option<f64>) -> Vec<ObservedTime> {
        let mut starts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for interval in &self.rows {
            starts.entry(interval.node).or_default().push(interval.start);
        }
        let next = |of: &NodeInterval| {
            let later = starts[&of.node].iter().copied().filter(|start| *start > of.start);
            later.min_by(f64::total_cmp)
        };
        let observed = self.rows.iter().filter_map(|interval| {
            let end = interval.end.or_else(|| next(interval)).or(seen_until)?;
            Some(ObservedTime {
                node: interval.node,
                up: interval.up,
                seconds: (end - interval.start).max(0.0),
            })
        });
        observed.collect()
    }

    /// Returns the lengths in hours of the intervals in one state that have both ends.
    pub(crate) fn hours(&self, up: bool) -> Vec<f64> {
        let chosen = self.rows.iter().filter(|interval| interval.up == up);
        let ended = chosen.filter_map(|interval| Some((interval.end? - interval.start) / 3_600.0));
        ended.collect()
    }

    /// Returns the lengths in hours of all intervals in one state; censored ones as far as they were
    /// observed.
    pub(crate) fn lives(&self, up: bool, seen_until: f64) -> Vec<ObservedLifetime> {
        let chosen = self.rows.iter().filter(|interval| interval.up == up);
        let life = |interval: &NodeInterval| ObservedLifetime {
            time: (interval.end.unwrap_or(seen_until) - interval.start) / 3_600.0,
            failed: !interval.went_on,
        };
        chosen.map(life).collect()
    }
}
