//! Sample cluster as input of a report, with fixed data: three failures of one job, and a program bug in another. Built
//! for tests and with the feature `sample`.

use std::collections::BTreeMap;

use rankguard_faults::{Catalogue, classes};
use rankguard_model::{
    Case, CaseDelays, CaseFinding, CaseId, CaseState, CheckpointPolicy, CheckpointView, ClassId, CostInput, Device,
    DeviceKind, Entity, EvidenceId, EvidenceSource, Generation, JobId, JobSpec, JobState, JobView, NodeId, NodeRange,
    NodeState, NodeView, OptionOutcome, PlanId, ProgressPoint, Rank, RankPlacement, ReasoningEntry, RecoveryChoice,
    RecoveryCost, RecoveryKind, RecoveryOption, Role, Sequence, Severity, StateSpan, StatusView, Step, Timestamp,
    Verdict,
};
use serde_json::{Value, json};

/// Returns the time `millis` milliseconds after the start of the sample.
pub fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_763_700_000_000 + millis)
}

/// Returns the status and the cases of the sample.
pub fn cluster() -> (StatusView, Vec<Case>) {
    let status = StatusView {
        at: at(66_000),
        nodes: vec![
            node("node-1", NodeState::Healthy, None),
            node(
                "node-2",
                NodeState::Cordoned,
                Some("case 1: gpu-fallen-off-bus on gpu 0000:9b:00"),
            ),
            node("node-3", NodeState::Healthy, None),
            node("spare-1", NodeState::Lost, Some("no word since <b>a while</b>")),
        ],
        node_spans: vec![
            span("node-1", None, "healthy", 0, None),
            span("node-2", None, "healthy", 0, Some(12_300)),
            span("node-2", None, "cordoned", 12_300, None),
            span("node-3", None, "healthy", 0, Some(28_000)),
            span("node-3", None, "lost", 28_000, Some(38_000)),
            span("node-3", None, "healthy", 38_000, None),
            span("spare-1", None, "healthy", 0, None),
        ],
        jobs: vec![digits(), buggy()],
        open_cases: Vec::new(),
        degraded: None,
        impaired: Vec::new(),
        journal_gaps: Vec::new(),
        torchruns: Vec::new(),
        receivers: Vec::new(),
    };
    (status, vec![gpu_lost(), node_lost(), oom(), user_bug()])
}

/// Returns facts in the format that `rankguard demo` adds to its report.
pub fn facts() -> Value {
    json!({
        "parameters_identical": true,
        "parameters": { "disturbed": "9f86d081884c7d659a2feaa0c55ad015", "undisturbed": "9f86d081884c7d659a2feaa0c55ad015" },
        "ledger_exact": true,
        "ledger": { "exact": true, "duplicates": 0, "omissions": 0, "epochs": [{}, {}, {}] },
        "checkpoint_stall_ms": { "saves": 96, "p50": 0.61, "p95": 1.4, "max": 2.2 },
        "checkpoints_committed": 16,
    })
}

fn node(name: &str, state: NodeState, reason: Option<&str>) -> NodeView {
    let job = (state == NodeState::Healthy).then(|| JobId::from("digits"));
    NodeView {
        node: NodeId::from(name),
        state,
        reason: reason.map(str::to_owned),
        cordon: None,
        faulty_in_use: None,
        slots: 2,
        job,
        address: "127.0.0.1:7701".to_owned(),
        failure_domain: String::new(),
        refused_evidence: 0,
        lease_ms: 0,
    }
}

fn span(node: &str, rank: Option<(u32, u64)>, state: &str, from: i64, to: Option<i64>) -> StateSpan {
    StateSpan {
        node: NodeId::from(node),
        rank: rank.map(|(rank, _)| Rank(rank)),
        generation: rank.map(|(_, generation)| Generation(generation)),
        state: state.to_owned(),
        from: at(from),
        to: to.map(at),
    }
}

