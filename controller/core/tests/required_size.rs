//! Jobs with a checkpoint that only as many ranks as have saved it can restore: neither shrunk nor grown.

use std::time::Duration;

use rankguard_core::{Event, Job, JobPhase, PlanKind, Policy, SameSizeCheckpoint};
use rankguard_model::{
    CheckpointTiers, CheckpointView, EvidenceBody, Generation, JobId, JobSpec, OptionOutcome, Rank, RecoveryKind,
    ResumePlace, ResumeSource, RunId, ShardSeal, Step, StoreClaim, Timestamp,
};

use crate::cluster::{Cluster, job, node};

const TENSOR: &str = "model.bn.running_mean";

fn checkpointed(policy: Policy) -> Cluster {
    Cluster::checkpointed(policy, CheckpointTiers::default())
}

fn live_job(cluster: &Cluster) -> &Job {
    &cluster.state.jobs()[&job()]
}

fn seal(rank: u32, step: u64, world_size: u32) -> ShardSeal {
    ShardSeal {
        rank: Rank(rank),
        step: Step(step),
        world_size,
        index: "0".repeat(64),
        bytes: 1,
        ledger: None,
        schema: String::new(),
    }
}

/// All ranks save a step.
fn seal_all(cluster: &mut Cluster, step: u64) {
    let ranks = live_job(cluster).nodes().len() as u32 * 2;
    for rank in 0..ranks {
        cluster.progress(rank, step);
        let sealed = EvidenceBody::ShardSealed {
            step: Step(step),
            stall_ms: 1.0,
            bytes: 1,
        };
        cluster.rank_says(rank, sealed, Vec::new());
        let seal = seal(rank, step, ranks);
        cluster.rank_says(rank, EvidenceBody::ShardDurable { seal }, Vec::new());
    }
}

/// Commits the newest save, with the tensors that only the same number of ranks restores.
fn commit(cluster: &mut Cluster, tensors: &[&str]) {
    let manifest = cluster.manifests.pop().expect("a save is complete");
    cluster.tell(Event::ManifestCommitted {
        job: job(),
        step: manifest.step,
        generation: manifest.generation,
        differing: Vec::new(),
        per_rank: tensors.iter().map(ToString::to_string).collect(),
        same_size: tensors.iter().map(ToString::to_string).collect(),
    });
}

fn save(cluster: &mut Cluster, step: u64, tensors: &[&str]) {
    seal_all(cluster, step);
    commit(cluster, tensors);
}

fn lose(cluster: &mut Cluster, number: u32) {
    let last_heard = cluster.now;
    cluster.tell(Event::NodeFellSilent {
        node: node(number),
        last_heard,
    });
    cluster.wait(Duration::from_secs(6));
}

fn join(cluster: &mut Cluster, number: u32) {
    let mut info = cluster
        .state
        .fleet()
        .get(&node(number))
        .expect("it had joined")
        .info
        .clone();
    info.incarnation = "2".to_owned();
    cluster.tell(Event::NodeJoined { info });
}

fn restart(cluster: &mut Cluster) {
    for _ in 0..4 {
        cluster.obey();
    }
}

fn reason(cluster: &Cluster) -> String {
    let view = cluster.state.job_view(&job(), cluster.now).expect("it is known");
    view.reason.unwrap_or_default()
}

fn assert_names_cause_and_remedy(text: &str, ranks: u32) {
    let wanted = format!(
        "its newest checkpoint can be restored by {ranks} ranks only, because tensor {TENSOR} differs from rank to \
         rank; restore(..., replicate=[...]) or rankguard.PerRank permits another number"
    );
    assert!(text.contains(&wanted), "{text}");
}

