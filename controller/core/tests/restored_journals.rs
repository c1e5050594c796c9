//! A journal that was restored from a copy, under a cluster that went on without it: the job starts again once its nodes have
//! joined, and from the newest commit of its store (RG-1, RG-3).

use std::time::Duration;

use rankguard_core::{CheckFinding, Event, Policy, UnusableCheckpoint};
use rankguard_model::{
    AgentOrder, CheckpointTiers, CheckpointView, ClassId, Classification, Entity, EvidenceBody, EvidenceSource,
    FieldValues, Generation, JobFence, JobState, JobView, JournalMark, NodeHistory, NodeInfo, Rank, RankRef, Role,
    RunningRank, Step, Timestamp,
};

use crate::cluster::{Cluster, job, node};

/// Restarts the controller on a copy of the journal that knows generation 1 of the job.
fn restore(cluster: &mut Cluster) {
    cluster.tell(Event::LifeBegan {
        life: 7,
        position: 0,
        newest_at: None,
    });
    let newest_at = Some(cluster.now);
    cluster.wait(Duration::from_secs(60));
    cluster.orders.clear();
    cluster.announced.clear();
    cluster.tell(Event::ControllerStarted);
    cluster.tell(Event::LifeBegan {
        life: 9,
        position: 10,
        newest_at,
    });
}

/// The job on at least this many nodes, all of which have made step 40.
fn running(least: u32) -> Cluster {
    let mut cluster = Cluster::new(Policy::default());
    cluster.submit(least);
    cluster.obey();
    cluster.obey();
    for rank in 0..8 {
        cluster.progress(rank, 40);
    }
    restore(&mut cluster);
    cluster
}

/// A node joins on which generation 2 runs, which the lost part of the journal began.
fn join(cluster: &mut Cluster, number: u32) {
    let known = cluster.state.fleet().get(&node(number)).expect("it joined");
    let runs = |rank: u32| RunningRank {
        rank: RankRef {
            job: job(),
            generation: Generation(2),
            rank: Rank(rank),
        },
        pid: 100 + rank,
        step: None,
    };
    let fence = JobFence {
        job: job(),
        generation: Generation(2),
        life: 8,
    };
    let mark = JournalMark {
        journal: 7,
        life: 8,
        position: 14,
    };
    let info = NodeInfo {
        history: NodeHistory {
            fences: vec![fence],
            journal: Some(mark),
            ..NodeHistory::default()
        },
        running: vec![runs(number * 2), runs(number * 2 + 1)],
        ..known.info.clone()
    };
    let node = node(number);
    cluster.tell(Event::JournalDiffers { node, mark });
    cluster.tell(Event::NodeJoined { info });
    // The node ends the ranks of generation 2.
    cluster.obey();
}

fn view(cluster: &Cluster) -> JobView {
    cluster.state.status(cluster.now).jobs.remove(0)
}

fn reason(cluster: &Cluster) -> String {
    view(cluster).reason.unwrap_or_default()
}

#[test]
fn a_restored_job_starts_with_the_join_of_its_last_node() {
    let mut cluster = running(4);
    for number in 0..3 {
        join(&mut cluster, number);
        let reason = reason(&cluster);
        assert_eq!(view(&cluster).state, JobState::Pending, "{reason}");
        let (verb, free) = if number == 0 { ("is", 1) } else { ("are", number + 1) };
        assert!(reason.contains(&format!("there {verb} {free}; ")), "{reason}");
        assert!(
            reason.contains("the agent of node-3 has not joined since the controller started"),
            "{reason}"
        );
        // Generation 1 ended in the lost part of the journal.
        assert!(!reason.contains("of generation 1 still"), "{reason}");
    }
    let waits: Vec<&String> = cluster
        .announced
        .iter()
        .filter(|text| text.contains("waits for nodes"))
        .collect();
    let [wait] = waits[..] else { panic!("{waits:#?}") };
    assert!(
        wait.contains("there is 1; the agents of node-1 node-2 node-3 have not joined since the controller started"),
        "{wait}"
    );
    join(&mut cluster, 3);
    assert_eq!(
        (cluster.generation(), view(&cluster).state),
        (Generation(3), JobState::Starting)
    );
    assert!(
        reason(&cluster).contains("a controller whose journal was restored"),
        "{}",
        reason(&cluster)
    );
}