fn spec(name: &str) -> JobSpec {
    JobSpec {
        id: JobId::from(name),
        command: vec!["train".to_owned()],
        env: BTreeMap::new(),
        workdir: None,
        nodes: NodeRange { min: 2, max: 3 },
        ranks_per_node: 2,
        checkpoint: Some(CheckpointPolicy {
            every_steps: 10,
            store: "/store".to_owned(),
            keep: 3,
            retention: rankguard_model::RetentionPolicy::default(),
            tiers: rankguard_model::CheckpointTiers::default(),
        }),
        max_restarts: 3,
        user: None,
        resume_from: None,
        standby: None,
    }
}

/// Generations of the disturbed job: nodes, times of start, run and end in milliseconds, and the first step.
const LIVES: [(&[&str], i64, i64, i64, u64); 5] = [
    (&["node-1", "node-2", "node-3"], 1_000, 2_000, 12_000, 0),
    (&["node-1", "node-3", "spare-1"], 13_000, 18_200, 26_000, 90),
    (&["node-1", "spare-1"], 28_900, 30_500, 38_500, 150),
    (&["node-1", "node-3", "spare-1"], 39_000, 40_400, 48_000, 200),
    (&["node-1", "node-3", "spare-1"], 48_700, 49_600, 60_000, 250),
];

fn digits() -> JobView {
    let mut spans = Vec::new();
    let mut progress = Vec::new();
    for (generation, (nodes, start, run, end, first)) in (1..).zip(LIVES) {
        for (group, node) in (0..).zip(nodes) {
            for local in 0..2 {
                let rank = Some((group * 2 + local, generation));
                spans.push(span(node, rank, "starting", start, Some(run)));
                spans.push(span(node, rank, "running", run, Some(end)));
            }
        }
        for count in 0..(end - run) / 100 {
            let step = first + count as u64;
            let wobble = (step * 7919 % 97) as f64 / 97.0;
            progress.push(ProgressPoint {
                at: at(run + count * 100),
                generation: Generation(generation),
                step: Step(step),
                loss: Some(2.3 * (-(step as f64) / 90.0).exp() + 0.03 + wobble * 0.05),
                step_ms: if count == 0 && generation > 1 {
                    900.0
                } else {
                    92.0 + wobble * 12.0
                },
            });
        }
    }
    let checkpoint = |number: u64| CheckpointView {
        step: Step(number * 20),
        generation: Generation(1),
        world_size: 6,
        bytes: 5 << 20,
        committed_at: at(3_000 + number as i64 * 3_400),
        copied: 0,
        in_parity: 0,
        mirrored_at: None,
        stall_ms: (0..6)
            .map(|rank| (Rank(rank), 0.4 + f64::from(rank) * 0.08 + (number % 3) as f64 * 0.1))
            .collect(),
    };
    JobView {
        spec: spec("digits"),
        state: JobState::Finished,
        reason: None,
        generation: Generation(5),
        run: None,
        resumed_from: None,
        passed_over: Vec::new(),
        placements: (0..6)
            .map(|rank| RankPlacement {
                rank: Rank(rank),
                local_rank: rank % 2,
                node: NodeId::from("node-1"),
            })
            .collect(),
        step: Some(Step(354)),
        generation_step: Some(Step(354)),
        checkpoints: (1..17).map(checkpoint).collect(),
        saving: None,
        checkpoint_counts: rankguard_model::CheckpointCounts::default(),
        void_shards: 0,
        void_reason: None,
        copies_failed: 0,
        copy_reason: None,
        per_rank_tensors: Vec::new(),
        drain: None,
        stragglers: Vec::new(),
        unconfirmed: Vec::new(),
        progress,
        spans,
        submitted_at: at(800),
        ended_at: Some(at(60_500)),
    }
}

