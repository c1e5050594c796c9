//! Facts for tests.

use rankguard_model::{CaseId, CaseState, Generation, JobId, NodeId, Severity, Timestamp};
use rankguard_notify::CaseFacts;

pub(crate) const START: i64 = 1_800_000_000;

/// Returns a time, in seconds after the start of the tests.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis((START + seconds) * 1_000)
}

/// Returns a case of job `vision` with a verdict that blames node `n1`.
pub(crate) fn case(id: u64, state: CaseState) -> CaseFacts {
    let is_over = matches!(state, CaseState::Recovered | CaseState::Closed);
    CaseFacts {
        id: CaseId(id),
        state,
        opened_at: at(0),
        ended_at: is_over.then(|| at(30)),
        class: "gpu-fallen-off-bus".into(),
        severity: Severity::Failure,
        confidence: 0.9,
        blamed: "node n1, gpu 0000:9b:00".to_owned(),
        node: Some(NodeId::from("n1")),
        blames_node: true,
        root_rank: Some("rank 3 failed first".to_owned()),
        job: Some(JobId::from("vision")),
        generation: Some(Generation(1)),
        is_job_stopped: false,
        plan: None,
        cordoned: Vec::new(),
        awaits_operator: false,
        is_drill: false,
    }
}
