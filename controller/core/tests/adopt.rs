//! Adoption: sealed shards of the last generation are committed even if they were not reported.

use std::time::Duration;

use rankguard_core::{AdoptionStage, Event, JobPhase, Policy};
use rankguard_model::{
    AgentOrder, CheckpointTiers, Entity, EvidenceBody, EvidenceSource, Generation, ImageLocation, ProcessExit, Rank,
    ShardSeal, Step,
};

use crate::cluster::{Cluster, Look, job, node};
use crate::hang::silent;

const ONE: Generation = Generation(1);

fn seal(rank: u32, step: u64) -> ShardSeal {
    ShardSeal {
        rank: Rank(rank),
        step: Step(step),
        world_size: 8,
        index: "0".repeat(64),
        bytes: 1,
        ledger: None,
        schema: String::new(),
    }
}

/// All ranks have sealed step 50.
fn sealed(tiers: CheckpointTiers) -> Cluster {
    let mut cluster = Cluster::checkpointed(Policy::default(), tiers);
    for rank in 0..8 {
        let sealed = EvidenceBody::ShardSealed {
            step: Step(50),
            stall_ms: 1.0,
            bytes: 1,
        };
        cluster.rank_says(rank, sealed, Vec::new());
    }
    cluster
}

/// All ranks have sealed step 50; those of the first three nodes are reported durable, and the last node is lost.
fn without_a_word(tiers: CheckpointTiers) -> Cluster {
    let mut cluster = sealed(tiers);
    for rank in 0..6 {
        cluster.rank_says(rank, EvidenceBody::ShardDurable { seal: seal(rank, 50) }, Vec::new());
    }
    assert!(cluster.manifests.is_empty());
    fail(&mut cluster);
    cluster
}

/// The last node is lost, and the others have ended their ranks.
fn fail(cluster: &mut Cluster) {
    cluster.orders.clear();
    cluster.tell(Event::NodeFellSilent {
        node: node(3),
        last_heard: cluster.now,
    });
    cluster.wait(Duration::from_secs(6));
    assert_eq!(cluster.generation(), Generation(2));
    cluster.obey();
}

fn found(cluster: &mut Cluster, seals: Vec<ShardSeal>) {
    assert!(cluster.looks.pop().is_some(), "nobody has asked");
    cluster.tell(Event::ShardsFound {
        job: job(),
        generation: cluster.generation(),
        seals,
        newest: None,
        committed: Vec::new(),
        same_size: Vec::new(),
        unusable: Vec::new(),
        problem: None,
    });
}

/// Returns the step from which ranks of the second generation are ordered to start.
fn starts_from(cluster: &Cluster) -> Option<Option<u64>> {
    cluster.orders.iter().find_map(|(_, order)| match order {
        AgentOrder::Launch(launch) => Some(launch.restore.as_ref().map(|point| point.step.0)),
        _ => None,
    })
}

fn asked(cluster: &mut Cluster) -> Vec<(u32, ImageLocation)> {
    let asked = cluster.orders.iter().filter_map(|(to, order)| match order {
        AgentOrder::Finish(wanted) => {
            assert_eq!((wanted.of, wanted.generation), (ONE, Generation(2)));
            let number = (0..4).find(|number| node(*number) == *to)?;
            Some((number, wanted.from))
        }
        _ => None,
    });
    let asked = asked.collect();
    cluster
        .orders
        .retain(|(_, order)| !matches!(order, AgentOrder::Finish(_)));
    asked
}

fn finished(cluster: &mut Cluster, number: u32, from: ImageLocation) {
    let body = EvidenceBody::ShardsFinished {
        job: job(),
        generation: cluster.generation(),
        from,
        shards: 0,
        failed: None,
    };
    let entity = Entity::Node { node: node(number) };
    cluster.report(node(number), EvidenceSource::Checkpoint, entity, body, Vec::new());
}

