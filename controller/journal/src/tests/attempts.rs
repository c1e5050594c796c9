//! Records of a job that was resumed under its own name.

use rankguard_model::{
    CheckpointPolicy, CheckpointTiers, Generation, JobSpec, NodeRange, ResumePlace, ResumeSource, RetentionPolicy,
    RunId, StoreClaim,
};

use super::*;

fn submitted(at: i64, first: u64) -> StampedEvent {
    let job = JobId::from("train");
    let spec = JobSpec {
        id: job.clone(),
        command: vec!["train".to_owned()],
        env: std::collections::BTreeMap::new(),
        workdir: None,
        nodes: NodeRange { min: 1, max: 1 },
        ranks_per_node: 1,
        checkpoint: Some(CheckpointPolicy {
            every_steps: 10,
            store: "/store".to_owned(),
            keep: 2,
            retention: RetentionPolicy::default(),
            tiers: CheckpointTiers::default(),
        }),
        max_restarts: 0,
        user: None,
        standby: None,
        resume_from: (first > 1).then_some(ResumeSource {
            place: ResumePlace::Job(job),
            step: None,
        }),
    };
    let claim = StoreClaim {
        run: RunId::from("a".repeat(32)),
        first: Generation(first),
        start: None,
        checkpoints: Vec::new(),
        same_size: Vec::new(),
        passed_over: Vec::new(),
    };
    StampedEvent {
        at: Timestamp(at),
        event: Event::JobSubmitted {
            spec,
            claim: Some(Box::new(claim)),
        },
    }
}

#[test]
fn every_attempt_of_a_resumed_job_has_a_record() {
    let dir = dir();
    let mut journal = open(&dir.path().join(JOURNAL_FILE));
    let cancelled = |at| StampedEvent {
        at: Timestamp(at),
        event: Event::JobCancelled {
            job: JobId::from("train"),
            by: None,
        },
    };
    let events = [
        submitted(1, 1),
        cancelled(2),
        submitted(3, 2),
        cancelled(4),
        submitted(5, 3),
    ];
    let entries: Vec<Vec<u8>> = events
        .iter()
        .map(|event| encode(event).expect("an event is JSON"))
        .collect();
    journal.append(&entries).expect("room");
    drop(journal);
    let mut jobs = Vec::new();
    analyse_journal(dir.path(), |record| {
        if let JournalRecord::Job(job) = record {
            jobs.push((job.submitted.0, job.state));
        }
    })
    .expect("a journal");
    assert_eq!(jobs, [(1, "cancelled"), (3, "cancelled"), (5, "pending")]);
}
