//! Spot capacity: traces of SkyPilot and Bamboo.

use std::collections::BTreeMap;

use rankguard_datasets::{Dataset, TableKind};

use crate::error::StudyError;
use crate::reproduced::FigureCollector;

/// Totals over the ticks of one zone's trace.
#[derive(Debug, Clone, Copy, Default)]
struct TickTotals {
    count: f64,
    gap_s: f64,
    available: f64,
    last: Option<f64>,
    drops: f64,
    lost: f64,
}

impl TickTotals {
    fn see(&mut self, available: f64, gap_s: f64) {
        self.count += 1.0;
        self.gap_s = gap_s;
        self.available += available;
        if let Some(fall) = self.last.map(|last| last - available).filter(|fall| *fall > 0.0) {
            self.drops += 1.0;
            self.lost += fall;
        }
        self.last = Some(available);
    }

    fn days(&self) -> f64 {
        self.count * self.gap_s / 86_400.0
    }
}

/// Part of a trace's path, days, tolerance, and the authors' wording where it agrees.
const DURATIONS: [(&str, f64, f64, Option<&str>); 5] = [
    ("aws-02-15-2023/us-west-2b", 45.0, 0.5, Some("45 days")),
    ("aws-08-27-2023/us-east-2b", 11.0, 0.5, Some("11 days")),
    ("aws-08-27-2023/us-west-2a", 16.0, 0.5, Some("16 days")),
    ("aws-04-22-2023/us-west-2b", 7.0, 0.5, Some("7 days")),
    ("aws-10-26-2022/us-west-2b_v100_1", 27.05, 0.005, None),
];

/// Part of a trace's path, mean instances, drops, instances lost.
const TRACES: [(&str, f64, f64, f64); 6] = [
    ("1-node/aws-02-15-2023/us-west-2b", 0.905_0, 94.0, 94.0),
    ("1-node/aws-02-15-2023/us-east-1a", 0.166_7, 253.0, 253.0),
    ("1-node/aws-02-15-2023/us-east-2a", 0.759_3, 145.0, 145.0),
    ("16-node/aws-08-27-2023/us-east-2b", 8.757_9, 136.0, 910.0),
    ("16-node/aws-08-27-2023/us-west-2a", 6.898_6, 145.0, 1_473.0),
    ("4-node/aws-08-03-2023/us-east-1f", 1.375_5, 136.0, 195.0),
];

pub(super) fn skypilot(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    let zones = data.strings(TableKind::Capacity, "zone")?;
    let available = data.f64s(TableKind::Capacity, "available")?;
    let gaps = data.f64s(TableKind::Capacity, "x_gap_s")?;
    let mut traces: BTreeMap<&str, TickTotals> = BTreeMap::new();
    for ((zone, available), gap) in zones.iter().zip(available).zip(gaps) {
        if let (Some(zone), Some(available), Some(gap)) = (zone, available, gap) {
            traces.entry(zone).or_default().see(available, gap);
        }
    }
    let find = |part: &str| {
        traces
            .iter()
            .find(|(zone, _)| zone.contains(part))
            .map(|(_, ticks)| *ticks)
    };
    for (part, expected, tolerance, printed) in DURATIONS {
        let Some(ticks) = find(part) else { continue };
        let figure = figures.add(
            "availability",
            &format!("{part}: days"),
            ticks.days(),
            expected,
            tolerance,
        );
        match printed {
            Some(printed) => figure
                .printed(printed, "spot-traces, README")
                .defined("ticks times gap_seconds"),
            None => {
                figure.defined("ticks times gap_seconds; the README says 13 days, so either it or gap_seconds is wrong")
            }
        };
    }
    for (part, mean, drops, lost) in TRACES {
        let Some(ticks) = find(part) else { continue };
        for (name, found, expected, tolerance) in [
            ("mean instances", ticks.available / ticks.count, mean, 5e-5),
            ("drops", ticks.drops, drops, 0.0),
            ("instances lost", ticks.lost, lost, 0.0),
        ] {
            let figure = figures.add("availability", &format!("{part}: {name}"), found, expected, tolerance);
            figure.defined("over the ticks of the trace; a drop is a tick with fewer instances than the one before");
        }
    }
    Ok(())
}

/// File, adds, removes, most nodes at once, nodes at the end, hours.
const FLEETS: [(&str, f64, f64, f64, f64, f64); 2] = [
    ("p3-trace", 177.0, 167.0, 32.0, 10.0, 11.37),
    ("g4dn-trace", 79.0, 74.0, 24.0, 5.0, 10.63),
];

pub(super) fn bamboo(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    let zones = data.strings(TableKind::Capacity, "zone")?;
    let events = data.strings(TableKind::Capacity, "x_event")?;
    let available = data.f64s(TableKind::Capacity, "available")?;
    let times = data.f64s(TableKind::Capacity, "time")?;
    for (file, adds, removes, most, last, hours) in FLEETS {
        let rows: Vec<usize> = (0..zones.len())
            .filter(|at| zones[*at].as_deref().is_some_and(|zone| zone.contains(file)))
            .collect();
        let count = |event: &str| rows.iter().filter(|at| events[**at].as_deref() == Some(event)).count() as f64;
        let live = || rows.iter().filter_map(|at| available[*at]);
        let moments = || rows.iter().filter_map(|at| times[*at]);
        let span = moments().fold(f64::NEG_INFINITY, f64::max) - moments().fold(f64::INFINITY, f64::min);
        if rows.is_empty() {
            continue;
        }
        for (name, found, expected, tolerance) in [
            ("nodes added", count("add"), adds, 0.0),
            ("nodes removed", count("remove"), removes, 0.0),
            ("most nodes at once", live().fold(0.0, f64::max), most, 0.0),
            ("nodes at the end", live().next_back().unwrap_or(f64::NAN), last, 0.0),
            ("hours", span / 3_600.0, hours, 0.005),
        ] {
            let figure = figures.add("availability", &format!("{file}: {name}"), found, expected, tolerance);
            figure.defined("rows of the trace in its order; a node is there from its add to its remove");
        }
    }
    Ok(())
}
