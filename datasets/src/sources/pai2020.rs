//! Alibaba's cluster-trace-gpu-v2020 (PAI): tables without a header, with their columns in separate NAME.header
//! files.

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
    name: "pai-2020",
    title: "Alibaba cluster-trace-gpu-v2020 (PAI): jobs, tasks, instances and machines",
    licence: "CC BY 4.0",
    citation: "Q. Weng et al., MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale Heterogeneous GPU Clusters, NSDI 2022",
    home: "github.com/alibaba/clusterdata, cluster-trace-gpu-v2020",
    clock: "relative: seconds, shifted by the authors",
    traps: &[
        "Terminated is success: state completed",
        "tasks and instances are both attempts: x_level tells which",
        "keep every NAME.header beside its NAME.csv: the tables themselves name no columns",
    ],
    role,
    read,
    finish,
    ..SourceFormat::PLAIN
};

fn role(head: &FileHead) -> Option<&'static str> {
    let header = head.header.as_deref()?.trim();
    // A table that starts with its own header is not one of these.
    if head.line(0) == header {
        return None;
    }
    let has = |wanted: &[&str]| {
        wanted
            .iter()
            .all(|name| header.split(',').any(|field| field.trim() == *name))
    };
    if has(&["job_name", "inst_name", "machine", "status"]) {
        Some("instances")
    } else if has(&["job_name", "task_name", "plan_gpu", "status"]) {
        Some("tasks")
    } else if has(&["job_name", "user", "status", "start_time"]) {
        Some("jobs")
    } else if has(&["machine", "gpu_type", "cap_cpu", "cap_gpu"]) {
        Some("machines")
    } else {
        None
    }
}

fn read(role: &'static str, head: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let header = head.header.as_deref().unwrap_or("").trim();
    let names = header.split(',').map(|name| name.trim().to_owned()).collect();
    let mut csv = DelimitedFile::with_header(input, ",", names);
    while csv.next(load) {
        if role == "machines" {
            let gpus = csv.num("cap_gpu", load);
            let cpus = csv.num("cap_cpu", load);
            load.row(TableKind::Nodes)
                .text("node", csv.get("machine"))
                .text("kind", "node")
                .num("gpus", gpus)
                .num("cpus", cpus)
                .text("x_gpu_type", csv.get("gpu_type"));
            continue;
        }
        let Some(job) = csv.need("job_name", load) else {
            continue;
        };
        let start = instant("start_time", csv.get("start_time"), load);
        let end = instant("end_time", csv.get("end_time"), load);
        check_span("end_time", start, end, None, load);
        let raw = csv.get("status");
        let state = if raw.is_empty() { "" } else { words::state(raw) };
        if role == "jobs" {
            load.row(TableKind::Jobs)
                .text("job", &job)
                .text("user", csv.get("user"))
                .num("start", start)
                .num("end", end)
                .text("state", state)
                .text("state_raw", raw);
            continue;
        }
        let percent = csv.num("plan_gpu", load);
        let (attempt, level) = if role == "tasks" {
            ("task_name", "task")
        } else {
            ("inst_name", "instance")
        };
        load.row(TableKind::Attempts)
            .text("job", &job)
            .text("attempt", csv.get(attempt))
            .num("start", start)
            .num("end", end)
            .text("state", state)
            .text("node", csv.get("machine"))
            .text("x_state_raw", raw)
            .text("x_level", level)
            .num("x_gpus", percent.map(|percent| percent / 100.0));
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
