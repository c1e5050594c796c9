//! Jobs that resumed from another job and lost their only checkpoint.

use rankguard_core::{CheckFinding, Event, JobPhase, Policy};
use rankguard_model::{
    CheckpointTiers, CheckpointView, ClassId, Classification, Entity, EvidenceBody, EvidenceSource, FieldValues,
    Generation, JobId, JobSpec, Rank, ResumePlace, ResumeSource, Role, RunId, SmolStr, Step, StoreClaim,
};

use crate::cluster::{Cluster, job, node};

fn claim(cluster: &Cluster, run: &str, steps: &[u64]) -> Box<StoreClaim> {
    let checkpoint = |step: &u64| CheckpointView {
        step: Step(*step),
        generation: Generation(1),
        world_size: 8,
        bytes: 1,
        committed_at: cluster.now,
        stall_ms: Vec::new(),
        copied: 0,
        in_parity: 0,
        mirrored_at: None,
    };
    Box::new(StoreClaim {
        run: RunId::from(run),
        first: Generation(2),
        start: None,
        checkpoints: steps.iter().map(checkpoint).collect(),
        same_size: Vec::new(),
        passed_over: Vec::new(),
    })
}

/// Job `el` has checkpoints of these steps and is over; the job resumed from the one of step 380.
fn resumed(steps: &[u64]) -> Cluster {
    let mut cluster = Cluster::new(Policy::default());
    let policy = Some(Cluster::checkpoint_policy(CheckpointTiers::default()));
    let source = JobId::from("el");
    let spec = JobSpec {
        id: source.clone(),
        ..cluster.spec(3, policy.clone())
    };
    let of_source = claim(&cluster, "a", steps);
    cluster.tell(Event::JobSubmitted {
        spec,
        claim: Some(of_source),
    });
    cluster.tell(Event::JobCancelled {
        job: source.clone(),
        by: None,
    });
    cluster.obey();
    let spec = JobSpec {
        resume_from: Some(ResumeSource {
            place: ResumePlace::Job(source),
            step: None,
        }),
        ..cluster.spec(3, policy)
    };
    let own = claim(&cluster, "b", &[380]);
    cluster.tell(Event::JobSubmitted { spec, claim: Some(own) });
    cluster.obey();
    cluster.obey();
    cluster
}

/// A rank cannot load the checkpoint, and the controller finds the same damage. Returns the reason of the stop.
fn reason_of_damage(cluster: &mut Cluster) -> String {
    let mut mark = Classification {
        class: ClassId::from("checkpoint-corrupt"),
        role: Role::Root,
        confidence: 0.95,
        signature: SmolStr::new_static("checkpoint"),
        fields: FieldValues::default(),
    };
    mark.fields.insert("step", "380".to_owned());
    mark.fields.insert("generation", "1");
    let entity = Entity::Rank {
        job: job(),
        generation: cluster.generation(),
        rank: Rank(0),
        node: node(0),
    };
    let body = EvidenceBody::Line {
        text: "step 380: rank 0 chunk 0 does not match its digest".to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    cluster.report(node(0), EvidenceSource::Checkpoint, entity, body, vec![mark]);
    cluster.tell(Event::CheckpointChecked {
        job: job(),
        step: Step(380),
        generation: Generation(1),
        finding: CheckFinding::Damaged {
            what: "rank 0 chunk 0".to_owned(),
        },
    });
    cluster.obey();
    match cluster.state.jobs()[&job()].phase() {
        JobPhase::Stopped { reason } => reason.clone(),
        phase => panic!("{phase:?}"),
    }
}

#[test]
fn a_job_without_a_checkpoint_names_those_of_the_job_from_which_it_resumed() {
    let reason = reason_of_damage(&mut resumed(&[340, 360, 380]));
    let wanted = "none of its committed checkpoints can be used; the last was of step 380 (rank 0 chunk 0): job el, from which it \
                  resumed, has checkpoints of steps 360, 340; resume with `--resume-from el:360`, repair the store, or submit \
                  the job anew to start from nothing";
    assert_eq!(reason, wanted);
}

#[test]
fn a_source_without_another_checkpoint_is_not_named() {
    let reason = reason_of_damage(&mut resumed(&[380]));
    let wanted = "none of its committed checkpoints can be used; the last was of step 380 (rank 0 chunk 0): repair the store, or \
                  submit the job anew to start from nothing";
    assert_eq!(reason, wanted);
}
