//! RG-9: a month of a cluster in compressed time. The journal stays within its limit, a start takes seconds, memory is
//! constant.
//!
//! `RANKGUARD_TEST_HEAVY=1` simulates 30 days of 1,000 nodes (600,000 pieces of evidence); without it two days of 40
//! nodes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rankguard_core::{DecisionState, Event, Policy, StampedEvent, step};
use rankguard_journal::{JOURNAL_FILE, Journal, JournalRetention, encode, encode_snapshot};
use rankguard_model::{
    ClassId, Classification, ClockOffset, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, FieldValues,
    NodeId, NodeInfo, Role, Sequence, Timestamp,
};

/// Size of the simulated history.
struct Scale {
    nodes: u64,
    days: u64,
    /// Pieces of evidence per node and day.
    daily: u64,
    retention: JournalRetention,
}

fn scale() -> Scale {
    if std::env::var_os("RANKGUARD_TEST_HEAVY").is_some() {
        return Scale {
            nodes: 1_000,
            days: 30,
            daily: 20,
            retention: JournalRetention {
                max_bytes: 64 << 20,
                ..JournalRetention::default()
            },
        };
    }
    Scale {
        nodes: 40,
        days: 2,
        daily: 100,
        retention: JournalRetention {
            max_bytes: 1 << 20,
            snapshot_entries: 1_000,
            ..JournalRetention::default()
        },
    }
}

const START: i64 = 1_700_000_000_000;

struct World {
    state: DecisionState,
    journal: Journal,
    retention: JournalRetention,
    sequences: Vec<u64>,
    batch: Vec<Vec<u8>>,
    longest_clone: Duration,
}

impl World {
    fn tell(&mut self, at: Timestamp, event: Event) {
        let stamped = StampedEvent { at, event };
        self.batch.push(encode(&stamped).expect("JSON"));
        step(&mut self.state, &stamped);
        let due: Vec<_> = self
            .state
            .timers()
            .iter()
            .filter(|(_, due)| **due <= at)
            .map(|(timer, _)| timer.clone())
            .collect();
        for timer in due {
            let stamped = StampedEvent {
                at,
                event: Event::TimerFired { timer },
            };
            self.batch.push(encode(&stamped).expect("JSON"));
            step(&mut self.state, &stamped);
        }
        if self.batch.len() >= 256 {
            self.commit(at);
        }
    }

    /// Appends like the controller, but takes a snapshot at once.
    fn commit(&mut self, at: Timestamp) {
        self.journal.append(&std::mem::take(&mut self.batch)).expect("room");
        if self.journal.is_snapshot_due(&self.retention, at) {
            let begin = Instant::now();
            let copy = self.state.clone();
            self.longest_clone = self.longest_clone.max(begin.elapsed());
            let entries = self.journal.entries();
            let bytes = self.journal.entry_bytes();
            let mut snapshot = encode_snapshot(&copy, entries, at, bytes).expect("a state is JSON");
            while !self.journal.store_slice(&mut snapshot).expect("room") {}
            while !self.journal.trim(&self.retention, at).expect("room") {}
        }
    }

    /// Adds an unclassified line, a value, or at times a failure.
    fn evidence(&mut self, node: u64, at: Timestamp) {
        let sequence = &mut self.sequences[usize::try_from(node).expect("few")];
        *sequence += 1;
        let number = *sequence;
        let name = NodeId::from(format!("gpu-{node:04}"));
        let (body, marks) = match number % 50 {
            0 => {
                let mark = Classification {
                    class: ClassId::from("gpu-fallen-off-bus"),
                    role: Role::Root,
                    confidence: 0.9,
                    signature: "xid-79".into(),
                    fields: FieldValues::from([("xid".to_owned(), "79".to_owned())]),
                };
                (
                    format!("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus ({number})"),
                    vec![mark],
                )
            }
            _ => (
                format!("systemd[1]: Started session {number} of user train on {name}."),
                Vec::new(),
            ),
        };
        let evidence = Evidence {
            id: EvidenceId {
                node: name.clone(),
                seq: Sequence(number),
            },
            at,
            source: EvidenceSource::KernelLog,
            entity: Entity::Node { node: name },
            body: EvidenceBody::Line {
                text: body,
                context: Vec::new(),
                repeats: 1,
            },
            marks,
            synthetic: false,
        };
        self.tell(at, Event::EvidenceArrived { evidence });
    }
}

