//! The same cause is blamed for any order of arrival.
use proptest::prelude::*;
use rankguard_diagnosis::{CallerFact, Diagnosis, DraftPolicy, JobContext, PlacementIndex};
use rankguard_faults::Catalogue;
use rankguard_model::{
    Classification, Device, DeviceKind, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, FieldValues,
    Generation, JobId, NodeId, ProcessExit, Rank, Role, Sequence, Timestamp,
};

fn node(rank: u32) -> NodeId {
    NodeId::from(format!("n{}", rank / 2))
}

fn evidence(
    seq: u64,
    ms: i64,
    source: EvidenceSource,
    entity: Entity,
    body: EvidenceBody,
    class: Option<(&str, Role)>,
) -> Evidence {
    let marks = class.into_iter().map(|(class, role)| Classification {
        class: class.into(),
        role,
        confidence: 0.9,
        signature: class.into(),
        fields: FieldValues::new(),
    });
    let id = EvidenceId {
        node: entity.node().cloned().unwrap_or_else(|| node(0)),
        seq: Sequence(seq),
    };
    Evidence {
        id,
        at: Timestamp::from_millis(ms),
        source,
        entity,
        body,
        marks: marks.collect(),
        synthetic: false,
    }
}

/// Returns the evidence of a GPU that dies on node 1, with all consequences.
fn story() -> Vec<Evidence> {
    let line = |text: &str| EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    let rank = |rank| Entity::Rank {
        job: JobId::from("train"),
        generation: Generation(1),
        rank: Rank(rank),
        node: node(rank),
    };
    let device = Device {
        kind: DeviceKind::Gpu,
        address: "0000:9b:00".to_owned(),
    };
    let gpu = Entity::Device { node: node(2), device };
    let mut all = vec![evidence(
        1,
        100,
        EvidenceSource::KernelLog,
        gpu,
        line("Xid 79"),
        Some(("gpu-fallen-off-bus", Role::Root)),
    )];
    for (index, number) in (0..6).enumerate() {
        let seq = 10 + 2 * index as u64;
        let lost = Some(("remote-worker-lost", Role::Cascade));
        all.push(evidence(
            seq,
            300,
            EvidenceSource::JobLog,
            rank(number),
            line("peer gone"),
            lost,
        ));
        let exit = EvidenceBody::RankExited {
            pid: number,
            exit: ProcessExit::Code(1),
            ended_by_agent: false,
        };
        all.push(evidence(seq + 1, 400, EvidenceSource::Ranks, rank(number), exit, None));
    }
    all
}

proptest! {
    #[test]
    fn any_order_of_arrival_blames_the_same_device_and_the_same_order_gives_the_same_bytes(
        order in Just((0..13_usize).collect::<Vec<_>>()).prop_shuffle()
    ) {
        let story = story();
        let conclude = || {
            let placements = (0..6).map(|rank| (Rank(rank), node(rank))).collect();
            let job = JobContext { generation: Generation(1), placements, ..JobContext::default() };
            let context = PlacementIndex::from_iter([(JobId::from("train"), job)]);
            let mut diagnosis = Diagnosis::new(DraftPolicy::default());
            for (tick, index) in order.iter().enumerate() {
                let now = Timestamp::from_millis(500 + tick as i64);
                diagnosis.observe(now, &story[*index], &context, Catalogue::builtin());
            }
            let due = diagnosis.due().unwrap();
            let concluded = diagnosis.conclude(due, Catalogue::builtin());
            (concluded, serde_json::to_string(&diagnosis).unwrap())
        };
        let (concluded, bytes) = conclude();
        prop_assert_eq!(concluded.len(), 1);
        let blamed = &concluded[0].verdict.blamed;
        let device = matches!(blamed, Entity::Device { .. });
        prop_assert!(device && blamed.node() == Some(&node(2)), "blamed {}", blamed);
        for finding in &concluded[0].findings {
            let survivor = finding.entity.node() != Some(&node(2));
            prop_assert!(!survivor || finding.role == Role::Cascade);
        }
        prop_assert_eq!(conclude().1, bytes);
    }
}

/// Checks that a stall after a synthetic stop of a rank is synthetic too.
#[test]
fn a_stall_of_a_generation_with_made_up_evidence_is_made_up() {
    let concluded = |synthetic: bool, stalled: u64| {
        let mut diagnosis = Diagnosis::new(DraftPolicy::default());
        let context = PlacementIndex::default();
        let catalogue = Catalogue::builtin();
        let entity = Entity::Rank {
            job: JobId::from("llm"),
            generation: Generation(1),
            rank: Rank(0),
            node: NodeId::from("n1"),
        };
        let body = EvidenceBody::Line {
            text: "injection 1: rank 0 is stopped".to_owned(),
            context: Vec::new(),
            repeats: 1,
        };
        let mut told = evidence(1, 0, EvidenceSource::Agent, entity, body, None);
        told.synthetic = synthetic;
        diagnosis.observe(Timestamp::from_millis(0), &told, &context, catalogue);
        let now = Timestamp::from_millis(60_000);
        let fact = CallerFact::JobStalled {
            job: JobId::from("llm"),
            generation: Generation(stalled),
            since: now,
            suspect: None,
            equal_suspects: Vec::new(),
            stood_at: None,
        };
        diagnosis.observe_fact(now, &fact, &context, catalogue);
        let due = diagnosis.due().expect("a stall is a failure");
        let concluded = diagnosis.conclude(due, catalogue);
        concluded
            .iter()
            .flat_map(|it| &it.findings)
            .any(|finding| finding.synthetic)
    };
    assert!(concluded(true, 1));
    assert!(!concluded(false, 1));
    assert!(!concluded(true, 2));
}

/// Checks that a draft weighed with one catalogue is concluded with the current catalogue.
#[test]
fn a_catalogue_that_is_read_anew_is_asked_anew() {
    let ours = "[[class]]\nid = \"gpu-fallen-off-bus\"\nreplaces = \"gpu-fallen-off-bus\"\nlayer = \"hardware\"\n\
                severity = \"warning\"\ndefinition = \"Ours.\"\nadvice = \"Wait.\"\naction = \"contact-platform\"\n";
    let ours = Catalogue::with_files(&[("ours.toml", ours)]).unwrap();
    let mut weighed = Diagnosis::new(DraftPolicy::default());
    let now = Timestamp::from_millis(500);
    weighed.observe(now, &story()[0], &PlacementIndex::default(), Catalogue::builtin());
    let due = weighed.due().unwrap();
    // The serialised form holds no weights.
    let mut written: Diagnosis = serde_json::from_str(&serde_json::to_string(&weighed).unwrap()).unwrap();
    let by_builtin = weighed.clone().conclude(due, Catalogue::builtin());
    let by_ours = weighed.conclude(due, &ours);
    assert_ne!(by_builtin[0].verdict.confidence, by_ours[0].verdict.confidence);
    assert_eq!(by_ours, written.conclude(due, &ours));
}
