//! Start of an attempt from the checkpoints of an earlier one.

use std::time::Duration;

use rankguard_core::{CheckFinding, Event, Policy};
use rankguard_model::{
    CheckpointTiers, CheckpointView, ClassId, Classification, Entity, EvidenceBody, EvidenceSource, FieldValues,
    Generation, JobView, ProcessExit, Rank, RestoreBytes, Role, RunId, RunStart, SmolStr, Step, StoreClaim,
};

use crate::cluster::{Cluster, job, node};

fn checkpoint(cluster: &Cluster, step: u64) -> CheckpointView {
    CheckpointView {
        step: Step(step),
        generation: Generation(1),
        world_size: 8,
        bytes: 1,
        committed_at: cluster.now,
        stall_ms: Vec::new(),
        copied: 0,
        in_parity: 0,
        mirrored_at: None,
    }
}

/// The job resumes its own run, of which the checkpoints of these steps are committed.
fn resumed(steps: &[u64]) -> Cluster {
    let mut cluster = Cluster::new(Policy::default());
    let checkpoints: Vec<CheckpointView> = steps.iter().map(|step| checkpoint(&cluster, *step)).collect();
    let start = checkpoints.last().map(|newest| RunStart {
        job: job(),
        store: None,
        run: None,
        step: newest.step,
        generation: newest.generation,
    });
    let claim = StoreClaim {
        run: RunId::from("a"),
        first: Generation(2),
        start,
        checkpoints,
        same_size: Vec::new(),
        passed_over: Vec::new(),
    };
    let spec = cluster.spec(3, Some(Cluster::checkpoint_policy(CheckpointTiers::default())));
    cluster.tell(Event::JobSubmitted {
        spec,
        claim: Some(Box::new(claim)),
    });
    cluster.obey();
    cluster.obey();
    cluster
}

fn start(cluster: &Cluster) -> Option<Step> {
    view(cluster).resumed_from.map(|start| start.step)
}

fn view(cluster: &Cluster) -> JobView {
    cluster.state.status(cluster.now).jobs.remove(0)
}

/// A rank cannot load the checkpoint, and the controller finds the same damage.
fn is_damaged(cluster: &mut Cluster, step: u64) {
    let mut mark = Classification {
        class: ClassId::from("checkpoint-corrupt"),
        role: Role::Root,
        confidence: 0.95,
        signature: SmolStr::new_static("checkpoint"),
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
fn an_attempt_that_cannot_load_its_start_names_the_one_before() {
    let mut cluster = resumed(&[500, 520]);
    assert_eq!(start(&cluster), Some(Step(520)));
    is_damaged(&mut cluster, 520);
    assert_eq!(start(&cluster), Some(Step(500)), "520 was never loaded");
    let wanted = "step 520: damaged, struck off (rank 0 chunk 0)";
    assert_eq!(view(&cluster).passed_over, [wanted]);
}

#[test]
fn damage_to_another_checkpoint_leaves_the_start_as_it_was() {
    let mut cluster = resumed(&[500, 520]);
    is_damaged(&mut cluster, 500);
    assert_eq!(start(&cluster), Some(Step(520)));
    assert_eq!(view(&cluster).passed_over, [""; 0]);
}

/// A rank reports its restore of 16,000 bytes from the arena of its node.
fn restores(cluster: &mut Cluster, rank: u32) {
    let body = EvidenceBody::Restored {
        step: Step(40),
        from: RestoreBytes {
            arena: 16_000,
            ..RestoreBytes::default()
        },
        took_ms: 1.0,
    };
    cluster.rank_says(rank, body, Vec::new());
}

#[test]
fn a_case_counts_the_bytes_of_ranks_that_restore_after_the_first_step() {
    let mut cluster = Cluster::running(Policy::default());
    let body = EvidenceBody::RankExited {
        pid: 1,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(1, body, Vec::new());
    cluster.wait(Duration::from_secs(10));
    cluster.obey();
    cluster.obey();
    for rank in 0..6 {
        restores(&mut cluster, rank);
    }
    cluster.progress(0, 41);
    let restored = |cluster: &Cluster| -> Vec<String> {
        let case = cluster.cases()[0].clone();
        let texts = case.actions.into_iter().map(|entry| entry.text);
        texts.filter(|text| text.starts_with("restored")).collect()
    };
    let sources = "from arenas of the same node, 0 from peers, 0 from disk";
    assert_eq!(
        restored(&cluster),
        [format!("restored 96000 bytes in 6 of 8 ranks: 96000 {sources}")]
    );
    restores(&mut cluster, 6);
    restores(&mut cluster, 7);
    let complete = [format!("restored 128000 bytes: 128000 {sources}")];
    assert_eq!(restored(&cluster), complete);
    restores(&mut cluster, 3);
    assert_eq!(restored(&cluster), complete, "a later restore is none of the recovery");
}