fn commit(cluster: &mut Cluster) {
    let manifest = cluster.manifests.pop().expect("a manifest to write");
    assert_eq!(manifest.generation, ONE, "it is of those who sealed it");
    cluster.tell(Event::ManifestCommitted {
        job: manifest.job,
        step: manifest.step,
        generation: manifest.generation,
        differing: Vec::new(),
        per_rank: Vec::new(),
        same_size: Vec::new(),
    });
}

#[test]
fn rg_1_shards_that_nobody_has_told_of_are_found_in_the_store_and_committed_before_ranks_start() {
    let mut cluster = without_a_word(CheckpointTiers::default());
    let look = Look {
        generation: Generation(2),
        of: ONE,
        after: None,
    };
    assert_eq!(cluster.looks, [look]);
    assert_eq!(starts_from(&cluster), None, "not before the store has answered");
    found(&mut cluster, vec![seal(6, 50), seal(7, 50)]);
    assert_eq!(starts_from(&cluster), None, "not before it is committed");
    commit(&mut cluster);
    assert_eq!(starts_from(&cluster), Some(Some(50)));
}

/// The controller could record nothing for a time. The shards of all ranks of step 60 stand in the store; one rank ended after it,
/// and the others saved many steps that never become whole. The reports of the others arrived first.
#[test]
fn rg_1_a_whole_checkpoint_in_the_store_is_committed_although_many_later_ones_are_incomplete() {
    for (rules, step) in [(8, None), (Policy::default().rules, Some(60))] {
        let policy = Policy {
            rules,
            ..Policy::default()
        };
        let mut cluster = Cluster::checkpointed(policy, CheckpointTiers::default());
        let saves: Vec<u64> = (6..=24).map(|save| save * 10).collect();
        for rank in 0..7 {
            for step in &saves {
                cluster.rank_says(
                    rank,
                    EvidenceBody::ShardDurable {
                        seal: seal(rank, *step),
                    },
                    Vec::new(),
                );
            }
        }
        cluster.rank_says(7, EvidenceBody::ShardDurable { seal: seal(7, 60) }, Vec::new());
        assert!(cluster.manifests.is_empty());
        fail(&mut cluster);
        let mut stored: Vec<ShardSeal> = saves
            .iter()
            .flat_map(|step| (0..7).map(|rank| seal(rank, *step)))
            .collect();
        stored.push(seal(7, 60));
        found(&mut cluster, stored.clone());
        for _ in 0..2 {
            for (number, from) in asked(&mut cluster) {
                finished(&mut cluster, number, from);
            }
        }
        if !cluster.looks.is_empty() {
            found(&mut cluster, stored);
        }
        if step.is_some() {
            commit(&mut cluster);
        }
        assert_eq!(starts_from(&cluster), Some(step), "rules {rules}");
    }
}

#[test]
fn what_is_not_whole_is_asked_of_the_nodes_that_are_left_the_nearest_place_first() {
    let tiers = CheckpointTiers {
        nodes: 1,
        ..CheckpointTiers::default()
    };
    let mut cluster = without_a_word(tiers);
    found(&mut cluster, vec![seal(6, 50)]);
    for from in [ImageLocation::Arenas, ImageLocation::Copies] {
        assert_eq!(asked(&mut cluster), [(0, from), (1, from), (2, from)]);
        finished(&mut cluster, 0, from);
        finished(&mut cluster, 1, ImageLocation::Parity);
        assert!(cluster.looks.is_empty(), "two have not answered this");
        finished(&mut cluster, 1, from);
        // A node that is lost meanwhile is not waited for.
        match from {
            ImageLocation::Copies => cluster.tell(Event::NodeFellSilent {
                node: node(2),
                last_heard: cluster.now,
            }),
            _ => finished(&mut cluster, 2, from),
        }
        if from == ImageLocation::Arenas {
            found(&mut cluster, Vec::new());
        }
    }
    found(&mut cluster, vec![seal(7, 50)]);
    commit(&mut cluster);
    assert_eq!(starts_from(&cluster), Some(Some(50)));
}

