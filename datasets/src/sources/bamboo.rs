//! Bamboo's spot traces: added and removed nodes (AWS), and sampled counts (GCP).

use std::collections::BTreeMap;

use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::record::FieldRecord;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::time;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "bamboo",
    title: "Bamboo spot-instance traces: nodes added and removed (AWS), counts sampled about once a minute (GCP)",
    licence: "MIT",
    citation: "J. Thorpe et al., Bamboo: Making Preemptible Instances Resilient for Affordable Training of Large DNNs, NSDI 2023",
    home: "github.com/uclasystem/bamboo, traces",
    clock: "AWS: relative milliseconds, here seconds; GCP: wall clock without zone, counted as UTC",
    traps: &[
        "removals come in groups: distinct times are preemption events, rows are nodes lost",
        "the GCP files are samples at irregular times: what happens between two is not seen",
    ],
    role,
    read,
    ..SourceFormat::PLAIN
};

fn role(head: &FileHead) -> Option<&'static str> {
    let fields: Vec<&str> = head.line(0).split(',').map(str::trim).collect();
    match fields[..] {
        [time, "add" | "remove", node] if time.parse::<u64>().is_ok() && !node.is_empty() => {
            Some("nodes that come and go")
        }
        [day, hour, count] if time::wall(&format!("{day} {hour}")).is_some() && count.parse::<u64>().is_ok() => {
            Some("sampled counts")
        }
        _ => None,
    }
}

fn read(role: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    // Milliseconds from a start and calendar dates have no common origin.
    load.no_window = true;
    let file = load.file().to_owned();
    let zone = file.rsplit_once('.').map_or(file.as_str(), |(stem, _)| stem).to_owned();
    let mut record = FieldRecord::default();
    let mut live: BTreeMap<String, f64> = BTreeMap::new();
    while let Some(line) = input.line(load) {
        if line.trim().is_empty() {
            continue;
        }
        load.read_row();
        record.split(line, ",");
        if record.len() != 3 {
            load.lose("width", "", || "not three fields; passed over".to_owned());
            continue;
        }
        if role == "sampled counts" {
            let when = time::wall(&format!("{} {}", record.at(0), record.at(1)));
            let (Some(when), Ok(count)) = (when, record.at(2).parse::<u32>()) else {
                load.lose("bad-value", "", || "no time or no count; passed over".to_owned());
                continue;
            };
            load.in_order(TableKind::Capacity, Some(when));
            load.row(TableKind::Capacity)
                .num("time", when)
                .text("zone", &zone)
                .num("available", f64::from(count));
            continue;
        }
        let (Ok(millis), node) = (record.at(0).parse::<u64>(), record.at(2)) else {
            load.lose("bad-value", "time", || "no time; passed over".to_owned());
            continue;
        };
        let when = millis as f64 / 1000.0;
        load.in_order(TableKind::Capacity, Some(when));
        match record.at(1) {
            "add" => {
                if live.insert(node.to_owned(), when).is_some() {
                    load.report_kept_row("unpaired", "node", || "added while it was there".to_owned());
                }
            }
            "remove" => match live.remove(node) {
                Some(since) => {
                    load.row(TableKind::Outages)
                        .text("node", node)
                        .num("start", since)
                        .num("end", when)
                        .text("state", "up")
                        .text("x_zone", &zone);
                }
                None => load.report_kept_row("unpaired", "node", || "removed while it was not there".to_owned()),
            },
            _ => {
                load.lose("bad-value", "event", || {
                    "neither add nor remove; passed over".to_owned()
                });
                continue;
            }
        }
        load.row(TableKind::Capacity)
            .num("time", when)
            .text("zone", &zone)
            .num("available", live.len() as f64)
            .text("x_event", record.at(1))
            .text("x_node", node);
    }
    for (node, since) in live {
        load.row(TableKind::Outages)
            .text("node", &node)
            .num("start", since)
            .text("state", "up")
            .text("x_zone", &zone);
    }
}
