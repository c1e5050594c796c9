//! Lines a second on one core, on the shared loghub samples or, where they are absent, on made lines.
//!
//! The other side of the comparison is `peer_drain3.py speed FILE` on the same lines; this bench writes them to the file
//! that `RANKGUARD_MINE_LINES` names, if it is set.

#![allow(
    clippy::disallowed_methods,
    reason = "the crate is pure, its measurements read files"
)]

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rankguard_templates::{Miner, MinerLimits, shape};

/// How often the samples are repeated, so that a pass is long enough to measure.
const REPEATS: usize = 5;

fn lines() -> Vec<Vec<u8>> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/datasets/loghub-2k");
    let mut lines = Vec::new();
    for system in [
        "Apache",
        "BGL",
        "HDFS",
        "Hadoop",
        "Linux",
        "OpenSSH",
        "OpenStack",
        "Spark",
        "Thunderbird",
        "Zookeeper",
    ] {
        if let Ok(text) = std::fs::read(shared.join(system).join(format!("{system}_2k.log"))) {
            let ends = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            lines.extend(ends.map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec()));
        }
    }
    if lines.is_empty() {
        lines.extend((0..20_000).map(|n| {
            format!(
                "2026-01-02 03:04:05,{:03} INFO worker-{}: step {n} loss {}.{:03} on 10.0.0.{}",
                n % 1000,
                n % 64,
                n % 9,
                n % 977,
                n % 250
            )
            .into_bytes()
        }));
    }
    lines
}

fn mine(c: &mut Criterion) {
    let once = lines();
    if let Ok(path) = std::env::var("RANKGUARD_MINE_LINES") {
        let mut text = once.join(&b'\n');
        text.push(b'\n');
        std::fs::write(path, text).expect("the file can be written");
    }
    let lines: Vec<&[u8]> = (0..REPEATS).flat_map(|_| once.iter().map(Vec::as_slice)).collect();
    let mut group = c.benchmark_group("mine");
    group.throughput(Throughput::Elements(lines.len() as u64));
    group.bench_function("learn", |bencher| {
        bencher.iter(|| {
            let mut miner = Miner::new("bench", MinerLimits::default());
            let stream = miner.stream("log", "log");
            for (n, line) in lines.iter().enumerate() {
                miner.learn(stream, n as u64 + 1, black_box(line));
            }
            miner.profile().templates.len()
        });
    });
    group.bench_function("shape alone", |bencher| {
        bencher.iter(|| {
            lines
                .iter()
                .filter_map(|line| shape(black_box(line), MinerLimits::default()))
                .map(|shape| shape.len())
                .sum::<usize>()
        });
    });
    group.finish();
}

criterion_group!(benches, mine);
criterion_main!(benches);
