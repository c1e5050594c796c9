//! Microsoft's Philly trace: cluster_job_log, a JSON array of jobs with their attempts, and the list of machines.

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Deserializer};

use crate::accounting::{check_span, instant};
use crate::csv::DelimitedFile;
use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::provenance::Population;
use crate::rows::GrowingTable;
use crate::source::SourceFormat;
use crate::table::TableKind;
use crate::words;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "philly",
    title: "Microsoft Philly trace: cluster_job_log (JSON) and cluster_machine_list",
    licence: "CC BY 4.0",
    citation: "M. Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, USENIX ATC 2019",
    home: "github.com/msr-fiddle/philly-traces",
    clock: "wall clock of the cluster without offset, counted as UTC; where a time ends in PDT or PST it is an instant",
    traps: &[
        "Killed is a user's stop: state cancelled",
        "two published splits of the states exist, with different filters",
        "jobs are not attempts: both tables are filled",
    ],
    role,
    read,
    finish,
    ..SourceFormat::PLAIN
};

#[derive(Deserialize)]
struct PhillyJob {
    jobid: String,
    status: Option<String>,
    vc: Option<String>,
    user: Option<String>,
    submitted_time: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    attempts: Vec<PhillyAttempt>,
}

#[derive(Deserialize)]
struct PhillyAttempt {
    start_time: Option<String>,
    end_time: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    detail: Vec<PhillyMachine>,
}

#[derive(Deserialize)]
struct PhillyMachine {
    ip: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    gpus: Vec<String>,
}

/// Reads a list; null counts as an empty list.
fn or_empty<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

fn role(head: &FileHead) -> Option<&'static str> {
    let array = head.text.trim_start().starts_with('[');
    if array
        && ["\"jobid\"", "\"attempts\"", "\"vc\""]
            .iter()
            .all(|name| head.text.contains(name))
    {
        return Some("jobs");
    }
    head.line(0).starts_with("machineId").then_some("machines")
}

fn read(role: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    if role == "machines" {
        return machines(input, load);
    }
    let mut number = 0_u64;
    let mut jobs = HashSet::new();
    while let Some(bytes) = input.element(load) {
        let parsed = serde_json::from_slice::<PhillyJob>(bytes);
        load.read_row();
        load.repeat(bytes);
        number += 1;
        match parsed {
            Ok(parsed) => {
                job(&parsed, load);
                if !jobs.insert(parsed.jobid) {
                    load.report_kept_row("reused-id", "jobid", || {
                        format!("job {number} has the id of an earlier one; both are kept, the id is no key")
                    });
                }
            }
            Err(problem) => load.lose("bad-row", "", || format!("job {number}: {problem}; passed over")),
        }
    }
}

fn job(job: &PhillyJob, load: &mut LoadState) {
    let time =
        |field: &str, text: &Option<String>, load: &mut LoadState| instant(field, text.as_deref().unwrap_or(""), load);
    let submit = time("submitted_time", &job.submitted_time, load);
    let mut first = None;
    let mut last = None;
    let mut nodes = None;
    let mut gpus = None;
    for (at, attempt) in job.attempts.iter().enumerate() {
        let start = time("start_time", &attempt.start_time, load);
        let end = time("end_time", &attempt.end_time, load);
        check_span("end_time", start, end, None, load);
        first = first.or(start);
        last = end;
        let places: BTreeSet<&str> = attempt
            .detail
            .iter()
            .filter_map(|machine| machine.ip.as_deref())
            .collect();
        let count: usize = attempt.detail.iter().map(|machine| machine.gpus.len()).sum();
        if !places.is_empty() {
            (nodes, gpus) = (Some(places.len() as f64), Some(count as f64));
        }
        let places: Vec<&str> = places.into_iter().collect();
        load.row(TableKind::Attempts)
            .text("job", &job.jobid)
            .text("attempt", &at.to_string())
            .num("start", start)
            .num("end", end)
            .text("node", &places.join(","))
            .num("x_gpus", count as f64);
    }
    let raw = job.status.as_deref().unwrap_or("");
    load.row(TableKind::Jobs)
        .text("job", &job.jobid)
        .text("user", job.user.as_deref().unwrap_or(""))
        .text("queue", job.vc.as_deref().unwrap_or(""))
        .num("submit", submit)
        .num("start", first)
        .num("end", last)
        .text("state", if raw.is_empty() { "" } else { words::state(raw) })
        .text("state_raw", raw)
        .num("nodes", nodes)
        .num("gpus", gpus)
        .num("x_attempts", job.attempts.len() as f64);
}

fn machines(input: &mut InputFile, load: &mut LoadState) {
    let Some(mut csv) = DelimitedFile::new(input, ",", load) else {
        return;
    };
    let gpus = csv.header().get(1).cloned().unwrap_or_default();
    while csv.next(load) {
        let node = csv.at(0).to_owned();
        let gpus = csv.num(&gpus, load);
        load.row(TableKind::Nodes)
            .text("node", &node)
            .text("kind", "node")
            .num("gpus", gpus);
    }
}

fn finish(load: &mut LoadState) {
    let nodes = load.tables.get(&TableKind::Nodes).map_or(0, GrowingTable::len) as u64;
    load.population = (nodes > 0).then_some(Population {
        count: nodes,
        unit: "nodes",
        from: "the list of machines",
    });
}