#[test]
fn an_elastic_job_does_not_shrink_while_its_nodes_join() {
    let mut cluster = running(1);
    for number in 0..3 {
        join(&mut cluster, number);
    }
    assert_eq!(cluster.generation(), Generation(1), "{}", reason(&cluster));
    let wait = reason(&cluster);
    assert!(
        wait.starts_with("waits for known nodes to join, and to confirm the end of old ranks: "),
        "{wait}"
    );
    assert!(
        wait.contains("there are 3 free healthy nodes, and it takes up to 4"),
        "{wait}"
    );
    // The last node has no rank of the job.
    let info = cluster.state.fleet().get(&node(3)).expect("it joined").info.clone();
    cluster.tell(Event::NodeJoined { info });
    assert_eq!(
        (cluster.generation(), view(&cluster).placements.len()),
        (Generation(3), 8)
    );
    let reason = reason(&cluster);
    assert!(reason.contains("a controller whose journal was restored"), "{reason}");
}

#[test]
fn rg_9_a_node_that_does_not_join_is_not_awaited_once_it_counts_as_lost() {
    let mut cluster = running(1);
    for number in 0..3 {
        join(&mut cluster, number);
    }
    cluster.tell(Event::NodeFellSilent {
        node: node(3),
        last_heard: cluster.now,
    });
    cluster.wait(Duration::from_secs(8));
    assert_eq!(
        (cluster.generation(), view(&cluster).placements.len()),
        (Generation(3), 6),
        "{}",
        reason(&cluster)
    );
}

#[test]
fn rg_4_the_status_names_the_gap_of_a_restored_journal() {
    let mut cluster = running(4);
    for number in 0..4 {
        join(&mut cluster, number);
    }
    let gaps = cluster.state.status(cluster.now).journal_gaps;
    let [gap] = &gaps[..] else { panic!("{gaps:#?}") };
    let start = cluster.now;
    assert_eq!(gap.found_at, start);
    for part in [
        "the journal was restored from a copy: node node-0 knows of entry 14",
        &format!("the newest entry before the start of the controller at {start} is of "),
    ] {
        assert!(gap.what.contains(part), "{}", gap.what);
    }
}

fn commit(step: u64, generation: u64) -> CheckpointView {
    CheckpointView {
        step: Step(step),
        generation: Generation(generation),
        world_size: 8,
        bytes: 1,
        committed_at: Timestamp(0),
        stall_ms: Vec::new(),
        copied: 0,
        in_parity: 0,
        mirrored_at: None,
    }
}

/// A job with checkpoints, restored; its nodes have joined and ended the ranks of generation 2.
fn checkpointed() -> Cluster {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    restore(&mut cluster);
    for number in 0..4 {
        join(&mut cluster, number);
    }
    cluster.obey();
    cluster
}

fn found(cluster: &mut Cluster, committed: Vec<CheckpointView>, unusable: Vec<UnusableCheckpoint>) {
    assert!(cluster.looks.pop().is_some(), "the store is listed");
    cluster.tell(Event::ShardsFound {
        job: job(),
        generation: cluster.generation(),
        seals: Vec::new(),
        newest: Some(Generation(2)),
        committed,
        same_size: Vec::new(),
        unusable,
        problem: None,
    });
}

/// Returns the step from which ranks are ordered to start.
fn starts_from(cluster: &Cluster) -> Option<u64> {
    let launch = cluster.orders.iter().rev().find_map(|(_, order)| match order {
        AgentOrder::Launch(launch) => Some(launch),
        _ => None,
    });
    Some(launch.expect("a launch").restore.as_ref()?.step.0)
}

