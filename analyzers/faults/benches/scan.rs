//! Throughput of scanning and triaging a log with the full catalogue, on one core.

#![allow(missing_docs, clippy::disallowed_methods, clippy::disallowed_types)]

/// The log that `rankguard bench match` generates.
#[path = "../../../cli/bench/src/throughput/healthy.rs"]
mod healthy;

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rankguard_faults::{SignatureMatcher, StreamContext, Triage};
use rankguard_model::{EvidenceSource, Timestamp};

const MIB: usize = 1 << 20;

fn triage(log: &[u8], block: usize) -> usize {
    let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(EvidenceSource::JobLog));
    let mut seen = 0;
    for block in log.chunks(block) {
        seen += triage.push_block(black_box(block), Timestamp(0)).len();
    }
    seen + triage.flush().len()
}

/// Loads real logs from `shared/`, repeated until the measured time is long enough.
fn shared(name: &str, paths: &[&str]) -> Option<(String, Vec<u8>)> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/datasets");
    let mut once = Vec::new();
    for path in paths {
        once.extend(std::fs::read(shared.join(path)).ok()?);
        once.push(b'\n');
    }
    let times = (16 * MIB).div_ceil(once.len());
    Some((name.to_owned(), once.repeat(times)))
}

fn scan(c: &mut Criterion) {
    let mut logs = vec![("healthy".to_owned(), healthy::log(64 * MIB, 7))];
    logs.extend(shared(
        "loghub-2k",
        &[
            "loghub-2k/HDFS/HDFS_2k.log",
            "loghub-2k/Hadoop/Hadoop_2k.log",
            "loghub-2k/Spark/Spark_2k.log",
            "loghub-2k/Zookeeper/Zookeeper_2k.log",
            "loghub-2k/OpenStack/OpenStack_2k.log",
            "loghub-2k/OpenSSH/OpenSSH_2k.log",
            "loghub-2k/Linux/Linux_2k.log",
            "loghub-2k/Thunderbird/Thunderbird_2k.log",
        ],
    ));
    logs.extend(shared(
        "gpud",
        &[
            "gpud-node-logs/kmsg.1.log",
            "gpud-node-logs/dmesg-os.iso.log",
            "gpud-node-logs/dmesg-with-xid-119.log",
            "gpud-node-logs/fabricmanager.log",
        ],
    ));
    let mut group = c.benchmark_group("triage");
    group.sample_size(10);
    for (name, log) in &logs {
        let seen = triage(log, 4 * MIB);
        group.throughput(Throughput::Bytes(log.len() as u64));
        group.bench_function(format!("{name}, {seen} observations"), |b| {
            b.iter(|| triage(log, 4 * MIB))
        });
    }
    let small = &logs[0].1[..16 * MIB];
    group.throughput(Throughput::Bytes(small.len() as u64));
    group.bench_function("healthy, blocks of 64 KiB", |b| b.iter(|| triage(small, 64 << 10)));
    group.bench_function("healthy, line by line", |b| {
        let text = String::from_utf8_lossy(small);
        b.iter(|| {
            let mut triage = Triage::new(SignatureMatcher::builtin(), StreamContext::new(EvidenceSource::JobLog));
            let seen: usize = text
                .lines()
                .map(|line| triage.push(black_box(line), Timestamp(0)).len())
                .sum();
            seen + triage.flush().len()
        });
    });
    group.finish();
}

fn build(c: &mut Criterion) {
    let mut group = c.benchmark_group("matcher");
    group.sample_size(10);
    group.bench_function("build", |b| {
        b.iter(|| SignatureMatcher::new(rankguard_faults::Catalogue::builtin()))
    });
    group.finish();
}

criterion_group!(benches, scan, build);
criterion_main!(benches);