fn buggy() -> JobView {
    JobView {
        spec: spec("buggy"),
        state: JobState::Stopped,
        reason: Some("the same failure of the user's program came back after 1 retry".to_owned()),
        placements: Vec::new(),
        checkpoints: Vec::new(),
        saving: None,
        checkpoint_counts: rankguard_model::CheckpointCounts::default(),
        void_shards: 0,
        void_reason: None,
        copies_failed: 0,
        copy_reason: None,
        per_rank_tensors: Vec::new(),
        step: Some(Step(13)),
        generation_step: Some(Step(13)),
        drain: None,
        stragglers: Vec::new(),
        unconfirmed: Vec::new(),
        progress: Vec::new(),
        spans: vec![span("node-1", Some((0, 1)), "running", 61_000, Some(63_000))],
        submitted_at: at(60_600),
        ended_at: Some(at(65_000)),
        ..digits()
    }
}

/// Variable parts of the sample's cases.
struct SampleCase {
    id: u64,
    class: &'static str,
    blamed: Entity,
    /// Time of the first evidence, milliseconds after the start of the sample.
    at: i64,
    /// Delay until the first step after the recovery, milliseconds; `None` without a recovery.
    first_step: Option<i64>,
    /// Role and text of each finding, in order of time.
    lines: &'static [(Role, &'static str)],
    outcome: &'static str,
}

fn gpu_lost() -> Case {
    case(SampleCase {
        id: 1,
        class: classes::GPU_FALLEN_OFF_BUS,
        blamed: Entity::Device {
            node: NodeId::from("node-2"),
            device: Device {
                kind: DeviceKind::Gpu,
                address: "0000:9b:00".to_owned(),
            },
        },
        at: 12_000,
        first_step: Some(6_210),
        lines: &[
            (Role::Root, "a GPU of the node reports Xid 79 and answers no more"),
            (Role::Cascade, "a GPU of the node reports Xid 45"),
            (Role::Cascade, "rank 0 lost its connection to rank 2 <remote>"),
        ],
        outcome: "the job makes steps again on node-1, node-3, spare-1",
    })
}

fn node_lost() -> Case {
    let blamed = Entity::Node {
        node: NodeId::from("node-3"),
    };
    let lines = &[
        (Role::Root, "no word from node-3 for 1.2 s"),
        (Role::Cascade, "rank 1 lost its connection to rank 3"),
    ];
    let outcome = "the job makes steps again on two nodes";
    case(SampleCase {
        id: 2,
        class: classes::NODE_CRASH,
        blamed,
        at: 26_000,
        first_step: Some(4_500),
        lines,
        outcome,
    })
}

fn oom() -> Case {
    let blamed = Entity::Rank {
        job: JobId::from("digits"),
        generation: Generation(4),
        rank: Rank(1),
        node: NodeId::from("node-1"),
    };
    let lines = &[
        (Role::Root, "the kernel killed the process of rank 1 for want of memory"),
        (Role::Confirmation, "rank 1 ended with signal 9 (exit code 137)"),
    ];
    let outcome = "restarted in place";
    case(SampleCase {
        id: 3,
        class: classes::HOST_OOM_KILL,
        blamed,
        at: 48_000,
        first_step: Some(1_600),
        lines,
        outcome,
    })
}

fn user_bug() -> Case {
    let lines = &[(
        Role::Root,
        "RuntimeError: mat1 and mat2 have shapes that cannot be multiplied\n  File \"train.py\", line 41: shape 'wrong'",
    )];
    let mut case = case(SampleCase {
        id: 4,
        class: classes::TENSOR_SHAPE_MISMATCH,
        blamed: Entity::Job {
            job: JobId::from("buggy"),
        },
        at: 63_000,
        first_step: None,
        lines,
        outcome: "the job was stopped",
    });
    (case.job, case.state) = (Some(JobId::from("buggy")), CaseState::Closed);
    case
}

