//! Faults of nodes and GPUs: InfiniteHBD, LANL, Titan.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_datasets::{Dataset, TableKind};
use rankguard_statistics::fit::{Distribution, DurationSample, ZeroTreatment};
use rankguard_statistics::sample::{self, SampleSummary};

use crate::error::StudyError;
use crate::reproduced::FigureCollector;
use crate::studies::availability::down_share;
use crate::studies::mix::counts;

const DAY: f64 = 86_400.0;

/// Level, class and count of the authors' fault_statistics.json: all of them.
const CLASSES: [(&str, &str, u32); 22] = [
    ("Hardware", "GPU", 158),
    ("Hardware", "Parameter Plane Cable", 40),
    ("Hardware", "Fan", 33),
    ("Hardware", "NIC", 30),
    ("Hardware", "Power Supply", 26),
    ("Hardware", "Motherboard", 4),
    ("Hardware", "CPU", 3),
    ("Hardware", "Motherboard Battery", 1),
    ("Hardware", "RAID Card", 1),
    ("Hardware", "Riser Card", 1),
    ("Hardware", "Other Failures", 1),
    ("Software", "Software Tool", 7),
    ("Software", "File System", 3),
    ("Software", "Operating System", 1),
    ("Software", "Firmware", 1),
    ("Software", "Other Failures", 12),
    ("Other", "Unknown Error", 144),
    ("Other", "Stress Test Failure", 97),
    ("Other", "Training Task Troubleshooting", 14),
    ("Other", "Change", 4),
    ("Other", "Test", 2),
    ("Other", "System Crash", 1),
];

pub(super) fn infinitehbd(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const BY: &str = "InfiniteHBD-Trace, fault_statistics.json";
    const SHARE: &str =
        "faults of this kind over all 584 faults, per cent; start and end paired by node and whole fault type";
    let classes = data.strings(TableKind::Failures, "class")?;
    let levels = data.strings(TableKind::Failures, "level")?;
    let mut kinds: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (level, class) in levels.iter().zip(&classes) {
        let words = (level.as_deref().unwrap_or(""), class.as_deref().unwrap_or(""));
        *kinds.entry(words).or_default() += 1;
    }
    let count = |wanted: &str, class: Option<&str>| -> u64 {
        let fits =
            |(level, found): &(&str, &str)| level.starts_with(wanted) && class.is_none_or(|class| class == *found);
        kinds.iter().filter(|(kind, _)| fits(kind)).map(|(_, n)| n).sum()
    };
    let all = levels.len();
    let faults = figures.add("mix", "faults", all as f64, 584.0, 0.0);
    faults.printed("584", BY).defined("faults with a start");
    for (level, class, expected) in CLASSES {
        let expected = 100.0 * f64::from(expected) / 584.0;
        let found = 100.0 * count(level, Some(class)) as f64 / all as f64;
        let share = figures.add("mix", &format!("{level}: {class}, %"), found, expected, 0.0);
        share.printed(&format!("{expected:.2}"), BY).defined(SHARE);
    }
    for (start, expected) in [("Hardware", 298.0), ("Software", 24.0), ("Other", 262.0)] {
        let expected = 100.0 * expected / 584.0;
        let found = 100.0 * count(start, None) as f64 / all as f64;
        let share = figures.add("mix", &format!("level {start}, %"), found, expected, 0.0);
        share.printed(&format!("{expected:.2}"), BY).defined(SHARE);
    }
    let nodes: BTreeSet<_> = data
        .strings(TableKind::Failures, "node")?
        .into_iter()
        .flatten()
        .collect();
    let failed = figures.add("mix", "servers with a fault", nodes.len() as f64, 231.0, 0.0);
    failed
        .printed("231", "InfiniteHBD-Trace")
        .defined("distinct nodes among the faults");
    let times = data.f64s(TableKind::Failures, "time")?;
    let first = times.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let end = data.window.map_or(0.0, |window| window.1);
    for (from, name, expected) in [(0.0, "clock's 0", 2.31), (first, "first event", 2.34)] {
        let down = 100.0 * down_share(data, (from, end), 400.0)?.share;
        let share = figures.add(
            "availability",
            &format!("mean share down from the {name}, %"),
            down,
            expected,
            0.005,
        );
        share.defined("union of fault intervals for each node over 400 servers and the window to the last event");
    }
    Ok(())
}

