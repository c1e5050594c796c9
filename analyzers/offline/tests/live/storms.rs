//! Synthetic storms: the worst days of a cluster.

use rankguard_diagnosis::{JobContext, PlacementIndex};
use rankguard_model::{
    Device, DeviceKind, Entity, Evidence, EvidenceBody, EvidenceSource, Generation, JobId, NodeId, ProcessExit, Rank,
    Timestamp,
};

use super::{evidence, line};

/// Number of ranks of the affected job; eight on a node.
const RANKS: u32 = 1_024;

/// Messages of failing machines.
pub(crate) const FAILURES: [&str; 5] = [
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:86:00): 48, pid=77, name=python, DBE (double bit error) ECC Error",
    "Out of memory: Killed process 4321 (python) total-vm:100kB, anon-rss:90kB, file-rss:0kB",
    "mlx5_core 0000:17:00.0: Port module event: module 0, Cable error, Power budget exceeded",
    "nvme nvme0: I/O 12 QID 3 timeout, aborting",
];
/// Messages of a port that flaps.
const FLAP: [&str; 2] = [
    "mlx5_core 0000:17:00.0 ens1f0np0: Link down",
    "mlx5_core 0000:17:00.0 ens1f0np0: Link up",
];
/// Message of a rank that lost its peer.
const PEER: &str = "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d \
                    key-value store by key '0', but store->get('0') got error: Connection reset by peer";

/// Message of a program that cannot be started.
const PROGRAM: &str =
    "ciod: Error loading /bgl/home/gilman/run: invalid or missing program image, No such file or directory";

/// Storm: its name, true if a job runs, and a generator of its unmarked evidence by number.
pub(crate) struct Storm {
    pub(crate) name: &'static str,
    pub(crate) in_job: bool,
    pub(crate) evidence: fn(usize) -> Evidence,
}

/// All storms.
pub(crate) const ALL: [Storm; 10] = [
    Storm {
        name: "five failures, a thousand nodes in turn, ten a second",
        in_job: false,
        evidence: |n| kernel(n, n * 100, machine(n % 1_000), FAILURES[n % FAILURES.len()]),
    },
    Storm {
        name: "five failures, a thousand nodes in turn, a thousand a second",
        in_job: false,
        evidence: |n| kernel(n, n, machine(n % 1_000), FAILURES[n % FAILURES.len()]),
    },
    Storm {
        name: "one XID, a thousand nodes in turn, a thousand a second",
        in_job: false,
        evidence: |n| kernel(n, n, gpu(n % 1_000, 0x3b), FAILURES[0]),
    },
    Storm {
        name: "a port flaps on each of a thousand nodes, a thousand lines a second",
        in_job: false,
        evidence: |n| kernel(n, n, machine(n / 2 % 1_000), FLAP[n % 2]),
    },
    Storm {
        name: "one GPU says one thing, ten a second, no job",
        in_job: false,
        evidence: |n| kernel(n, n * 100, gpu(1, 0x3b), FAILURES[0]),
    },
    Storm {
        name: "one GPU says one thing, ten a second, in a job",
        in_job: true,
        evidence: |n| kernel(n, n * 100, gpu(1, 0x3b), FAILURES[0]),
    },
    Storm {
        name: "every GPU of a job in turn, a hundred a second",
        in_job: true,
        evidence: |n| kernel(n, n * 10, gpu(n / 8 % 128, n % 8), FAILURES[n % 2]),
    },
    Storm {
        name: "every rank of a job ends, a hundred a second",
        in_job: true,
        evidence: |n| {
            let body = EvidenceBody::RankExited {
                pid: n as u32,
                exit: ProcessExit::Code(1),
                ended_by_agent: false,
            };
            evidence(n, millis(n * 10), EvidenceSource::Ranks, rank(n), body)
        },
    },
    Storm {
        name: "every rank of a job complains, a hundred a second",
        in_job: true,
        evidence: |n| match n {
            0 => kernel(0, 0, gpu(1, 0x3b), FAILURES[0]),
            _ => line(n, millis(n * 10), EvidenceSource::JobLog, rank(n), PEER),
        },
    },
    Storm {
        name: "one program complains, a hundred a second, no case",
        in_job: false,
        evidence: |n| {
            let job = JobId::from("job");
            line(n, millis(n * 10), EvidenceSource::JobLog, Entity::Job { job }, PROGRAM)
        },
    },
];

/// Returns the context of a storm.
pub(crate) fn context(in_job: bool) -> PlacementIndex {
    let placements = (0..RANKS).map(|rank| (Rank(rank), node(rank as usize / 8))).collect();
    let job = JobContext {
        generation: Generation(1),
        placements,
        ..JobContext::default()
    };
    in_job.then(|| (JobId::from("train"), job)).into_iter().collect()
}

fn kernel(number: usize, at: usize, entity: Entity, text: &str) -> Evidence {
    line(number, millis(at), EvidenceSource::KernelLog, entity, text)
}

fn millis(number: usize) -> Timestamp {
    Timestamp::from_millis(number as i64)
}

fn node(number: usize) -> NodeId {
    NodeId::from(format!("node-{number}").as_str())
}

fn machine(number: usize) -> Entity {
    Entity::Node { node: node(number) }
}

fn gpu(on: usize, address: usize) -> Entity {
    let device = Device {
        kind: DeviceKind::Gpu,
        address: format!("0000:{address:02x}:00"),
    };
    Entity::Device { node: node(on), device }
}

fn rank(number: usize) -> Entity {
    let rank = (number % RANKS as usize) as u32;
    Entity::Rank {
        job: JobId::from("train"),
        generation: Generation(1),
        rank: Rank(rank),
        node: node(rank as usize / 8),
    }
}
