//! Flight-recorder dumps with other evidence: conclusions that need the dumps.
use rankguard_diagnosis::{ConcludedDraft, Diagnosis, DraftChange, DraftPolicy, JobContext, PlacementIndex};
use rankguard_faults::Catalogue;
use rankguard_model::{
    Classification, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, FieldValues, Generation, JobId, NodeId,
    ProcessExit, Rank, Role, Sequence, Timestamp,
};

const RANKS: u32 = 4;

struct World {
    diagnosis: Diagnosis,
    context: PlacementIndex,
    seq: u64,
}

impl World {
    fn new() -> Self {
        let job = JobContext {
            generation: Generation(1),
            placements: (0..RANKS).map(|rank| (Rank(rank), node(rank))).collect(),
            ..JobContext::default()
        };
        Self {
            diagnosis: Diagnosis::new(DraftPolicy::default()),
            context: PlacementIndex::from_iter([(JobId::from("train"), job)]),
            seq: 0,
        }
    }

    fn at(
        &mut self,
        ms: i64,
        rank: u32,
        source: EvidenceSource,
        body: EvidenceBody,
        marks: Vec<Classification>,
    ) -> Vec<DraftChange> {
        self.seq += 1;
        let evidence = Evidence {
            id: EvidenceId {
                node: node(rank),
                seq: Sequence(self.seq),
            },
            at: Timestamp::from_millis(ms),
            source,
            entity: Entity::Rank {
                job: "train".into(),
                generation: Generation(1),
                rank: Rank(rank),
                node: node(rank),
            },
            body,
            marks,
            synthetic: false,
        };
        let now = Timestamp::from_millis(ms);
        self.diagnosis
            .observe(now, &evidence, &self.context, Catalogue::builtin())
    }

    fn dumps(&mut self, ms: i64, rank: u32, dump: String) -> Vec<DraftChange> {
        let body = EvidenceBody::FlightDump { dump, left_out: 0 };
        self.at(ms, rank, EvidenceSource::FlightRecorder, body, Vec::new())
    }

    /// Ends a rank by its watchdog.
    fn times_out(&mut self, ms: i64, rank: u32) {
        let timeout = Classification {
            class: "nccl-timeout".into(),
            role: Role::Cascade,
            confidence: 0.9,
            signature: "nccl-watchdog".into(),
            fields: FieldValues::new(),
        };
        let line = EvidenceBody::Line {
            text: "Watchdog caught collective operation timeout".to_owned(),
            context: Vec::new(),
            repeats: 1,
        };
        self.at(ms, rank, EvidenceSource::JobLog, line, vec![timeout]);
        self.exits(ms + 1, rank);
    }

    fn exits(&mut self, ms: i64, rank: u32) {
        let body = EvidenceBody::RankExited {
            pid: rank,
            exit: ProcessExit::Signal(6),
            ended_by_agent: false,
        };
        self.at(ms, rank, EvidenceSource::Ranks, body, Vec::new());
    }

    fn settle(&mut self) -> ConcludedDraft {
        let due = self.diagnosis.due().expect("a draft is open");
        let mut all = self.diagnosis.conclude(due, Catalogue::builtin());
        assert_eq!(all.len(), 1);
        all.remove(0)
    }
}

fn node(rank: u32) -> NodeId {
    NodeId::from(format!("n{}", rank / 2 + 1))
}

/// Returns the dump of a rank that completed `done` all-reduces and then called those of `open`, by name.
fn dump(rank: u32, done: u32, open: &[&str]) -> String {
    let entry = |number: u32, name: &str, state: &str| {
        format!(
            "{{\"record_id\":{number},\"pg_id\":0,\"process_group\":[\"0\",\"default_pg\"],\
             \"collective_seq_id\":{number},\"p2p_seq_id\":0,\"op_id\":{number},\"profiling_name\":\"nccl:{name}\",\
             \"input_sizes\":[[8]],\"output_sizes\":[[8]],\"input_dtypes\":[\"Float\"],\"output_dtypes\":[\"Float\"],\
             \"state\":\"{state}\",\"is_p2p\":false,\"retired\":{}}}",
            state == "completed"
        )
    };
    let mut entries: Vec<String> = (1..=done)
        .map(|number| entry(number, "all_reduce", "completed"))
        .collect();
    entries.extend(
        (done + 1..)
            .zip(open)
            .map(|(number, name)| entry(number, name, "scheduled")),
    );
    let last = done + u32::try_from(open.len()).unwrap();
    format!(
        "{{\"version\":\"2.9\",\"rank\":{rank},\"pg_config\":{{\"0\":{{\"desc\":\"default_pg\",\
         \"ranks\":\"[0, 1, 2, 3]\"}}}},\"pg_status\":{{\"0\":{{\"last_enqueued_collective\":{last},\
         \"last_completed_collective\":{done}}}}},\"entries\":[{}]}}",
        entries.join(",")
    )
}

