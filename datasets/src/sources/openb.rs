//! Alibaba cluster-trace-gpu-v2023: pods of a GPU cluster with their last phase, and its nodes.

use crate::accounting::{self, AccountingColumns};
use crate::csv::DelimitedFile;
use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::provenance::Population;
use crate::rows::GrowingTable;
use crate::source::SourceFormat;
use crate::table::TableKind;

pub(super) const SOURCE: SourceFormat = SourceFormat {
    name: "openb",
    title: "Alibaba cluster-trace-gpu-v2023 (openb): 8,152 pods and 1,523 nodes",
    citation: "Q. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent, USENIX ATC 2023",
    home: "github.com/alibaba/clusterdata, cluster-trace-gpu-v2023",
    clock: "relative: seconds from the start of the trace",
    traps: &[
        "the phase is the last one seen before deletion: Running is a pod deleted while it ran, here state `other`",
        "start is null for the pods that were never scheduled",
        "no node, no cause and no time of the failure: deletion is the upper bound",
    ],
    role,
    read,
    finish,
    ..SourceFormat::PLAIN
};

const PODS: AccountingColumns = AccountingColumns {
    job: "name",
    user: "",
    queue: "qos",
    submit: "creation_time",
    start: "scheduled_time",
    end: "deletion_time",
    elapsed: "",
    state: "pod_phase",
    nodes: "",
    gpus: "num_gpu",
    other: &["Running"],
    texts: &[],
    numbers: &["gpu_milli", "cpu_milli", "memory_mib"],
};

fn role(head: &FileHead) -> Option<&'static str> {
    if head.has_columns(
        ",",
        &["name", "num_gpu", "pod_phase", "creation_time", "scheduled_time"],
    ) {
        return Some("pods");
    }
    if !head.has_columns(",", &["sn", "cpu_milli", "memory_mib", "gpu", "model"]) {
        return None;
    }
    // The list of all nodes starts with those without a GPU; the other list numbers its nodes
    // separately.
    let without = head.text.lines().any(|line| line.split(',').nth(3) == Some("0"));
    Some(if without {
        "all nodes"
    } else {
        "nodes with GPUs, counted only"
    })
}

fn read(role: &'static str, _: &FileHead, input: &mut InputFile, load: &mut LoadState) {
    let Some(mut csv) = DelimitedFile::new(input, ",", load) else {
        return;
    };
    if role == "pods" {
        return accounting::read(&mut csv, &PODS, load);
    }
    while csv.next(load) {
        let gpus = csv.num("gpu", load);
        let cpus = csv.num("cpu_milli", load);
        if role == "all nodes" {
            load.row(TableKind::Nodes)
                .text("node", csv.get("sn"))
                .text("kind", "node")
                .num("gpus", gpus)
                .num("cpus", cpus.map(|milli| milli / 1000.0))
                .text("x_model", csv.get("model"));
        }
    }
}

fn finish(load: &mut LoadState) {
    let nodes = load.tables.get(&TableKind::Nodes).map_or(0, GrowingTable::len) as u64;
    load.population = (nodes > 0).then_some(Population {
        count: nodes,
        unit: "nodes",
        from: "the list of all nodes",
    });
}