fn case(draft: SampleCase) -> Case {
    let class = ClassId::from(draft.class);
    let catalogue = Catalogue::builtin();
    let reason = |after: i64, text: &str| ReasoningEntry {
        at: at(draft.at + after),
        text: text.to_owned(),
    };
    let finding = |(number, (role, text)): (u64, &(Role, &str))| CaseFinding {
        evidence: EvidenceId {
            node: NodeId::from("node-2"),
            seq: Sequence(40 + number),
        },
        at: at(draft.at + number as i64 * 14),
        source: EvidenceSource::KernelLog,
        entity: draft.blamed.clone(),
        class: class.clone(),
        role: *role,
        confidence: 0.9,
        text: (*text).to_owned(),
        why: "it came first and nothing else explains it".to_owned(),
        synthetic: false,
    };
    let stage = |share: i64| draft.first_step.map(|total| total * share / 100);
    Case {
        id: CaseId(draft.id),
        state: CaseState::Recovered,
        job: Some(JobId::from("digits")),
        generation: Some(Generation(draft.id)),
        first_at: at(draft.at),
        opened_at: at(draft.at + 40),
        closed_at: Some(at(draft.at + 8_000)),
        verdict: Verdict {
            layer: catalogue
                .class(&class)
                .map_or_else(|| "hardware".to_owned(), |class| class.layer.clone()),
            severity: Severity::Failure,
            blamed: draft.blamed.clone(),
            blamed_part: None,
            root_rank: Some(Rank(2)),
            first_cause: None,
            confidence: 0.94,
            taxonomies: catalogue.taxonomies_of(&class),
            mitigation: catalogue.mitigation(&class),
            alternatives: vec![(ClassId::from(classes::GPU_DRIVER_FAULT), 0.21)],
            class: class.clone(),
        },
        findings: (0..).zip(draft.lines).map(finding).collect(),
        reasoning: vec![
            reason(
                40,
                "the first evidence is a root by its signature; two others follow within 30 ms",
            ),
            reason(
                520,
                "errors of survivors are consequences: their peer had gone before they spoke",
            ),
        ],
        plan: Some(PlanId(draft.id + 1)),
        actions: vec![
            reason(540, "plan 2: swap node-2 for spare-1"),
            reason(560, "fence generation 1 on every node"),
        ],
        outcome: Some(draft.outcome.to_owned()),
        clears: "the GPU is enumerated again after a power cycle and passes a burn-in".to_owned(),
        delays: CaseDelays {
            evidence_ms: stage(1),
            case_ms: stage(1),
            plan_ms: stage(14),
            fenced_ms: stage(22),
            launched_ms: stage(30),
            first_step_ms: draft.first_step,
        },
        steps_lost: draft.first_step.map(|_| 8),
        notes: Vec::new(),
        replayed: false,
        awaits_operator: None,
        recovery: None,
    }
}

/// Returns the recovery options of a job of three nodes that lost one.
pub fn recovery_choice() -> RecoveryChoice {
    let option = |kind, nodes, outcome, reason: &str, cost| RecoveryOption {
        kind,
        nodes,
        wait_ms: 0,
        outcome,
        reason: reason.to_owned(),
        cost,
    };
    let shrink = RecoveryCost {
        restart: 12_000,
        repeated: 1_500,
        capacity: 1_830_000,
        growth: 12_000,
        ..RecoveryCost::default()
    };
    RecoveryChoice {
        at: at(20_000),
        nodes_before: 3,
        nodes_full: 3,
        restart_ms: Some(4_000),
        options: vec![
            option(
                RecoveryKind::RestartInPlace,
                0,
                OptionOutcome::Unavailable,
                "1 of its 3 nodes cannot be used",
                None,
            ),
            option(
                RecoveryKind::Shrink,
                2,
                OptionOutcome::Chosen,
                "the only option that suffices",
                Some(shrink),
            ),
        ],
        inputs: vec![CostInput {
            name: "return of the lost nodes".to_owned(),
            value: "1800.0 s".to_owned(),
            assumed: true,
            basis: "0 returns of nodes have been measured".to_owned(),
        }],
    }
}
