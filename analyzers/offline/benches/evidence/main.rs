//! Throughput of matching and diagnosing evidence on one core: published logs of failures, and the worst days of a
//! cluster. Logs are converted to evidence first; the measured part is the matcher, due conclusions, and diagnosis.
//! The unit is evidence passed to diagnosis; lines a second, healthy ones included, are separate figures.
//!
//! The measured time is the thread's time on a processor, so that other load on the machine disturbs little.

#![allow(
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    reason = "a bench says what it could not do, reads files and holds criterion's macros"
)]

#[path = "../../tests/live/mod.rs"]
mod live;
mod on_processor;

use std::cell::OnceCell;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use live::{Brain, logs, observed, storms};
use on_processor::OnProcessor;
use rankguard_diagnosis::PlacementIndex;
use rankguard_faults::{SignatureMatcher, StreamContext, Triage};
use rankguard_model::{Evidence, EvidenceBody, EvidenceSource, Timestamp};

/// As in the replay program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of evidence items in one storm.
const STORM: usize = 20_000;

/// Runs matcher and diagnosis as a shell does: evidence is dropped once it was taken in.
fn through(all: Vec<Evidence>, matcher: &SignatureMatcher, context: &PlacementIndex) -> usize {
    let mut brain = Brain::new(context);
    let mut cases = 0;
    for mut evidence in all {
        live::mark(&mut evidence, matcher);
        brain.take(black_box(&evidence), &mut |_| cases += 1);
    }
    cases
}

/// Measures one figure of [`through`]; evidence is only generated for selected figures.
fn measure(
    c: &mut Criterion<OnProcessor>,
    group: &str,
    name: &str,
    count: usize,
    context: &PlacementIndex,
    make: &dyn Fn() -> Vec<Evidence>,
) {
    let matcher = SignatureMatcher::builtin();
    let mut group = c.benchmark_group(group);
    group.sample_size(15).throughput(Throughput::Elements(count as u64));
    let all = OnceCell::new();
    group.bench_function(name, |b| {
        let all = all.get_or_init(make);
        b.iter_batched(
            || all.clone(),
            |all| through(all, &matcher, context),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn evidence(c: &mut Criterion<OnProcessor>) {
    for storm in storms::ALL {
        let context = storms::context(storm.in_job);
        let make = || (0..STORM).map(storm.evidence).collect();
        measure(c, "evidence of a storm", storm.name, STORM, &context, &make);
    }
    let Some(shared) = logs::shared() else {
        return eprintln!("SKIPPED: there is no ../shared, so no published log was measured");
    };
    let matcher = SignatureMatcher::builtin();
    for log in logs::all(&shared).iter().filter(|log| log.is_blue_gene()) {
        let known = |evidence: &Evidence| match &evidence.body {
            EvidenceBody::Line { text, .. } => !matcher.marks(evidence.source, text).is_empty(),
            _ => true,
        };
        let make = || log.failures().into_iter().filter(known).collect::<Vec<_>>();
        measure(
            c,
            "evidence of a log",
            &log.name,
            make().len(),
            &PlacementIndex::default(),
            &make,
        );
    }
}

/// Measures the steps before diagnosis: each failing line matched, and lines of a whole log through triage.
fn before(c: &mut Criterion<OnProcessor>) {
    let matcher = SignatureMatcher::builtin();
    let mut group = c.benchmark_group("lines matched");
    group.sample_size(15).throughput(Throughput::Elements(STORM as u64));
    for text in storms::FAILURES {
        group.bench_function(text, |b| {
            b.iter(|| {
                (0..STORM)
                    .map(|_| matcher.marks(EvidenceSource::KernelLog, black_box(text)).len())
                    .sum::<usize>()
            });
        });
    }
    group.finish();
    let Some(shared) = logs::shared() else { return };
    let mut group = c.benchmark_group("lines through triage and diagnosis");
    group.sample_size(15);
    for log in logs::all(&shared).iter().filter(|log| !log.is_blue_gene()) {
        let bytes = log.bytes();
        let lines = bytes.split(|byte| *byte == b'\n').count();
        group.throughput(Throughput::Elements(lines as u64));
        group.bench_function(&log.name, |b| {
            b.iter(|| read(black_box(&bytes), log.source(&bytes), &matcher))
        });
    }
    group.finish();
}

/// Reads a log through triage and diagnosis.
fn read(bytes: &[u8], source: EvidenceSource, matcher: &Arc<SignatureMatcher>) -> usize {
    let mut triage = Triage::new(Arc::clone(matcher), StreamContext::new(source));
    let context = PlacementIndex::default();
    let mut brain = Brain::new(&context);
    let mut found = triage.push_block(bytes, Timestamp(0));
    found.extend(triage.flush());
    let mut cases = 0;
    for (number, seen) in found.into_iter().enumerate() {
        brain.take(&observed(number, source, seen), &mut |_| cases += 1);
    }
    cases
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(OnProcessor);
    targets = before, evidence
}
criterion_main!(benches);