#[test]
fn the_rank_that_never_came_is_named() {
    let mut world = World::new();
    for rank in 0..RANKS {
        let open: &[&str] = if rank == 2 { &[] } else { &["all_reduce"] };
        world.dumps(1_000, rank, dump(rank, 7, open));
    }
    // All four give up, the culprit too: their messages alone do not distinguish it.
    for rank in 0..RANKS {
        world.times_out(1_100, rank);
    }
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "hang-stalled-ranks");
    assert_eq!(case.verdict.root_rank, Some(Rank(2)));
    assert!(matches!(&case.verdict.blamed, Entity::Rank { rank, .. } if *rank == Rank(2)));
    let told = case
        .findings
        .iter()
        .any(|finding| finding.text.contains("for rank 2, which never called it"));
    assert!(told, "{:#?}", case.findings);
}

#[test]
fn without_dumps_the_same_words_name_nobody() {
    let mut world = World::new();
    for rank in 0..RANKS {
        world.times_out(1_100, rank);
    }
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "nccl-timeout");
    assert_eq!(case.verdict.root_rank, None);
}

#[test]
fn ranks_in_different_collectives_are_the_programs_mistake() {
    let mut world = World::new();
    for rank in 0..RANKS {
        let open: &[&str] = if rank == 3 { &["broadcast"] } else { &["all_reduce"] };
        world.dumps(1_000, rank, dump(rank, 7, open));
        world.times_out(1_100, rank);
    }
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "collective-mismatch");
    assert_eq!(case.verdict.root_rank, Some(Rank(3)));
}

#[test]
fn dumps_that_come_after_the_conclusion_correct_it_once_all_are_there() {
    let mut world = World::new();
    for rank in 0..RANKS {
        world.times_out(1_100, rank);
    }
    assert_eq!(world.settle().verdict.class.as_str(), "nccl-timeout");
    let mut changes = Vec::new();
    for rank in 0..RANKS {
        let open: &[&str] = if rank == 1 { &[] } else { &["all_reduce"] };
        changes.extend(world.dumps(7_000 + i64::from(rank), rank, dump(rank, 7, open)));
    }
    let revised: Vec<_> = changes
        .iter()
        .filter_map(|change| match change {
            DraftChange::Revised(case) => Some(case),
            _ => None,
        })
        .collect();
    assert_eq!(revised.len(), 1);
    assert_eq!(revised[0].verdict.root_rank, Some(Rank(1)));
}

#[test]
fn a_rank_without_a_dump_is_named_by_those_who_wait_for_it() {
    let mut world = World::new();
    for rank in [0, 1, 3] {
        world.dumps(1_000, rank, dump(rank, 7, &["all_reduce"]));
        world.times_out(1_100, rank);
    }
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "hang-stalled-ranks");
    assert_eq!(case.verdict.root_rank, Some(Rank(2)));
}

#[test]
fn healthy_dumps_and_garbage_change_nothing() {
    let mut world = World::new();
    for rank in 0..RANKS {
        world.dumps(1_000, rank, dump(rank, 7, &[]));
    }
    world.dumps(1_001, 0, "{\"entries\": 7}".to_owned());
    world.dumps(1_002, 1, "\u{80}\u{2}no pickle".to_owned());
    world.exits(1_100, 2);
    let case = world.settle();
    assert_eq!(case.verdict.class.as_str(), "process-aborted");
}