#[test]
fn where_nothing_is_left_the_job_goes_on_and_nobody_is_asked_for_what_is_known_to_be_nothing() {
    let mut cluster = without_a_word(CheckpointTiers::default());
    found(&mut cluster, Vec::new());
    asked(&mut cluster);
    for number in 0..3 {
        finished(&mut cluster, number, ImageLocation::Arenas);
    }
    found(&mut cluster, Vec::new());
    assert_eq!(
        starts_from(&cluster),
        Some(None),
        "there are neither copies nor parity to ask for"
    );
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    fail(&mut cluster);
    found(&mut cluster, Vec::new());
    assert_eq!(asked(&mut cluster), []);
    assert_eq!(starts_from(&cluster), Some(None));
}

#[test]
fn rg_9_a_store_and_nodes_that_do_not_answer_cost_a_wait_and_no_job() {
    for answers in [false, true] {
        let mut cluster = without_a_word(CheckpointTiers::default());
        if answers {
            found(&mut cluster, Vec::new());
        }
        cluster.wait(Duration::from_secs(59));
        assert_eq!(starts_from(&cluster), None);
        cluster.wait(Duration::from_secs(2));
        assert_eq!(starts_from(&cluster), Some(None));
        // A report is too late from here on.
        cluster.tell(Event::ShardsFound {
            job: job(),
            generation: Generation(2),
            seals: vec![seal(6, 50), seal(7, 50)],
            newest: None,
            committed: Vec::new(),
            same_size: Vec::new(),
            unusable: Vec::new(),
            problem: None,
        });
        assert!(cluster.manifests.is_empty());
    }
}

#[test]
fn rg_3_words_of_the_last_generation_count_until_the_next_starts_and_older_ones_never() {
    let mut cluster = without_a_word(CheckpointTiers::default());
    let late = |cluster: &mut Cluster, generation, rank| {
        let entity = Entity::Rank {
            job: job(),
            generation,
            rank: Rank(rank),
            node: node(3),
        };
        let body = EvidenceBody::ShardDurable { seal: seal(rank, 50) };
        cluster.report(node(3), EvidenceSource::Checkpoint, entity, body, Vec::new());
    };
    late(&mut cluster, Generation(0), 6);
    late(&mut cluster, ONE, 7);
    found(&mut cluster, vec![seal(6, 50)]);
    commit(&mut cluster);
    assert_eq!(starts_from(&cluster), Some(Some(50)));
    let mut cluster = without_a_word(CheckpointTiers::default());
    found(&mut cluster, vec![seal(6, 50)]);
    for number in 0..3 {
        finished(&mut cluster, number, ImageLocation::Arenas);
    }
    found(&mut cluster, Vec::new());
    assert_eq!(starts_from(&cluster), Some(None));
    late(&mut cluster, ONE, 7);
    assert!(
        cluster.manifests.is_empty(),
        "ranks have started from another checkpoint"
    );
}

#[test]
fn a_controller_that_comes_back_asks_again_and_an_older_journal_without_answers_is_understood() {
    let mut cluster = without_a_word(CheckpointTiers::default());
    cluster.looks.clear();
    cluster.tell(Event::ControllerStarted);
    assert_eq!(cluster.looks.len(), 1);
    let phase = cluster.state.jobs()[&job()].phase();
    assert!(
        matches!(
            phase,
            JobPhase::Adopting {
                stage: AdoptionStage::Looking { .. },
                ..
            }
        ),
        "{phase:?}"
    );
    cluster.rank_says(
        0,
        EvidenceBody::RankStarted {
            pid: 1,
            from_standby: false,
        },
        Vec::new(),
    );
    assert!(matches!(
        cluster.state.jobs()[&job()].phase(),
        JobPhase::Launching { .. }
    ));
}

