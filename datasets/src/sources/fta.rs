//! Failure Trace Archive tab files: up and down intervals of every node, and the inventory. Grid'5000 is one of its
//! systems, with its own source name.

use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::provenance::Population;
use crate::record::FieldRecord;
use crate::rows::GrowingTable;
use crate::source::SourceFormat;
use crate::table::TableKind;

const CITATION: &str = "D. Kondo, B. Javadi, A. Iosup, D. Epema, The Failure Trace Archive: Enabling Comparative Analysis of Failures in Diverse Distributed Systems, CCGrid 2010";
const CLOCK: &str = "Unix seconds";
const TRAPS: &[&str] = &[
    "event_type 1 is available: the coding stands in the archive's documents, not in the file",
    "first and last interval of a node are cut by the observation",
    "component_id and event_id are no keys; nodes are told by node_name",
    "no cause is recorded: maintenance is in it",
];

pub(super) const GRID5000: SourceFormat = SourceFormat {
    name: "grid5000",
    title: "Grid'5000 node availability 2005-2006 (Failure Trace Archive g5k06): 1,288 nodes, up and down intervals",
    licence: "none stated, copyright Grid5000 team: use and cite, do not pass on",
    citation: CITATION,
    home: "Failure Trace Archive, system g5k06",
    clock: CLOCK,
    traps: TRAPS,
    role,
    sign: |heads| {
        heads
            .iter()
            .any(|head| head.text.contains("Grid5000") || head.text.contains("Grid'5000"))
    },
    read,
    finish,
    ..SourceFormat::PLAIN
};

pub(super) const ANY: SourceFormat = SourceFormat {
    name: "fta",
    title: "Failure Trace Archive: tab files of any system",
    licence: "as the system's creator.tab states",
    citation: CITATION,
    home: "Failure Trace Archive",
    clock: CLOCK,
    traps: TRAPS,
    role,
    read,
    finish,
    ..SourceFormat::PLAIN
};

const ROLES: [(&str, &[&str]); 7] = [
    (
        "intervals",
        &[
            "event_id",
            "node_name",
            "event_type",
            "event_start_time",
            "event_stop_time",
        ],
    ),
    ("nodes", &["node_id", "node_name", "node_location", "num_procs"]),
    (
        "components",
        &["component_id", "component_type", "trace_start", "trace_end"],
    ),
    ("platforms", &["platform_id", "platform_name", "platform_type"]),
    ("creators", &["creator_id", "creator", "cite"]),
    ("states of events", &["event_id", "component_id", "i_val", "s_val"]),
    ("performance of nodes", &["metric_id", "node_id", "sfpop_speed"]),
];

fn role(head: &FileHead) -> Option<&'static str> {
    let first = head.line(0).strip_prefix('#')?;
    let has = |wanted: &&str| first.split_ascii_whitespace().any(|name| name == *wanted);
    ROLES
        .iter()
        .find(|(_, columns)| columns.iter().all(has))
        .map(|(role, _)| *role)
}

fn read(role: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let mut record = FieldRecord::default();
    let Some(header) = input.line(load) else {
        return;
    };
    record.split_blanks(header.trim_start_matches('#'));
    let names: Vec<String> = record.fields().map(str::to_owned).collect();
    let place = |wanted: &str| names.iter().position(|name| name == wanted).unwrap_or(usize::MAX);
    let node = place("node_name");
    let kind = place("event_type");
    let start = place("event_start_time");
    let end = place("event_stop_time");
    let location = place("node_location");
    let processors = place("num_procs");
    let per = place("cores_per_proc");
    while let Some(line) = input.line(load) {
        if line.trim().is_empty() {
            continue;
        }
        record.split_blanks(line);
        load.read_row();
        load.repeat(line);
        match role {
            "intervals" | "nodes" if record.len() != names.len() => {
                let found = record.len();
                let wanted = names.len();
                load.lose("width", "", || {
                    format!("{found} fields where the header has {wanted}; passed over")
                });
            }
            "intervals" => {
                let state = match record.at(kind) {
                    "1" => "up",
                    "0" => "down",
                    _ => {
                        load.lose("bad-value", "event_type", || "neither 0 nor 1; passed over".to_owned());
                        continue;
                    }
                };
                let from = load.number("event_start_time", record.at(start));
                let to = load.number("event_stop_time", record.at(end));
                if from.zip(to).is_some_and(|(from, to)| to < from) {
                    load.report_kept_row("backwards", "event_stop_time", || {
                        "ends before it starts; kept".to_owned()
                    });
                }
                load.row(TableKind::Outages)
                    .text("node", record.at(node))
                    .num("start", from)
                    .num("end", to)
                    .text("state", state);
            }
            "nodes" => {
                let count = load.number("num_procs", record.at(processors));
                let cores = load.number("cores_per_proc", record.at(per));
                let rack = record.at(location);
                load.row(TableKind::Nodes)
                    .text("node", record.at(node))
                    .text("kind", "node")
                    .text("rack", if rack == "NULL" { "" } else { rack })
                    .num("cpus", count.map(|count| count * cores.unwrap_or(1.0)));
            }
            _ => {}
        }
    }
}

/// Sets the population from the inventory, which includes nodes that were never down.
fn finish(load: &mut LoadState) {
    let nodes = load.tables.get(&TableKind::Nodes).map_or(0, GrowingTable::len) as u64;
    load.population = (nodes > 0).then_some(Population {
        count: nodes,
        unit: "nodes",
        from: "the inventory, node.tab",
    });
}
