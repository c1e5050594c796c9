//! How many failing lines a second are matched, and taken in by diagnosis, on one core: the worst days of a cluster.
//!
//! Measured is the time that the thread was on a processor, so that others on the machine disturb little.

#![allow(missing_docs, clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::OnceCell;
use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rankguard_diagnosis::{Context, Diagnosis, JobContext, Policy};
use rankguard_faults::{Catalogue, Matcher};
use rankguard_model::{
    Body, Device, DeviceKind, Entity, Evidence, EvidenceId, Exit, Generation, JobId, NodeId, Rank, Sequence, Source,
    Timestamp,
};

/// The time that this thread was on a processor.
struct OnProcessor;

impl Measurement for OnProcessor {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
        let nanos = told.split(' ').next().and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.expect("the first number"))
    }

    fn end(&self, begun: Duration) -> Duration {
        self.start() - begun
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// Lines of one storm.
const EVENTS: u64 = 20_000;
/// Ranks of the job that suffers; eight on a node.
const RANKS: u32 = 1_024;

const FAILURES: [&str; 5] = [
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:86:00): 48, pid=77, name=python, DBE (double bit error) ECC Error",
    "Out of memory: Killed process 4321 (python) total-vm:100kB, anon-rss:90kB, file-rss:0kB",
    "mlx5_core 0000:17:00.0: Port module event: module 0, Cable error, Power budget exceeded",
    "nvme nvme0: I/O 12 QID 3 timeout, aborting",
];

fn job() -> Context {
    let placements = (0..RANKS).map(|rank| (Rank(rank), node(u64::from(rank / 8)))).collect();
    let job = JobContext {
        generation: Generation(1),
        placements,
        stopping: false,
    };
    Context::from_iter([(JobId::from("train"), job)])
}

fn node(number: u64) -> NodeId {
    NodeId(format!("node-{number}"))
}

fn rank(number: u64) -> Entity {
    let rank = (number % u64::from(RANKS)) as u32;
    Entity::Rank {
        job: JobId::from("train"),
        generation: Generation(1),
        rank: Rank(rank),
        node: node(u64::from(rank / 8)),
    }
}

fn gpu(on: u64, address: u64) -> Entity {
    let device = Device {
        kind: DeviceKind::Gpu,
        address: format!("0000:{address:02x}:00"),
    };
    Entity::Device { node: node(on), device }
}

/// A line of a log, marked as triage marks it.
fn line(number: u64, millis: u64, source: Source, entity: Entity, text: &str) -> Evidence {
    let body = Body::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    let mut evidence = evidence(number, millis, source, entity, body);
    evidence.marks = Matcher::builtin().marks(source, text);
    evidence
}

fn evidence(number: u64, millis: u64, source: Source, entity: Entity, body: Body) -> Evidence {
    Evidence {
        id: EvidenceId {
            node: entity.node().cloned().unwrap_or_else(|| node(0)),
            seq: Sequence(number + 1),
        },
        at: Timestamp::from_millis(millis as i64),
        source,
        entity,
        body,
        marks: Vec::new(),
        synthetic: false,
    }
}

/// As a shell calls it: what is due first, then the evidence.
fn replay(storm: &[Evidence], context: &Context) -> usize {
    let catalogue = Catalogue::builtin();
    let mut diagnosis = Diagnosis::new(Policy::default());
    let mut cases = 0;
    for evidence in storm {
        while let Some(due) = diagnosis.due().filter(|due| *due <= evidence.at) {
            cases += diagnosis.conclude(due, catalogue).len();
        }
        cases += diagnosis
            .observe(evidence.at, black_box(evidence), context, catalogue)
            .len();
    }
    cases
}

/// Its name, the jobs that run, and how its evidence of a number is made.
type Storm<'a> = (&'a str, &'a Context, Box<dyn Fn(u64) -> Evidence>);

fn storms(c: &mut Criterion<OnProcessor>) {
    let none = Context::default();
    let job = job();
    let text = |number: u64| FAILURES[(number % FAILURES.len() as u64) as usize];
    let program =
        "ciod: Error loading /bgl/home/gilman/run: invalid or missing program image, No such file or directory";
    let peer = "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer";
    let all: [Storm<'_>; 8] = [
        (
            "ten a second, a thousand nodes in turn, no job",
            &none,
            Box::new(move |n| {
                let entity = Entity::Node { node: node(n % 1_000) };
                line(n, n * 100, Source::KernelLog, entity, text(n))
            }),
        ),
        (
            "a thousand a second, a thousand nodes in turn, no job",
            &none,
            Box::new(move |n| {
                let entity = Entity::Node { node: node(n % 1_000) };
                line(n, n, Source::KernelLog, entity, text(n))
            }),
        ),
        (
            "one GPU says one thing, ten a second, no job",
            &none,
            Box::new(move |n| line(n, n * 100, Source::KernelLog, gpu(1, 0x3b), FAILURES[0])),
        ),
        (
            "one GPU says one thing, ten a second, in a job",
            &job,
            Box::new(move |n| line(n, n * 100, Source::KernelLog, gpu(1, 0x3b), FAILURES[0])),
        ),
        (
            "every GPU of a job in turn, a hundred a second",
            &job,
            Box::new(move |n| {
                line(
                    n,
                    n * 10,
                    Source::KernelLog,
                    gpu(n / 8 % 128, n % 8),
                    FAILURES[(n % 2) as usize],
                )
            }),
        ),
        (
            "every rank of a job ends, a hundred a second",
            &job,
            Box::new(move |n| {
                let body = Body::RankExited {
                    pid: n as u32,
                    exit: Exit::Code(1),
                };
                evidence(n, n * 10, Source::Ranks, rank(n), body)
            }),
        ),
        (
            "every rank of a job complains, a hundred a second",
            &job,
            Box::new(move |n| {
                if n == 0 {
                    return line(0, 0, Source::KernelLog, gpu(1, 0x3b), FAILURES[0]);
                }
                line(n, n * 10, Source::JobLog, rank(n), peer)
            }),
        ),
        (
            "one program complains, a hundred a second, no case",
            &none,
            Box::new(move |n| {
                let entity = Entity::Job {
                    job: JobId::from("job"),
                };
                line(n, n * 10, Source::JobLog, entity, program)
            }),
        ),
    ];
    let mut group = c.benchmark_group("storm");
    group.sample_size(10);
    group.throughput(Throughput::Elements(EVENTS));
    for (name, context, make) in all {
        // Made for those that are asked for alone.
        let storm: OnceCell<Vec<Evidence>> = OnceCell::new();
        group.bench_function(name, |b| {
            let storm = storm.get_or_init(|| (0..EVENTS).map(&make).collect());
            b.iter_batched(|| (), |()| replay(storm, context), BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// What comes before diagnosis: failing lines, each matched.
fn matching(c: &mut Criterion<OnProcessor>) {
    let matcher = Matcher::builtin();
    let mut group = c.benchmark_group("match");
    group.sample_size(10);
    group.throughput(Throughput::Elements(EVENTS));
    let lines = || (0..EVENTS as usize).map(|number| FAILURES[number % FAILURES.len()]);
    group.bench_function("failing lines in turn", |b| {
        let marks = |text| matcher.marks(Source::KernelLog, black_box(text)).len();
        b.iter(|| lines().map(marks).sum::<usize>());
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(OnProcessor);
    targets = matching, storms
}
criterion_main!(benches);