#[test]
fn a_manifest_that_cannot_be_written_is_void_and_the_job_goes_on() {
    let mut cluster = without_a_word(CheckpointTiers::default());
    found(&mut cluster, vec![seal(6, 50), seal(7, 50)]);
    let manifest = cluster.manifests.pop().expect("a manifest to write");
    cluster.tell(Event::ManifestRefused {
        job: manifest.job,
        step: manifest.step,
        generation: manifest.generation,
        reason: "a shard is damaged".to_owned(),
        differing: Vec::new(),
    });
    assert_eq!(starts_from(&cluster), Some(None));
}

/// The last checkpoint of a training is often the important one: ranks exit while their agents still write it.
#[test]
fn rg_1_what_is_durable_only_after_its_ranks_have_ended_well_is_committed_all_the_same() {
    let mut cluster = sealed(CheckpointTiers::default());
    for rank in 0..8 {
        let exited = EvidenceBody::RankExited {
            pid: rank,
            exit: ProcessExit::Code(0),
            ended_by_agent: false,
        };
        cluster.rank_says(rank, exited, Vec::new());
    }
    assert_eq!(*cluster.state.jobs()[&job()].phase(), JobPhase::Finished);
    let saving = |cluster: &Cluster| cluster.state.status(cluster.now).jobs[0].saving;
    assert_eq!(saving(&cluster), Some(Step(50)), "whoever waits for the end can tell");
    for rank in 0..8 {
        cluster.rank_says(rank, EvidenceBody::ShardDurable { seal: seal(rank, 50) }, Vec::new());
    }
    assert_eq!(saving(&cluster), Some(Step(50)));
    commit(&mut cluster);
    let newest = cluster.state.jobs()[&job()].checkpoints.newest();
    assert_eq!(newest.map(|view| view.step), Some(Step(50)));
    assert_eq!(saving(&cluster), None);
}

/// A store that does not respond: all ranks have sealed step 50, none of its shards becomes durable, and all wait for the save.
#[test]
fn a_hang_in_a_save_names_the_store_and_the_wait_for_it_is_no_end_of_ranks() {
    let mut cluster = sealed(CheckpointTiers::default());
    cluster.wait(Duration::from_secs(31));
    for rank in 0..8 {
        silent(&mut cluster, rank, 50, "checkpoint (_session.py:211)");
    }
    cluster.wait(Duration::from_secs(10));
    let names_save =
        |text: &str| text.contains("a save of step 50 has been under way since") && text.contains("on rank 0");
    let case = cluster.cases()[0].clone();
    let mut reasoning = case.reasoning.iter();
    assert!(reasoning.any(|entry| names_save(&entry.text)), "{:#?}", case.reasoning);
    let reason = |cluster: &Cluster| {
        let view = cluster.state.job_view(&job(), cluster.now).expect("it is known");
        (view.reason.clone().unwrap_or_default(), view.current_step())
    };
    assert!(names_save(&reason(&cluster).0), "{:?}", reason(&cluster));
    cluster.orders.clear();
    while cluster.generation() == ONE {
        cluster.wait(Duration::from_secs(1));
    }
    assert_eq!(cluster.generation(), Generation(2));
    let plan = cluster.state.jobs()[&job()]
        .plan()
        .expect("it is planned")
        .reasons
        .join("; ");
    assert!(names_save(&plan), "{plan}");

    let ended_at = cluster.now;
    cluster.obey();
    cluster.wait(Duration::from_secs(30));
    let (text, step) = reason(&cluster);
    assert!(
        text.contains(&format!(
            "its old ranks have ended at {ended_at}; since then the job waits"
        )),
        "{text}"
    );
    assert_eq!(step, None, "generation 2 has made no step");
    found(&mut cluster, Vec::new());
    for (number, from) in asked(&mut cluster) {
        finished(&mut cluster, number, from);
    }
    found(&mut cluster, Vec::new());
    let case = cluster.cases()[0].clone();
    assert_eq!(case.delays.fenced_ms, Some(ended_at.millis_since(case.first_at)));
    let waited = format!("old ranks have ended at {ended_at}; the job waited 30.0 s for its store");
    let mut actions = case.actions.iter();
    assert!(actions.any(|entry| entry.text.contains(&waited)), "{:#?}", case.actions);
}
