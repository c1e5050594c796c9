//! Steps that survivors of a failure make until they are ended, and the first step of any rank.

use std::time::Duration;

use rankguard_core::Policy;
use rankguard_model::{CheckpointTiers, Entity, EvidenceBody, EvidenceSource, Generation, ProcessExit, Rank, Step};

use crate::cluster::{Cluster, job, node};

/// A rank of a generation reports a step.
fn step_of(cluster: &mut Cluster, generation: u64, rank: u32, step: u64) {
    let entity = Entity::Rank {
        job: job(),
        generation: Generation(generation),
        rank: Rank(rank),
        node: node(rank / 2),
    };
    let body = EvidenceBody::Progress {
        step: Step(step),
        loss: Some(0.5),
        step_ms: 1.0,
        own_ms: None,
    };
    cluster.report(node(rank / 2), EvidenceSource::Ranks, entity, body, Vec::new());
}

/// The job made step 52 after the commit of step 50, and rank 0 was killed; the next generation is planned.
fn planned(policy: Policy) -> Cluster {
    let mut cluster = Cluster::checkpointed(policy, CheckpointTiers::default());
    cluster.checkpoint(50);
    (0..8).for_each(|rank| cluster.progress(rank, 52));
    cluster.orders.clear();
    cluster.exits(0, ProcessExit::Signal(9), false);
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.generation(), Generation(2));
    cluster
}

fn points(cluster: &Cluster) -> Vec<(u64, u64)> {
    let view = cluster.state.job_view(&job(), cluster.now).expect("it is known");
    let points = view.progress.iter();
    points.map(|point| (point.generation.0, point.step.0)).collect()
}

#[test]
fn steps_of_a_survivor_count_as_lost_whenever_they_are_reported() {
    for (rules, until_launch, after_launch) in [(8, 2, 2), (Policy::default().rules, 10, 13)] {
        let mut cluster = planned(Policy {
            rules,
            ..Policy::default()
        });
        step_of(&mut cluster, 1, 7, 60);
        cluster.restarts_from_empty_store();
        assert_eq!(cluster.cases()[0].steps_lost, Some(until_launch), "rules {rules}");
        step_of(&mut cluster, 1, 7, 63);
        step_of(&mut cluster, 1, 7, 61);
        assert_eq!(cluster.cases()[0].steps_lost, Some(after_launch), "rules {rules}");
        assert_eq!(
            points(&cluster).last(),
            Some(&(1, 63)),
            "the progress of the job is that of all ranks"
        );
    }
}

#[test]
fn the_first_step_of_any_rank_is_the_first_of_its_generation() {
    let mut cluster = planned(Policy::default());
    cluster.restarts_from_empty_store();
    cluster.wait(Duration::from_secs(2));
    step_of(&mut cluster, 2, 5, 51);
    let case = cluster.cases()[0].clone();
    let first_step_at = case.first_at.after(Duration::from_millis(
        case.delays.first_step_ms.expect("the job works again") as u64,
    ));
    cluster.wait(Duration::from_secs(4));
    step_of(&mut cluster, 2, 0, 51);
    let view = cluster.state.job_view(&job(), cluster.now).expect("it is known");
    let mut of_generation = view.progress.iter().filter(|point| point.generation == Generation(2));
    assert_eq!(of_generation.next().map(|point| point.at), Some(first_step_at));
    assert_eq!(
        of_generation.next().map(|point| point.loss),
        Some(Some(0.5)),
        "that of rank 0 has its loss"
    );
}
