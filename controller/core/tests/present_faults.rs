//! Faults that last while their job goes on: the case is open until the end of the fault is seen.

mod cluster;

use std::time::Duration;

use cluster::{Cluster, job, node};
use rankguard_core::{DecisionState, Event, Policy, RULES};
use rankguard_model::{
    Case, CaseId, CaseNote, CaseNoteKind, CaseState, CheckpointTiers, ClassId, Classification, Device, DeviceKind,
    Entity, EvidenceBody, EvidenceSource, FieldValues, NodeId, ProcessExit, Rank, Role, Step, Timestamp,
};

fn mark(class: &str, role: Role, signature: &str) -> Classification {
    Classification {
        class: ClassId::from(class),
        role,
        confidence: 0.95,
        signature: signature.into(),
        fields: FieldValues::new(),
    }
}

fn line(text: &str) -> EvidenceBody {
    EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

fn device(node: NodeId, kind: DeviceKind, address: &str) -> Entity {
    let address = address.to_owned();
    Entity::Device {
        node,
        device: Device { kind, address },
    }
}

fn opened(cluster: &Cluster) -> Vec<CaseId> {
    cluster.state.status(cluster.now).open_cases
}

fn only_case(cluster: &Cluster) -> Case {
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:#?}") };
    case.clone()
}

fn outcome(cluster: &Cluster) -> String {
    only_case(cluster).outcome.unwrap_or_default()
}

fn outcome_of_first(cluster: &Cluster) -> String {
    cluster.cases()[0].outcome.clone().unwrap_or_default()
}

/// Ranks stand at step 40 for more than `hang_ms` while rank 0 makes steps.
fn standing(rules: u32, ranks: &[u32]) -> Cluster {
    let mut cluster = Cluster::running(Policy {
        rules,
        ..Policy::default()
    });
    cluster.wait(Duration::from_secs(31));
    for rank in ranks {
        let mut stalled = mark("hang-no-error", Role::Confirmation, "ranks.stalled");
        stalled.fields = [("step", "40".to_owned()), ("silent_ms", "31000".to_owned())].into();
        cluster.rank_says(*rank, line("no step for 31 s after step 40"), vec![stalled]);
    }
    for step in 41..360 {
        cluster.progress(0, step);
        cluster.wait(Duration::from_secs(1));
    }
    cluster
}

#[test]
fn a_standing_rank_keeps_its_case_open_until_it_makes_a_step() {
    let mut cluster = standing(RULES, &[5]);
    assert_eq!(opened(&cluster), [CaseId(1)]);
    for step in 360..4_000 {
        cluster.progress(0, step);
        cluster.wait(Duration::from_secs(1));
    }
    let case = only_case(&cluster);
    assert_eq!((case.state, case.closed_at), (CaseState::FaultPresent, None));
    assert_eq!(case.clears_label(), "cleared by");
    cluster.progress(5, 41);
    assert_eq!(opened(&cluster), []);
    let case = only_case(&cluster);
    assert_eq!((case.state, case.closed_at), (CaseState::Closed, Some(cluster.now)));
    let now = cluster.now;
    let wanted = format!("every rank of the job is alive, so nothing is restarted; rank 5 made step 41 at {now}");
    assert_eq!(case.outcome, Some(wanted));
}

#[test]
fn journals_of_older_rules_close_the_case_at_once() {
    let cluster = standing(7, &[5]);
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
    assert_eq!(opened(&cluster), []);
}

#[test]
fn the_case_of_several_standing_ranks_is_open_until_the_last_one_makes_a_step() {
    let mut cluster = standing(RULES, &[3, 5]);
    cluster.progress(5, 41);
    assert_eq!(only_case(&cluster).state, CaseState::FaultPresent);
    cluster.progress(3, 41);
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
}

#[test]
fn the_case_survives_a_restart_of_the_controller() {
    let mut cluster = standing(RULES, &[5]);
    let stored = serde_json::to_string(&cluster.state).expect("it is plain data");
    cluster.state = serde_json::from_str::<DecisionState>(&stored).expect("it was written above");
    cluster.tell(Event::ControllerStarted);
    assert_eq!(opened(&cluster), [CaseId(1)]);
    cluster.progress(5, 41);
    assert_eq!(opened(&cluster), []);
}

#[test]
fn the_end_of_its_job_closes_the_case() {
    let mut cluster = standing(RULES, &[5]);
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    assert_eq!(opened(&cluster), []);
    assert!(
        outcome(&cluster).contains("; the job was stopped: "),
        "{}",
        outcome(&cluster)
    );
}

#[test]
fn a_rank_that_ended_stands_no_more_although_its_job_waits_for_nodes() {
    let mut cluster = standing(RULES, &[5]);
    cluster.tell(Event::NodeCordoned {
        node: node(3),
        reason: "fan".to_owned(),
    });
    let exit = EvidenceBody::RankExited {
        pid: 5,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(5, exit, Vec::new());
    assert_eq!(cluster.cases()[0].state, CaseState::Closed);
    assert!(outcome_of_first(&cluster).contains("; rank 5 ended at "));
    cluster.wait(Duration::from_secs(30));
    assert_eq!(opened(&cluster), [CaseId(2)], "the job waits for a node");
}

#[test]
fn a_restart_of_the_ranks_ends_the_standing_of_one() {
    let mut cluster = standing(RULES, &[5]);
    let exit = EvidenceBody::RankExited {
        pid: 2,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(2, exit, Vec::new());
    cluster.wait(Duration::from_secs(60));
    let first = cluster.cases()[0].clone();
    assert_eq!(first.state, CaseState::Closed);
    let outcome = first.outcome.unwrap_or_default();
    assert!(
        outcome.contains("; the ranks of the job start again, generation 2 at "),
        "{outcome}"
    );
}

fn closes(cluster: &mut Cluster, by: &str, text: &str) {
    let note = CaseNote {
        at: Timestamp::default(),
        by: by.to_owned(),
        kind: CaseNoteKind::Closed,
        text: text.to_owned(),
    };
    cluster.tell(Event::CaseNoted { case: CaseId(1), note });
}

#[test]
fn an_operator_closes_a_case_that_nothing_else_would_close() {
    let mut cluster = standing(RULES, &[5]);
    closes(&mut cluster, "ada", "rank 5 only logs");
    assert_eq!(opened(&cluster), []);
    let ends = outcome(&cluster);
    assert!(ends.contains("; ada closed the case: rank 5 only logs at "), "{ends}");
    // A note on a closed case closes nothing again.
    closes(&mut cluster, "bob", "");
    assert_eq!(outcome(&cluster), ends);
}

fn save_fails(cluster: &mut Cluster, rank: u32, step: u64) {
    let entity = Entity::Rank {
        job: job(),
        generation: cluster.generation(),
        rank: Rank(rank),
        node: node(rank / 2),
    };
    let body = EvidenceBody::ShardFailed {
        step: Step(step),
        reason: "no space left on device".to_owned(),
    };
    let marks = vec![mark("disk-full", Role::Root, "checkpoint-store")];
    cluster.report(node(rank / 2), EvidenceSource::Checkpoint, entity, body, marks);
}

fn commits(cluster: &mut Cluster, step: u64) {
    cluster.tell(Event::ManifestCommitted {
        job: job(),
        step: Step(step),
        generation: cluster.generation(),
        differing: Vec::new(),
    });
}

#[test]
fn a_full_disk_keeps_one_case_open_until_a_later_checkpoint_is_committed() {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    // Each wait is longer than the window of a concluded failure.
    for step in [50, 60, 70] {
        save_fails(&mut cluster, 3, step);
        for second in 0..1_200 {
            cluster.progress(0, step * 1_000 + second);
            cluster.wait(Duration::from_secs(1));
        }
        assert_eq!(opened(&cluster), [CaseId(1)], "{:#?}", cluster.cases());
    }
    // An earlier checkpoint may have been on its way.
    commits(&mut cluster, 40);
    assert_eq!(opened(&cluster), [CaseId(1)]);
    commits(&mut cluster, 80);
    assert_eq!(opened(&cluster), []);
    let ends = cluster.cases()[0].outcome.clone().unwrap_or_default();
    assert!(ends.contains("; the checkpoint of step 80 was committed at "), "{ends}");
}

#[test]
fn a_disk_that_is_full_again_opens_its_case_again() {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    save_fails(&mut cluster, 3, 50);
    cluster.wait(Duration::from_secs(20));
    commits(&mut cluster, 60);
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
    save_fails(&mut cluster, 3, 70);
    assert_eq!(only_case(&cluster).state, CaseState::FaultPresent);
    assert_eq!(
        outcome(&cluster),
        "the failure was reported again, and nothing is restarted"
    );
    closes(&mut cluster, "ada", "");
    save_fails(&mut cluster, 3, 80);
    assert_eq!(only_case(&cluster).state, CaseState::Closed, "an operator accepted it");
}

#[test]
fn a_save_that_failed_once_is_over_with_the_next_commit() {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    save_fails(&mut cluster, 3, 50);
    commits(&mut cluster, 60);
    cluster.wait(Duration::from_secs(60));
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
}

#[test]
fn a_link_keeps_its_case_open_while_it_is_down() {
    let mut cluster = Cluster::running(Policy::default());
    let down = vec![mark("nic-link-down", Role::Root, "nic.link-down")];
    let link = device(node(1), DeviceKind::Nic, "mlx5_0");
    let source = EvidenceSource::KernelLog;
    cluster.report(node(1), source, link.clone(), line("mlx5_0: link is down"), down);
    cluster.wait(Duration::from_secs(60));
    assert_eq!(only_case(&cluster).state, CaseState::FaultPresent);
    let up = EvidenceBody::Sample {
        metric: "nic.operstate_up".to_owned(),
        value: 1.0,
        unit: String::new(),
    };
    cluster.report(node(1), EvidenceSource::Nic, link, up, Vec::new());
    assert_eq!(only_case(&cluster).state, CaseState::Closed);
    assert_eq!(
        outcome(&cluster).matches("the link was up again").count(),
        1,
        "{}",
        outcome(&cluster)
    );
}