/// The job may run on three nodes; its checkpoint may not.
#[test]
fn a_lost_node_is_awaited_where_the_checkpoint_needs_all_ranks() {
    let mut cluster = checkpointed(Policy::default());
    save(&mut cluster, 50, &[TENSOR]);
    assert_names_cause_and_remedy(&reason(&cluster), 8);
    cluster.orders.clear();
    lose(&mut cluster, 3);
    let JobPhase::Pending { .. } = live_job(&cluster).phase() else {
        panic!("{:?}", live_job(&cluster).phase());
    };
    let text = reason(&cluster);
    assert!(
        text.contains("it needs 4 free healthy nodes with 2 slots each, and there are 3"),
        "{text}"
    );
    assert_names_cause_and_remedy(&text, 8);
    let cases = cluster.cases();
    let choice = cases[0].recovery.as_ref().expect("options were compared");
    let shrink = choice.options.iter().find(|option| option.kind == RecoveryKind::Shrink);
    let shrink = shrink.expect("every kind is listed");
    assert_eq!(shrink.outcome, OptionOutcome::Unavailable);
    assert_names_cause_and_remedy(&shrink.reason, 8);
    // The node returns, and the job goes on with its ranks.
    join(&mut cluster, 3);
    restart(&mut cluster);
    assert_eq!(cluster.generation(), Generation(2));
    assert_eq!(live_job(&cluster).nodes().len(), 4);
}

/// RG-9: the wait ends with a stop that names the cause.
#[test]
fn a_wait_for_the_required_size_has_an_end() {
    let mut cluster = checkpointed(Policy::default());
    save(&mut cluster, 50, &[TENSOR]);
    lose(&mut cluster, 3);
    cluster.wait(Duration::from_secs(3_600));
    let JobPhase::Stopped { reason } = live_job(&cluster).phase() else {
        panic!("{:?}", live_job(&cluster).phase());
    };
    assert_names_cause_and_remedy(reason, 8);
}

#[test]
fn a_job_with_a_checkpoint_for_any_number_of_ranks_shrinks() {
    for (rules, tensors) in [(8, vec![]), (7, vec![TENSOR])] {
        let policy = Policy {
            rules,
            ..Policy::default()
        };
        let mut cluster = checkpointed(policy);
        save(&mut cluster, 50, &tensors);
        lose(&mut cluster, 3);
        let plan = live_job(&cluster).plan().expect("it restarts");
        assert_eq!((plan.kind, plan.nodes.len()), (PlanKind::Shrink, 3), "rules {rules}");
    }
}

/// The newest checkpoint decides: an earlier one had the tensor.
#[test]
fn a_newer_checkpoint_without_the_tensor_permits_other_sizes() {
    let mut cluster = checkpointed(Policy::default());
    save(&mut cluster, 50, &[TENSOR]);
    save(&mut cluster, 60, &[]);
    assert_eq!(reason(&cluster), "");
    lose(&mut cluster, 3);
    assert_eq!(live_job(&cluster).nodes().len(), 3);
}

#[test]
fn a_small_job_does_not_grow_beyond_the_ranks_of_its_checkpoint() {
    for tensors in [vec![TENSOR], vec![]] {
        let mut cluster = checkpointed(Policy::default());
        save(&mut cluster, 50, &[]);
        lose(&mut cluster, 3);
        restart(&mut cluster);
        if let Some(look) = cluster.looks.pop() {
            assert_eq!(look.generation, Generation(2));
            cluster.tell(found(Vec::new(), look.generation));
        }
        restart(&mut cluster);
        let ranks = live_job(&cluster).nodes().len() as u32 * 2;
        assert_eq!(ranks, 6);
        save(&mut cluster, 60, &tensors);
        join(&mut cluster, 3);
        restart(&mut cluster);
        for round in 1..=12 {
            cluster.wait(Duration::from_secs(10));
            if cluster.generation() == Generation(2) {
                save(&mut cluster, 60 + round * 10, &tensors);
            }
        }
        let grows = cluster.generation() > Generation(2);
        assert_eq!(grows, tensors.is_empty(), "{}", reason(&cluster));
        if !grows {
            let text = reason(&cluster);
            assert!(text.starts_with("it neither shrinks nor grows: "), "{text}");
            assert_names_cause_and_remedy(&text, 6);
        }
    }
}