type RepairFigures = (&'static str, &'static [&'static str], f64, f64, f64, f64);

/// Cause as named in the paper, columns of the release, and minutes as this definition gave them: mean, median,
/// deviation, and the count.
const REPAIR: [RepairFigures; 6] = [
    ("unknown", &["Undetermined", "(none)"], 396.8, 32.0, 6_090.7, 3_105.0),
    ("human", &["Human Error"], 163.1, 44.0, 421.5, 149.0),
    ("environment", &["Facilities"], 572.3, 276.0, 810.9, 362.0),
    ("network", &["Network"], 250.0, 70.0, 723.4, 421.0),
    ("software", &["Software"], 348.2, 43.0, 5_462.0, 5_361.0),
    ("hardware", &["Hardware"], 343.8, 68.0, 4_133.5, 14_341.0),
];

pub(super) fn lanl(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const MINUTES: &str =
        "column Down Time of each record, minutes, exact repeats kept; unknown is Undetermined or no cause";
    let causes = data.labels(TableKind::Failures, "class")?;
    let repairs = data.numbers(TableKind::Failures, "repair_s")?;
    let mut all = Vec::new();
    let mut row = |name: &str, times: &[f64], wanted: [f64; 4]| {
        let Some(found) = SampleSummary::of(times) else {
            return;
        };
        let found = [
            found.count as f64,
            found.mean / 60.0,
            found.median / 60.0,
            found.deviation.map_or(f64::NAN, |deviation| deviation / 60.0),
        ];
        let tolerances = [0.0, 0.05, 0.0, 0.05];
        for (at, what) in [
            "records",
            "mean repair, min",
            "median repair, min",
            "deviation of repair, min",
        ]
        .iter()
        .enumerate()
        {
            let figure = figures.add(
                "repair",
                &format!("{name}: {what}"),
                found[at],
                wanted[at],
                tolerances[at],
            );
            figure.defined(MINUTES);
        }
    };
    let mut shares = Vec::new();
    for (name, columns, mean, median, deviation, count) in REPAIR {
        let named = causes.texts().zip(repairs.iter());
        let chosen = named.filter(|(cause, time)| columns.contains(&cause.unwrap_or("(none)")) && time.is_finite());
        let times: Vec<f64> = chosen.map(|(_, time)| *time).collect();
        row(name, &times, [count, mean, median, deviation]);
        shares.push((name, times.len() as f64, count));
        all.extend(times);
    }
    row("all", &all, [23_739.0, 352.4, 59.0, 4_683.0]);
    let records = figures.add("mix", "records", all.len() as f64, 23_739.0, 0.0);
    records
        .printed("about 23,000", "DSN'06, abstract")
        .bounded(22_500.0, Some(23_500.0))
        .defined("every record of the release, which is slightly larger than the paper's set");
    for (name, found, count) in shares {
        let share = 100.0 * found / all.len() as f64;
        let figure = figures.add("mix", &format!("{name}, %"), share, 100.0 * count / 23_739.0, 0.000_5);
        figure.defined("records of this cause over all; unknown is Undetermined or no cause");
    }
    years(data, figures)?;
    node_22(data, figures)
}

/// Computes failures a year of the systems with the fewest and the most failures.
fn years(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    let systems = data.strings(TableKind::Failures, "system")?;
    let times = data.f64s(TableKind::Failures, "time")?;
    let mut spans: BTreeMap<String, (f64, f64, f64)> = BTreeMap::new();
    for (system, time) in systems.into_iter().zip(times) {
        if let (Some(system), Some(time)) = (system, time) {
            let (first, last, count) = spans.entry(system).or_insert((time, time, 0.0));
            *first = first.min(time);
            *last = last.max(time);
            *count += 1.0;
        }
    }
    let rates = spans.values().filter(|(first, last, _)| last > first);
    // Whole days, as the difference of dates.
    let rates: Vec<f64> = rates
        .map(|(first, last, count)| count / (((last - first) / DAY).floor() / 365.25))
        .collect();
    let fewest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    for (name, found, expected) in [("fewest", fewest, 22.0), ("most", most, 1_196.0)] {
        let figure = figures.add(
            "mtbf",
            &format!("{name} failures a year of a system"),
            found,
            expected,
            0.5,
        );
        figure.printed("20 to 1000", "DSN'06, abstract").bounded(20.0, Some(1_000.0)).defined(
            "records of a system over the years of 365.25 days between its first and its last; the release is larger than the paper's set",
        );
    }
    Ok(())
}

/// Computes figures of node 22 of the machine of 49 nodes: System 2 of the release, system 20 of the paper.
fn node_22(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const GAPS: &str = "gaps between failures of node 22 of System 2 from 2000-01-01 on; Weibull by maximum likelihood, zero gaps dropped";
    // 2000-01-01 in the data set's clock.
    let from = 10_957.0 * DAY;
    let times = data.f64s(TableKind::Failures, "time")?;
    let nodes = data.strings(TableKind::Failures, "node")?;
    let rows = times.into_iter().zip(nodes);
    let chosen = rows.filter(|(time, node)| node.as_deref() == Some("2/22") && time.is_some_and(|time| time >= from));
    let times: Vec<f64> = chosen.filter_map(|(time, _)| time).collect();
    let gaps = sample::gaps(&times);
    let fit = DurationSample::new(&gaps, ZeroTreatment::Dropped).map(|sample| sample.weibull().distribution);
    if let Some(Distribution::Weibull { shape, .. }) = fit {
        figures
            .add("fits", "node 22, Weibull shape", shape, 0.735, 0.000_5)
            .defined(GAPS);
    }
    if let Some(c2) = SampleSummary::of(&gaps).and_then(|gaps| gaps.c2) {
        figures
            .add("fits", "node 22, C2 of gaps", c2, 1.87, 0.005)
            .defined("the same gaps, zero gaps kept");
    }
    Ok(())
}

pub(super) fn titan(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const BY: &str = "TitanGPULife, R report";
    let dbe = data.f64s(TableKind::Nodes, "x_dbe")?;
    let otb = data.f64s(TableKind::Nodes, "x_otb")?;
    let dead = data.strings(TableKind::Nodes, "x_dead")?;
    let years: f64 = data.f64s(TableKind::Nodes, "x_time_s")?.iter().flatten().sum::<f64>() / (365.25 * DAY);
    let events: Vec<(f64, bool)> = dbe
        .iter()
        .zip(&otb)
        .zip(&dead)
        .map(|((dbe, otb), dead)| (dbe.unwrap_or(0.0) + otb.unwrap_or(0.0), dead.as_deref() == Some("TRUE")))
        .collect();
    let count = |wanted: &dyn Fn(&(f64, bool)) -> bool| events.iter().filter(|gpu| wanted(gpu)).count() as f64;
    let gpus = figures.add("survival", "GPUs", events.len() as f64, 30_207.0, 0.0);
    gpus.printed("more than 30,000", "SC'20, abstract")
        .bounded(30_000.0, None)
        .defined("serial numbers in the table of one row a GPU");
    let sum = figures.add("survival", "GPU-years", years, 100_820.0, 0.5);
    sum.printed("over 100,000", "SC'20, abstract")
        .bounded(100_000.0, None)
        .defined("sum of time in service, years of 365.25 days");
    let rows: [(&str, f64, &str, f64); 4] = [
        (
            "GPUs with a double-bit error or off the bus",
            count(&|gpu| gpu.0 > 0.0),
            "5,190",
            5_190.0,
        ),
        ("of them dead", count(&|gpu| gpu.0 > 0.0 && gpu.1), "5,089", 5_089.0),
        ("of them alive", count(&|gpu| gpu.0 > 0.0 && !gpu.1), "101", 101.0),
        ("with more than one event", count(&|gpu| gpu.0 > 1.0), "551", 551.0),
    ];
    for (name, computed, printed, expected) in rows {
        let figure = figures.add("survival", name, computed, expected, 0.0);
        figure
            .printed(printed, BY)
            .defined("per serial number; dead: out of service before the end with at least one event");
    }
    let classes: BTreeMap<String, u64> = counts(&data.strings(TableKind::Failures, "class")?)
        .into_iter()
        .collect();
    for (class, expected) in [("DBE", 4_826.0), ("OTB", 1_541.0)] {
        let found = classes.get(class).copied().unwrap_or(0) as f64;
        let figure = figures.add("mix", &format!("{class} events"), found, expected, 0.0);
        figure.defined("rows with this event, an event is not a replacement");
    }
    Ok(())
}