#[test]
fn rg_1_a_restored_job_goes_on_from_the_newest_commit_of_its_store() {
    let mut cluster = checkpointed();
    let damaged = UnusableCheckpoint {
        step: Step(80),
        generation: Generation(2),
        reason: "rank-00003.index is missing".to_owned(),
    };
    found(&mut cluster, vec![commit(40, 1), commit(60, 2)], vec![damaged]);
    assert_eq!(starts_from(&cluster), Some(60));
    let view = view(&cluster);
    assert_eq!(
        view.passed_over,
        ["step 80 of generation 2: rank-00003.index is missing"]
    );
    assert_eq!(view.step, Some(Step(60)), "a commit shows that the step was made");
    let steps: Vec<u64> = view.checkpoints.iter().map(|checkpoint| checkpoint.step.0).collect();
    assert_eq!((steps, view.checkpoint_counts.committed), (vec![40, 60], 2));
    let told = cluster.announced.iter().any(|text| {
        text.contains("its store has commits of steps 40, 60, which this journal lacks; the newest is of step 60")
    });
    assert!(told, "{:#?}", cluster.announced);
}

/// A rank cannot load the checkpoint, and the controller finds the same damage.
fn is_damaged(cluster: &mut Cluster, step: u64) {
    let mut mark = Classification {
        class: ClassId::from("checkpoint-corrupt"),
        role: Role::Root,
        confidence: 0.95,
        signature: "checkpoint".into(),
        fields: FieldValues::default(),
    };
    mark.fields.insert("step", step.to_string());
    mark.fields.insert("generation", "1");
    let entity = Entity::Rank {
        job: job(),
        generation: cluster.generation(),
        rank: Rank(0),
        node: node(0),
    };
    let body = EvidenceBody::Line {
        text: format!("step {step}: rank 0 chunk 0 does not match its digest"),
        context: Vec::new(),
        repeats: 1,
    };
    cluster.report(node(0), EvidenceSource::Checkpoint, entity, body, vec![mark]);
    cluster.tell(Event::CheckpointChecked {
        job: job(),
        step: Step(step),
        generation: Generation(1),
        finding: CheckFinding::Damaged {
            what: "rank 0 chunk 0".to_owned(),
        },
    });
}

#[test]
fn rg_2_a_commit_that_was_struck_off_is_not_taken_from_the_store_again() {
    let mut cluster = checkpointed();
    found(&mut cluster, vec![commit(40, 1), commit(60, 1)], Vec::new());
    cluster.obey();
    is_damaged(&mut cluster, 60);
    cluster.orders.clear();
    // The ranks fail, and the store still has the damaged checkpoint.
    cluster.tell(Event::NodeFellSilent {
        node: node(3),
        last_heard: cluster.now,
    });
    cluster.wait(Duration::from_secs(6));
    cluster.obey();
    found(&mut cluster, vec![commit(60, 1)], Vec::new());
    assert_eq!(starts_from(&cluster), Some(40));
}

#[test]
fn a_job_that_first_ran_in_the_lost_part_of_the_journal_goes_on_from_its_commits() {
    let mut cluster = Cluster::new(Policy::default());
    for number in 0..4 {
        cluster.tell(Event::NodeCordoned {
            node: node(number),
            reason: "not yet".to_owned(),
        });
    }
    let spec = cluster.spec(3, Some(Cluster::checkpoint_policy(CheckpointTiers::default())));
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    restore(&mut cluster);
    for number in 0..4 {
        join(&mut cluster, number);
        cluster.tell(Event::NodeUncordoned { node: node(number) });
    }
    cluster.obey();
    found(&mut cluster, vec![commit(60, 2)], Vec::new());
    assert_eq!(starts_from(&cluster), Some(60));
}
