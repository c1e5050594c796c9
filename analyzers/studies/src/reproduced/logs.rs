//! Logs and pods: BG/L, loghub, openb.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_datasets::{Dataset, TableKind};

use crate::error::StudyError;
use crate::reproduced::FigureCollector;
use crate::studies::coalesce::by_file;
use crate::studies::mix::counts;

pub(super) fn bgl(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const BY: &str = "the authors' filtered logs in the same folder";
    let files = by_file(data, 600.0)?;
    let Some((file, all)) = files.into_iter().find(|(name, _)| name.contains("all-fail")) else {
        return Ok(());
    };
    for (left, (name, printed, expected)) in all.by_place.into_iter().zip([
        ("repeats anywhere", "1,435", 1_435.0),
        ("repeats before the colon of the location", "27,370", 27_370.0),
        ("repeats at the full location", "61,944", 61_944.0),
    ]) {
        let figure = figures.add(
            "coalesce",
            &format!("events left without {name}"),
            left as f64,
            expected,
            0.0,
        );
        figure.printed(printed, BY).defined(
            "in the order of the file; a repeat has the pattern its place had last, not more than 600 whole seconds ago, and moves that moment forward",
        );
    }
    let files_of = data.labels(TableKind::Events, "x_file")?;
    let messages = data.labels(TableKind::Events, "message")?;
    for (pattern, expected) in [
        ("Lustre mount FAILED", 31_531.0),
        ("rts: kernel terminated", 23_338.0),
        ("rts panic!", 3_983.0),
    ] {
        let rows = files_of.texts().zip(messages.texts());
        let found = rows.filter(|(of, text)| *of == Some(&*file) && text.is_some_and(|text| text.contains(pattern)));
        let found = found.count() as f64;
        let figure = figures.add("coalesce", &format!("events with {pattern:?}"), found, expected, 0.0);
        figure.defined("lines of the whole failure log whose text holds this pattern");
    }
    Ok(())
}

/// Number of templates of each system, from its template file.
const TEMPLATES: [(&str, f64); 10] = [
    ("BGL", 120.0),
    ("Thunderbird", 149.0),
    ("Hadoop", 114.0),
    ("HDFS", 14.0),
    ("Spark", 36.0),
    ("Linux", 118.0),
    ("OpenStack", 43.0),
    ("Zookeeper", 50.0),
    ("Apache", 6.0),
    ("OpenSSH", 27.0),
];

pub(super) fn loghub(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    let systems = data.strings(TableKind::Events, "x_system")?;
    let templates = data.strings(TableKind::Events, "x_template")?;
    let labels = data.strings(TableKind::Events, "label")?;
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (system, template) in systems.iter().zip(&templates) {
        if let (Some(system), Some(template)) = (system, template) {
            found.entry(system).or_default().insert(template);
        }
    }
    for (system, expected) in TEMPLATES {
        let Some(templates) = found.get(system) else {
            continue;
        };
        let figure = figures.add(
            "mix",
            &format!("{system}: templates"),
            templates.len() as f64,
            expected,
            0.0,
        );
        figure
            .printed(&expected.to_string(), "loghub template files")
            .defined("distinct event ids of the structured sample");
    }
    let alerts = systems.iter().zip(&labels).filter(|(system, label)| {
        system.as_deref() == Some("BGL") && label.as_deref().is_some_and(|label| !label.is_empty() && label != "-")
    });
    let figure = figures.add("mix", "BGL: alerts", alerts.count() as f64, 143.0, 0.0);
    figure.defined("lines of the sample whose label is not '-'");
    Ok(())
}

pub(super) fn openb(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    const BY: &str = "cluster-trace-gpu-v2023 README";
    let phases = counts(&data.strings(TableKind::Jobs, "state_raw")?);
    let pods: u64 = phases.iter().map(|(_, n)| n).sum();
    let nodes = data.rows.get(&TableKind::Nodes).copied().unwrap_or(0);
    figures
        .add("jobs", "pods", pods as f64, 8_152.0, 0.0)
        .printed("8,152", BY)
        .defined("rows of the default pod list");
    figures
        .add("jobs", "nodes", nodes as f64, 1_523.0, 0.0)
        .printed("1,523", BY)
        .defined("rows of the list of all nodes");
    for (phase, expected) in [
        ("Running", 63.70),
        ("Failed", 22.94),
        ("Pending", 11.00),
        ("Succeeded", 2.36),
    ] {
        let count = phases.iter().find(|(name, _)| name == phase).map_or(0, |(_, n)| *n);
        let figure = figures.add(
            "jobs",
            &format!("{phase}, %"),
            100.0 * count as f64 / pods as f64,
            expected,
            0.005,
        );
        figure.defined("pods by the last phase seen before deletion; Running is no success and no live pod");
    }
    Ok(())
}

pub(super) fn eagle(data: &Dataset, figures: &mut FigureCollector) -> Result<(), StudyError> {
    let states: BTreeMap<String, u64> = counts(&data.strings(TableKind::Jobs, "state_raw")?)
        .into_iter()
        .collect();
    for (state, expected) in [("COMPLETED", 985.0), ("TIMEOUT", 15.0)] {
        let found = states.get(state).copied().unwrap_or(0) as f64;
        let figure = figures.add("jobs", &format!("jobs {state}"), found, expected, 0.0);
        figure.defined("rows of the sample of 1,000, of which 451 repeat a job id");
    }
    Ok(())
}
