//! Steps that survivors of a failure make until they are ended, and the first step of any rank.

use std::time::Duration;

use rankguard_core::{Event, Policy};
use rankguard_model::{
    CheckpointTiers, Entity, EvidenceBody, EvidenceSource, Generation, ProcessExit, Rank, ShardSeal, Step,
};

use crate::cluster::{Cluster, job, node};

fn commit(cluster: &mut Cluster, step: u64) {
    for rank in 0..8 {
        let seal = ShardSeal {
            rank: Rank(rank),
            step: Step(step),
            world_size: 8,
            index: "0".repeat(64),
            bytes: 1,
            ledger: None,
            schema: String::new(),
        };
        cluster.rank_says(rank, EvidenceBody::ShardDurable { seal }, Vec::new());
    }
    let manifest = cluster.manifests.pop().expect("it is whole");
    cluster.tell(Event::ManifestCommitted {
        job: job(),
        step: manifest.step,
        generation: manifest.generation,
        differing: Vec::new(),
        per_rank: Vec::new(),
        same_size: Vec::new(),
    });
}

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
    commit(&mut cluster, 50);
    (0..8).for_each(|rank| cluster.progress(rank, 52));
    cluster.orders.clear();
    let body = EvidenceBody::RankExited {
        pid: 0,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(0, body, Vec::new());
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.generation(), Generation(2));
    cluster
}

fn launch(cluster: &mut Cluster) {
    for _ in 0..4 {
        cluster.obey();
        for look in std::mem::take(&mut cluster.looks) {
            cluster.tell(Event::ShardsFound {
                job: job(),
                generation: look.generation,
                seals: Vec::new(),
                newest: None,
                committed: Vec::new(),
                same_size: Vec::new(),
                unusable: Vec::new(),
                problem: None,
            });
        }
    }
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
        launch(&mut cluster);
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
    launch(&mut cluster);
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
