//! LANL node failures 1996-2005, the release LA-UR-05-7318: 23 systems, root cause and repair time.

use std::collections::BTreeMap;

use crate::csv::DelimitedFile;
use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::provenance::Population;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::time;

/// US Mountain time by the rule of 1987 to 2006.
const ZONE: &str = "MST7MDT,M4.1.0,M10.5.0";
const CAUSES: [&str; 6] = [
    "Facilities",
    "Hardware",
    "Human Error",
    "Network",
    "Undetermined",
    "Software",
];

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "lanl",
    title: "LANL node failures 1996-2005 (LA-UR-05-7318, USENIX CFDR): 23 systems, root cause, repair time",
    licence: "public release LA-UR-05-7318; recognise Los Alamos National Laboratory for providing the data",
    citation: "B. Schroeder, G. Gibson, A large-scale study of failures in high-performance computing systems, DSN 2006; data: Los Alamos National Laboratory",
    home: "USENIX CFDR, LA-UR-05-7318",
    clock: "US Mountain wall clock without offset, counted as UTC; repair_s is Down Time, the true elapsed time",
    traps: &[
        "System 2 of this file is system 20 of the paper",
        "Fixed minus Started is an hour off where daylight saving changed between them: use repair_s",
        "rows are ordered by system, not by time; exact repeats are kept, as the published counts keep them",
        "a null class means that no cause column is filled; the paper counts it with Undetermined as unknown",
        "Same Event is always No: correlated failures must be found from equal times",
    ],
    role,
    read,
    ..SourceFormat::PLAIN
};

fn role(head: &FileHead) -> Option<&'static str> {
    let is = (0..3).any(|at| {
        let line = head.line(at);
        ["System", "nodenumz", "Prob Started", "Down Time", "Undetermined"]
            .iter()
            .all(|name| line.contains(name))
    });
    is.then_some("failures")
}

/// Reads lines up to the header; the release has a title above it.
fn header<'a>(input: &'a mut InputFile, load: &mut LoadState) -> Option<DelimitedFile<'a>> {
    let mut names = None;
    while names.is_none() {
        let line = input.line(load)?;
        if line.contains("Down Time") {
            let short = |name: &str| name.split(" (").next().unwrap_or(name).trim().to_owned();
            names = Some(line.split(',').map(short).collect());
        }
    }
    names.map(|names| DelimitedFile::with_header(input, ",", names))
}

fn read(_: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let Some(mut csv) = header(input, load) else {
        return;
    };
    let zone = time::zone(ZONE);
    let mut systems: BTreeMap<String, Option<f64>> = BTreeMap::new();
    while csv.next(load) {
        let Some(system) = csv.need("System", load) else {
            continue;
        };
        let start = load.time("Prob Started", csv.get("Prob Started"), time::american);
        let end = load.time("Prob Fixed", csv.get("Prob Fixed"), time::american);
        let minutes = csv.num("Down Time", load);
        let nodes = csv.num("nodes", load);
        let Some(start) = start else {
            load.lose("missing", "Prob Started", || {
                "a failure without its time; passed over".to_owned()
            });
            continue;
        };
        if let (Some(end), Some(minutes), Some(zone)) = (end, minutes, &zone) {
            let elapsed = time::in_zone(end, zone).zip(time::in_zone(start, zone));
            let off = elapsed.map(|(end, start)| (end.0 - start.0 - minutes * 60.0).abs());
            if off.is_some_and(|off| off > 60.0) {
                load.report_kept_row("clock", "Down Time", || "differs from Fixed minus Started by more than a minute, the clock's change counted in; Down Time is used".to_owned());
            }
        }
        let filled: Vec<&str> = CAUSES.into_iter().filter(|cause| !csv.get(cause).is_empty()).collect();
        if filled.len() > 1 {
            load.report_kept_row("bad-value", filled[1], || {
                format!("more than one cause; {} is used", filled[0])
            });
        }
        let class = filled.first().copied().unwrap_or("");
        let node = csv.get("nodenum");
        // Node numbers restart in every system.
        let name = if node.is_empty() {
            String::new()
        } else {
            format!("{system}/{node}")
        };
        load.row(TableKind::Failures)
            .num("time", start)
            .num("end", end)
            .num("repair_s", minutes.map(|minutes| minutes * 60.0))
            .text("node", &name)
            .text("system", &system)
            .text("class", class)
            .text("subclass", csv.get(class))
            .text("x_node_number", node)
            .text("x_machine_type", csv.get("machine type"))
            .text("x_purpose", csv.get("purpose"))
            .text("x_unit", csv.get("fru type"));
        if node.is_empty() {
            load.report_kept_row("null", "nodenum", || "no node number; node is null".to_owned());
        }
        let known = systems.entry(system).or_default();
        *known = nodes.or(*known);
    }
    inventory(&systems, load);
}

/// Writes the inventory; every record states the number of nodes of its system.
fn inventory(systems: &BTreeMap<String, Option<f64>>, load: &mut LoadState) {
    for (system, nodes) in systems {
        load.row(TableKind::Nodes)
            .text("system", system)
            .text("kind", "system")
            .num("x_nodes", *nodes);
    }
    let count = systems.values().flatten().sum::<f64>();
    if count >= 1.0 {
        load.population = Some(Population {
            count: count as u64,
            unit: "nodes",
            from: "the column `nodes`, once a system; a system that states none is not in it",
        });
    }
}
