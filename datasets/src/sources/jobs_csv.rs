//! Job accounting published as CSV: NREL Eagle, Helios, Acme.

use crate::accounting::{self, AccountingColumns};
use crate::csv::DelimitedFile;
use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::source::SourceFormat;

pub(super) const EAGLE: SourceFormat = SourceFormat {
    name: "nrel-eagle",
    title: "NREL Eagle job accounting (Slurm)",
    licence: "BSD-3-Clause",
    citation: "NREL, eagle-jobs; full data on OEDI",
    home: "github.com/NREL/eagle-jobs",
    clock: "US Mountain wall clock without offset, counted as UTC; elapsed_s is run_time",
    traps: &["job ids are used again: 451 rows of the sample repeat one"],
    role: |head| {
        head.has_columns(",", &["job_id", "wallclock_req", "nodes_req", "run_time", "state"])
            .then_some("jobs")
    },
    read: |_, _, input, load| read(input, load, &EAGLE_COLUMNS),
    ..SourceFormat::PLAIN
};

const EAGLE_COLUMNS: AccountingColumns = AccountingColumns {
    job: "job_id",
    user: "user",
    queue: "partition",
    submit: "submit_time",
    start: "start_time",
    end: "end_time",
    elapsed: "run_time",
    state: "state",
    nodes: "nodes_req",
    gpus: "gpus_req",
    other: &[],
    texts: &["account", "qos"],
    numbers: &["wallclock_req", "processors_req", "mem_req"],
};

pub(super) const HELIOS: SourceFormat = SourceFormat {
    name: "helios",
    title: "Helios job logs (SenseTime): cluster_log.csv of each cluster",
    licence: "CC BY 4.0",
    citation: "Q. Hu et al., Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters, SC'21",
    home: "github.com/S-Lab-System-Group/HeliosData",
    clock: "wall clock without offset, counted as UTC; elapsed_s is duration",
    traps: &["GPU jobs are those with gpus > 0: the published shares are theirs"],
    role: |head| helios(head).then_some("jobs"),
    read: |_, _, input, load| read(input, load, &HELIOS_COLUMNS),
    ..SourceFormat::PLAIN
};

fn helios(head: &FileHead) -> bool {
    head.has_columns(
        ",",
        &[
            "job_id",
            "vc",
            "gpu_num",
            "node_num",
            "state",
            "submit_time",
            "duration",
        ],
    )
}

const HELIOS_COLUMNS: AccountingColumns = AccountingColumns {
    job: "job_id",
    user: "user",
    queue: "vc",
    submit: "submit_time",
    start: "start_time",
    end: "end_time",
    elapsed: "duration",
    state: "state",
    nodes: "node_num",
    gpus: "gpu_num",
    other: &[],
    texts: &[],
    numbers: &["cpu_num", "queue"],
};

pub(super) const ACME: SourceFormat = SourceFormat {
    name: "acme",
    title: "Acme job traces (Shanghai AI Laboratory): trace_seren.csv, trace_kalos.csv",
    licence: "CC BY 4.0",
    citation: "Q. Hu et al., Characterization of Large Language Model Development in the Datacenter, NSDI 2024",
    home: "github.com/InternLM/AcmeTrace",
    clock: "as each time says; the job files say UTC, the telemetry +08:00; elapsed_s is duration",
    traps: &["the authors count TIMEOUT and NODE_FAIL as failed; here they keep their own states"],
    role: |head| {
        head.has_columns(",", &["job_id", "type", "gpu_num", "state", "submit_time", "gpu_time"])
            .then_some("jobs")
    },
    read: |_, _, input, load| read(input, load, &ACME_COLUMNS),
    ..SourceFormat::PLAIN
};

const ACME_COLUMNS: AccountingColumns = AccountingColumns {
    job: "job_id",
    user: "user",
    queue: "type",
    submit: "submit_time",
    start: "start_time",
    end: "end_time",
    elapsed: "duration",
    state: "state",
    nodes: "node_num",
    gpus: "gpu_num",
    other: &[],
    texts: &["fail_time", "stop_time"],
    numbers: &["cpu_num", "queue", "gpu_time"],
};

fn read(input: &mut InputFile, load: &mut LoadState, columns: &AccountingColumns) {
    if let Some(mut csv) = DelimitedFile::new(input, ",", load) {
        accounting::read(&mut csv, columns, load);
    }
}