fn join(node: u64) -> Event {
    Event::NodeJoined {
        info: NodeInfo {
            node: NodeId::from(format!("gpu-{node:04}")),
            incarnation: "1".to_owned(),
            boot_id: String::new(),
            host: "10.0.0.1".to_owned(),
            peer_address: "10.0.0.1:7000".to_owned(),
            image_address: "10.0.0.1:7001".to_owned(),
            slots: 8,
            failure_domain: format!("rack-{}", node / 32),
            running: Vec::new(),
            clock: ClockOffset::default(),
            lease_ms: 0,
            is_kernel_log_first: false,
            history: rankguard_model::NodeHistory::default(),
        },
    }
}

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or(0) << 10
}

/// Returns the CPU time of this process, which other load on the machine does not lengthen.
fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|ticks| ticks.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    // User and system time, in hundredths of a second on Linux.
    (ticks(11) + ticks(12)) / 100.0
}

fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

#[test]
fn rg_9_a_month_of_evidence_stays_within_the_limits_and_a_start_takes_seconds() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(JOURNAL_FILE);
    let scale = scale();
    let mut journal = Journal::open(&path, &Policy::default()).expect("a new journal");
    let state = journal.restore().expect("an empty journal").state;
    let mut world = World {
        state,
        journal,
        retention: scale.retention,
        sequences: vec![0; usize::try_from(scale.nodes).expect("few")],
        batch: Vec::new(),
        longest_clone: Duration::ZERO,
    };
    for node in 0..scale.nodes {
        world.tell(Timestamp::from_millis(START), join(node));
    }
    let begin = Instant::now();
    let mut most_file = 0;
    let mut memory = Vec::new();
    let every = 86_400_000 / scale.daily;
    for day in 0..scale.days {
        for round in 0..scale.daily {
            for node in 0..scale.nodes {
                let millis = day * 86_400_000 + round * every + node * every / scale.nodes;
                world.evidence(
                    node,
                    Timestamp::from_millis(START + i64::try_from(millis).expect("a month")),
                );
            }
        }
        most_file = most_file.max(file_bytes(&path));
        memory.push(resident());
    }
    let now = Timestamp::from_millis(START + i64::try_from(scale.days * 86_400_000).expect("a month"));
    world.commit(now);
    let played = begin.elapsed();
    let (entries, bytes, snapshot) = {
        let newest = world.journal.snapshots().last().expect("snapshots");
        (world.journal.entries(), world.journal.entry_bytes(), newest.clone())
    };
    let expected = world.state;
    drop(world.journal);
    let begin = Instant::now();
    let processor = processor_seconds();
    let mut journal = Journal::open(&path, &Policy::default()).expect("the journal");
    let restored = journal.restore().expect("a sound journal");
    let start = begin.elapsed();
    let processor = processor_seconds() - processor;
    let half = memory[memory.len() / 2];
    let last = *memory.last().expect("days");
    #[allow(clippy::print_stderr, reason = "the figures are for people")]
    {
        eprintln!(
            "{} nodes, {} days: {entries} entries of {} MiB in {:.0} s; journal at most {} MiB, newest snapshot {} KiB, longest \
             copy of the state {:?}; start {:.2} s ({:.2} s of processor time) with {} entries replayed; RSS {} MiB at half time, {} MiB at the end",
            scale.nodes,
            scale.days,
            bytes >> 20,
            played.as_secs_f64(),
            most_file >> 20,
            snapshot.bytes >> 10,
            world.longest_clone,
            start.as_secs_f64(),
            processor,
            restored.replayed,
            half >> 20,
            last >> 20,
        );
    }
    assert!(restored.state == expected, "another state after the restart");
    assert!(most_file < 3 * scale.retention.max_bytes + (64 << 20), "{most_file}");
    assert!(
        restored.replayed <= scale.retention.snapshot_entries + 512,
        "{}",
        restored.replayed
    );
    assert!(start < Duration::from_secs(60), "{start:?}");
    assert!(last < 2 * half + (64 << 20), "{memory:?}");
}
