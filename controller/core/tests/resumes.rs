//! Start of an attempt from the checkpoints of an earlier one.

mod cluster;

use cluster::{Cluster, job, node};
use rankguard_core::{CheckFinding, Event, Policy};
use rankguard_model::{
    CheckpointTiers, CheckpointView, ClassId, Classification, Entity, EvidenceBody, EvidenceSource, FieldValues,
    Generation, JobView, Rank, Role, RunId, RunStart, SmolStr, Step, StoreClaim,
};

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
