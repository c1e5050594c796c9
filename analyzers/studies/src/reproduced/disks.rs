//! Disks and intervals: Alpine, Alibaba's drives, Grid'5000.

use rankguard_datasets::Dataset;
use rankguard_statistics::fit::{Distribution, DurationSample, ZeroTreatment};
use rankguard_statistics::sample::SampleSummary;

use crate::error::StudyError;
use crate::reproduced::FigureCollector;
use crate::studies::bursts::BurstChains;
use crate::studies::correlated::close;
use crate::studies::fits::gaps;
use crate::studies::intervals::IntervalTable;

pub(super) fn alpine(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const BY: &str = "data set 10.13139/OLCF/2441482 and the authors' notebook";
    let bursts = BurstChains::of(data, 900.0)?;
    let count = bursts.chains.len() as f64;
    let durations = bursts.durations();
    let summary = SampleSummary::of(&durations);
    let short = durations.iter().filter(|duration| **duration < 600.0).count() as f64;
    let in_one_rack = bursts.in_one_rack.unwrap_or(0) as f64;
    let largest = bursts.chains.iter().max_by_key(|burst| burst.members);
    let rows: [(&str, f64, &str, f64, f64); 12] = [
        ("failures", bursts.failures as f64, "3,766", 3_766.0, 0.0),
        ("bursts", count, "281", 281.0, 0.0),
        ("failures in bursts", bursts.members() as f64, "711", 711.0, 0.0),
        (
            "their share, %",
            100.0 * bursts.members() as f64 / bursts.failures as f64,
            "18.8794",
            18.879_4,
            5e-5,
        ),
        (
            "median duration, s",
            summary.map_or(f64::NAN, |d| d.median),
            "42",
            42.0,
            0.0,
        ),
        ("longest, s", summary.map_or(f64::NAN, |d| d.max), "1,484", 1_484.0, 0.0),
        ("largest, disks", bursts.largest() as f64, "18", 18.0, 0.0),
        ("under ten minutes, %", 100.0 * short / count, "95.018", 95.018, 5e-4),
        (
            "of exactly two, %",
            100.0 * bursts.of_two() as f64 / count,
            "76.512",
            76.512,
            6e-4,
        ),
        ("within one rack", in_one_rack, "50", 50.0, 0.0),
        ("over several racks", count - in_one_rack, "231", 231.0, 0.0),
        (
            "duration of the largest, s",
            largest.map_or(f64::NAN, |burst| burst.duration),
            "839",
            839.0,
            0.0,
        ),
    ];
    for (name, computed, printed, expected, tolerance) in rows {
        let figure = figures.add("bursts", name, computed, expected, tolerance);
        figure
            .printed(printed, BY)
            .defined("burst: chain of at least two failures, each less than 900 s after the one before");
    }
    let Some(sample) = DurationSample::new(&gaps(data)?, ZeroTreatment::Replaced(1e-6)) else {
        return Ok(());
    };
    let mut rows = Vec::new();
    if let Distribution::Exponential { mean } = sample.exponential().distribution {
        rows.push(("exponential mean, s", mean, "41,585.003", 41_585.003, 5e-4));
    }
    if let Distribution::Weibull { shape, scale } = sample.weibull().distribution {
        rows.push(("Weibull shape", shape, "0.51929", 0.519_29, 5e-6));
        rows.push(("Weibull scale, s", scale, "23,743.15", 23_743.15, 0.5));
    }
    if let Some(Distribution::Gamma { shape, scale }) = sample.gamma().map(|fit| fit.distribution) {
        rows.push(("gamma shape", shape, "0.37325", 0.373_25, 5e-6));
        rows.push(("gamma scale, s", scale, "111,412.05", 111_412.05, 1.0));
    }
    if let Distribution::Lognormal { mu, sigma } = sample.lognormal().distribution {
        rows.push(("lognormal sigma", sigma, "3.37168", 3.371_68, 5e-6));
        rows.push(("lognormal median, s", mu.exp(), "6,993.12", 6_993.12, 0.01));
    }
    for (name, computed, printed, expected, tolerance) in rows {
        let figure = figures.add("fits", name, computed, expected, tolerance);
        figure.printed(printed, BY).defined(
            "3,765 gaps between failures, zero gaps replaced by 1e-6 s as the authors did; dropping them changes the shape",
        );
    }
    Ok(())
}

pub(super) fn alibaba(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    for (place, name, expected) in [("node", "node", 12.88), ("x_rack", "rack", 18.30)] {
        let (counts, all) = close(data, place, &[1_800.0])?;
        let count: usize = counts.into_iter().sum();
        let name = format!("failures with another on the same {name} within 30 minutes, %");
        let figure = figures.add("correlated", &name, 100.0 * count as f64 / all as f64, expected, 0.005);
        figure.defined("the previous or the next failure of that place is at most 30 minutes away; of all 18,387");
    }
    Ok(())
}

/// Printed value, the same as a number, and its tolerance.
type PrintedValue = (&'static str, f64, f64);

pub(super) fn grid5000(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const BY: &str = "FTA models as carried by OpenDC";
    const HOURS: &str = "intervals of this state in hours, all nodes together; maximum likelihood, location 0, zero lengths dropped; the first and last of a node not treated as censored";
    let intervals = IntervalTable::of(data)?;
    let wanted: [(bool, &str, [PrintedValue; 4], f64); 2] = [
        (
            true,
            "availability",
            [
                ("0.48", 0.48, 0.005),
                ("14.37", 14.37, 0.005),
                ("1.51", 1.51, 0.005),
                ("2.42", 2.42, 0.005),
            ],
            32.406,
        ),
        (
            false,
            "unavailability",
            [
                ("0.35", 0.35, 0.005),
                ("0.47", 0.47, 0.005),
                ("-2.00", -2.0, 0.005),
                ("2.20", 2.2, 0.005),
            ],
            7.414,
        ),
    ];
    for (up, name, printed, mean) in wanted {
        let all = intervals.hours(up);
        let Some(sample) = DurationSample::new(&all, ZeroTreatment::Dropped) else {
            continue;
        };
        let weibull = sample.weibull().distribution;
        let lognormal = sample.lognormal().distribution;
        let (Distribution::Weibull { shape, scale }, Distribution::Lognormal { mu, sigma }) = (weibull, lognormal)
        else {
            continue;
        };
        let names = [
            "Weibull shape",
            "Weibull scale, h",
            "lognormal mu, ln h",
            "lognormal sigma",
        ];
        for ((what, computed), (text, expected, tolerance)) in names.iter().zip([shape, scale, mu, sigma]).zip(printed)
        {
            let figure = figures.add("fits", &format!("{name}: {what}"), computed, expected, tolerance);
            figure.printed(text, BY).defined(HOURS);
        }
        let length = SampleSummary::of(&all).map_or(f64::NAN, |lengths| lengths.mean);
        let figure = figures.add("fits", &format!("{name}: mean, h"), length, mean, 0.000_5);
        figure.defined("mean of all intervals of this state, zero lengths too");
    }
    Ok(())
}
