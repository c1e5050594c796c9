//! InfiniteHBD fault trace: faults of 400 GPU servers of one training cluster, each with its start and end.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::provenance::Population;
use crate::source::SourceFormat;
use crate::table::TableKind;

const DAY: f64 = 86_400.0;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "infinitehbd",
    title: "InfiniteHBD fault trace (StepFun): GPU-server faults of an LLM-pretraining cluster, 348 days from 2024-03-30",
    licence: "Apache-2.0",
    citation: "C. Shou et al., InfiniteHBD: Building Datacenter-Scale High-Bandwidth Domain for LLM with Optical Circuit Switching Transceivers, SIGCOMM 2025",
    home: "github.com/stepfun-ai/InfiniteHBD-Trace",
    clock: "relative: days from an unnamed zero, here seconds; no zone. The window is [0, last event]; the first event is at 3.8955 days",
    traps: &[
        "231 of 400 servers appear: the population is stated, never the number of failing nodes",
        "downtime of a node is the union of its faults, not their sum: faults of one node overlap, some have no length",
        "stress tests, changes and troubleshooting are labelled as faults too",
    ],
    population: Some(Population {
        count: 400,
        unit: "GPU servers",
        from: "the publication: 400 randomly chosen GPU servers",
    }),
    role,
    read,
    ..SourceFormat::PLAIN
};

#[derive(Deserialize)]
struct FaultEvent {
    node_id: String,
    event_time: f64,
    event_type: String,
    fault_type: FaultDetail,
}

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "PascalCase")]
struct FaultDetail {
    level: String,
    class: String,
    desc: String,
}

fn role(head: &FileHead) -> Option<&'static str> {
    let is = head.text.trim_start().starts_with('[')
        && head.text.contains("\"fault_start\"")
        && head.text.contains("\"fault_type\"");
    is.then_some("fault events")
}

fn read(_: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let mut open: BTreeMap<(String, FaultDetail), Vec<(f64, u64)>> = BTreeMap::new();
    let mut last = 0.0_f64;
    let mut order = f64::NEG_INFINITY;
    let mut number = 0;
    while let Some(bytes) = input.element(load) {
        let parsed = serde_json::from_slice::<FaultEvent>(bytes);
        load.read_row();
        number += 1;
        let event = match parsed {
            Ok(event) => event,
            Err(problem) => {
                load.lose("bad-row", "", || format!("event {number}: {problem}; passed over"));
                continue;
            }
        };
        let time = event.event_time * DAY;
        if time < order {
            load.report_kept_row("order", "event_time", || "earlier than the event before it".to_owned());
        }
        order = time;
        last = last.max(time);
        let key = (event.node_id, event.fault_type);
        match event.event_type.as_str() {
            "fault_start" => open.entry(key).or_default().push((time, input.number())),
            "fault_end" => {
                // Of two open faults of one kind the earlier ends first.
                match open.get_mut(&key).filter(|starts| !starts.is_empty()) {
                    Some(starts) => {
                        let (start, _) = starts.remove(0);
                        fault(load, &key, start, Some(time));
                    }
                    None => load.lose("unpaired", "event_type", || {
                        format!("an end without a start on {}; passed over", key.0)
                    }),
                }
            }
            other => load.lose("bad-value", "event_type", || {
                format!("{other:?} is neither fault_start nor fault_end")
            }),
        }
    }
    for (key, starts) in open {
        for (start, line) in starts {
            load.at(line);
            load.report_kept_row("unpaired", "event_type", || {
                "a start without an end; kept with an open end".to_owned()
            });
            fault(load, &key, start, None);
        }
    }
    load.window = Some((0.0, last));
}

fn fault(load: &mut LoadState, (node, fault): &(String, FaultDetail), start: f64, end: Option<f64>) {
    load.row(TableKind::Failures)
        .num("time", start)
        .num("end", end)
        .num("repair_s", end.map(|end| end - start))
        .text("node", node)
        .text("class", &fault.class)
        .text("subclass", &fault.desc)
        .text("level", &fault.level);
}