fn found(seals: Vec<ShardSeal>, generation: Generation) -> Event {
    Event::ShardsFound {
        job: job(),
        generation,
        seals,
        newest: None,
        committed: Vec::new(),
        same_size: Vec::new(),
        unusable: Vec::new(),
        problem: None,
    }
}

/// The first save is committed after the loss of a node, when the job has been planned for three nodes.
#[test]
fn a_plan_that_a_late_commit_contradicts_is_not_launched() {
    let mut cluster = checkpointed(Policy::default());
    seal_all(&mut cluster, 50);
    cluster.orders.clear();
    lose(&mut cluster, 3);
    cluster.obey();
    commit(&mut cluster, &[TENSOR]);
    if let Some(look) = cluster.looks.pop() {
        cluster.tell(found(Vec::new(), look.generation));
    }
    restart(&mut cluster);
    assert!(live_job(&cluster).is_pending(), "{:?}", live_job(&cluster).phase());
    assert_names_cause_and_remedy(&reason(&cluster), 8);
    join(&mut cluster, 3);
    for _ in 0..3 {
        restart(&mut cluster);
        if let Some(look) = cluster.looks.pop() {
            cluster.tell(found(Vec::new(), look.generation));
        }
    }
    assert_eq!(live_job(&cluster).nodes().len(), 4);
    assert!(live_job(&cluster).has_started(), "{:?}", live_job(&cluster).phase());
}

/// The job resumes from a checkpoint of 6 ranks, may have four nodes, and four are free.
#[test]
fn the_start_of_a_resumed_job_requires_its_number_of_ranks() {
    for (tensors, nodes) in [(vec![TENSOR.to_owned()], 3), (Vec::new(), 4)] {
        let mut cluster = Cluster::new(Policy::default());
        let policy = Cluster::checkpoint_policy(CheckpointTiers::default());
        let spec = JobSpec {
            resume_from: Some(ResumeSource {
                place: ResumePlace::Job(JobId::from("other")),
                step: None,
            }),
            ..cluster.spec(1, Some(policy))
        };
        let start = CheckpointView {
            world_size: 6,
            ..stored(1, 380)
        };
        let claim = StoreClaim {
            run: RunId::from("a"),
            first: Generation(2),
            start: None,
            checkpoints: vec![start],
            same_size: tensors.clone(),
            passed_over: Vec::new(),
        };
        cluster.tell(Event::JobSubmitted {
            spec,
            claim: Some(Box::new(claim)),
        });
        restart(&mut cluster);
        assert_eq!(live_job(&cluster).nodes().len(), nodes, "{}", reason(&cluster));
        if !tensors.is_empty() {
            assert_names_cause_and_remedy(&reason(&cluster), 6);
        }
    }
}

fn stored(generation: u64, step: u64) -> CheckpointView {
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

/// The journal lacks a commit of the store, and its plan is for three nodes.
#[test]
fn a_commit_that_only_the_store_has_requires_its_number_of_ranks() {
    for tensors in [vec![TENSOR.to_owned()], Vec::new()] {
        let mut cluster = checkpointed(Policy::default());
        save(&mut cluster, 50, &[]);
        lose(&mut cluster, 3);
        restart(&mut cluster);
        let look = cluster.looks.pop().expect("the store is listed");
        let Event::ShardsFound { job, generation, .. } = found(Vec::new(), look.generation) else {
            unreachable!("it was made so")
        };
        cluster.tell(Event::ShardsFound {
            job,
            generation,
            seals: Vec::new(),
            newest: None,
            committed: vec![stored(1, 60)],
            same_size: vec![SameSizeCheckpoint {
                step: Step(60),
                generation: Generation(1),
                tensors: tensors.clone(),
            }],
            unusable: Vec::new(),
            problem: None,
        });
        restart(&mut cluster);
        assert_eq!(
            live_job(&cluster).is_pending(),
            !tensors.is_empty(),
            "{:?}",
            live_job(&cluster).phase()
        );
        if !tensors.is_empty() {
            assert_names_cause_and_remedy(&reason(&cluster), 8);
        }
    }
}
