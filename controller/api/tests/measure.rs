//! Measurement of the routes at 10,000 nodes; run with `-- --ignored --nocapture measured`.

#![allow(clippy::print_stdout, reason = "the figures are the result")]

use std::time::{Duration, Instant};

use rankguard_core::Event;

use crate::common::{SampleCluster, get, node_name};

const NODES: u32 = 10_000;
const CASES: u32 = 200;
const REQUESTS: usize = 50;

/// Memory of this process, MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) >> 10
}

#[test]
#[ignore = "a measurement, not a check"]
fn measured_at_ten_thousand_nodes() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let begin = Instant::now();
    let mut cluster = SampleCluster::empty();
    for number in 0..NODES {
        cluster.join(&node_name(number));
    }
    println!("joined: {:?}", begin.elapsed());
    cluster.submit("train", NODES / 10);
    println!("submitted: {:?}", begin.elapsed());
    for number in 0..CASES {
        // Each has a case of its own: a node outside the job, after the case before was concluded.
        cluster.break_gpu(&node_name(NODES - 1 - number), number);
        cluster.settle();
        if number % 100 == 99 {
            println!("case {number}: {:?}", begin.elapsed());
        }
    }
    cluster.settle();
    let before = memory();
    let copied = Instant::now();
    let (service, mut feed, _) = cluster.service();
    println!(
        "copy of the state: {:?}, {} MiB of {before} MiB",
        copied.elapsed(),
        memory().saturating_sub(before)
    );
    let cases = cluster.state.cases().len();
    println!(
        "{} nodes, {cases} cases, {} jobs",
        cluster.state.fleet().iter().count(),
        cluster.state.jobs().len()
    );
    for path in [
        "/api/v1/nodes?limit=100",
        "/api/v1/nodes?limit=1000",
        "/api/v1/nodes/n05000",
        "/api/v1/health/nodes?limit=1000",
        "/api/v1/health/nodes?limit=1000&schedulable=false",
        "/api/v1/cases?limit=100",
        "/api/v1/cases?limit=1000",
        "/api/v1/cases?node=n01000",
        "/api/v1/cases?class=gpu-fallen-off-bus&open=false&limit=1000",
        "/api/v1/cases/7",
        "/api/v1/jobs",
        "/api/v1/jobs/train",
        "/api/v1/plans?limit=1000",
        "/api/v1/taxonomies",
        "/api/v1/classes/gpu-fallen-off-bus",
    ] {
        let mut times: Vec<Duration> = Vec::new();
        let mut bytes = 0;
        for _ in 0..REQUESTS {
            let begin = Instant::now();
            let answer = runtime.block_on(get(&service, path));
            times.push(begin.elapsed());
            bytes = answer.body.len();
        }
        times.sort();
        println!(
            "{path}: p50 {:?}, p99 {:?}, {bytes} bytes",
            times[REQUESTS / 2],
            times[REQUESTS - 2]
        );
    }
    let known = cluster.events.len();
    for number in 0..1_000 {
        cluster.apply(Event::NodeCordoned {
            node: node_name(number).into(),
            reason: "measured".to_owned(),
        });
    }
    let events = cluster.events.split_off(known);
    let begin = Instant::now();
    feed.push(events, 100_000, &cluster.state);
    println!(
        "cost to the event loop of 1,000 events in one batch: {:?}",
        begin.elapsed()
    );
}
