//! Stories of the demo in virtual time, each with a golden transcript that an operator could review.
//!
//! `UPDATE_TRANSCRIPTS=1 cargo test -p rankguard-sim` rewrites them; review the difference before a commit.

use std::fs;
use std::path::Path;

use rankguard_model::{CaseState, JobState, NodeId};
use rankguard_sim::{FaultScript, SimulatedWorld, SimulationOutcome};

fn play(name: &str) -> SimulationOutcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("scripts")
        .join(format!("{name}.toml"));
    let text = fs::read_to_string(&path).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()));
    let script = FaultScript::parse(&text).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()));
    let ended = SimulatedWorld::new(script).play();
    assert_eq!(ended.broken, Vec::<String>::new(), "{}", ended.transcript.as_str());
    ended
}

fn golden(name: &str, ended: &SimulationOutcome) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("scripts")
        .join(format!("{name}.transcript"));
    let got = ended.transcript.as_str();
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        fs::write(&path, got).expect("the transcript can be written");
    }
    let want = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, want, "the transcript differs from {}", path.display());
}

/// Returns class, blamed node and state of each case, in order.
fn verdicts(ended: &SimulationOutcome) -> Vec<(String, Option<NodeId>, CaseState)> {
    let cases = ended.state.cases().values();
    cases
        .map(|case| {
            (
                case.verdict.class.to_string(),
                case.verdict.blamed.node().cloned(),
                case.state,
            )
        })
        .collect()
}

fn on(class: &str, node: &str, state: CaseState) -> (String, Option<NodeId>, CaseState) {
    (class.to_owned(), Some(NodeId::from(node)), state)
}

#[test]
fn a_lost_gpu_is_one_case_and_the_spare_takes_over() {
    let ended = play("gpu-lost");
    golden("gpu-lost", &ended);
    assert!(ended.is_finished());
    assert_eq!(
        verdicts(&ended),
        [on("gpu-fallen-off-bus", "node-2", CaseState::Recovered)]
    );
    assert!(
        ended.status.jobs[0]
            .placements
            .iter()
            .any(|place| place.node.as_str() == "spare-1")
    );
}

/// A node is lost before it reported step 40. The remains of its images decide where the others continue.
#[test]
fn what_a_lost_node_had_sealed_is_committed_where_anything_is_left_of_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/untold.toml");
    let text = fs::read_to_string(&path).expect("the script");
    for (left, from) in [("shards", 40), ("copies", 40), ("nothing", 30)] {
        let script = FaultScript::parse(&text.replace("\"shards\"", &format!("{left:?}"))).expect("a script");
        let ended = SimulatedWorld::new(script).play();
        assert_eq!(ended.broken, Vec::<String>::new(), "{}", ended.transcript.as_str());
        assert!(ended.is_finished(), "{}", ended.transcript.as_str());
        let launched = format!("launch ranks 0, 1 of 4 from step {from}");
        assert!(
            ended.transcript.as_str().contains(&launched),
            "{}",
            ended.transcript.as_str()
        );
    }
    golden("untold", &play("untold"));
}

#[test]
fn a_lost_node_without_a_spare_shrinks_the_job_and_its_return_grows_it() {
    let ended = play("node-lost");
    golden("node-lost", &ended);
    assert!(ended.is_finished());
    assert_eq!(ended.state.cases().len(), 1);
    assert_eq!(ended.blamed().into_iter().collect::<Vec<_>>(), [NodeId::from("node-1")]);
    let sizes: Vec<u32> = ended.state.plans().values().map(|plan| plan.world_size()).collect();
    assert_eq!(sizes, [6, 4, 6]);
}

#[test]
fn an_oom_kill_is_confirmed_by_the_kernel_and_answered_in_place() {
    let ended = play("host-oom");
    golden("host-oom", &ended);
    assert!(ended.is_finished());
    assert_eq!(verdicts(&ended), [on("host-oom-kill", "node-2", CaseState::Recovered)]);
    let plans: Vec<_> = ended.state.plans().values().map(|plan| plan.nodes.clone()).collect();
    assert_eq!(plans[0], plans[1]);
}

#[test]
fn a_rank_that_something_killed_is_named_honestly_and_its_survivors_are_not_blamed() {
    let ended = play("rank-killed");
    golden("rank-killed", &ended);
    assert!(ended.is_finished());
    assert_eq!(
        verdicts(&ended),
        [on("killed-by-signal", "node-2", CaseState::Recovered)]
    );
}

#[test]
fn a_bug_that_comes_back_stops_the_job_and_tells_the_line() {
    let ended = play("user-bug");
    golden("user-bug", &ended);
    let job = &ended.status.jobs[0];
    assert_eq!(job.state, JobState::Stopped);
    let reason = job.reason.clone().unwrap_or_default();
    assert!(reason.contains("train.py:61") && reason.contains("1 retry"), "{reason}");
    assert!(
        ended
            .state
            .cases()
            .values()
            .all(|case| case.verdict.class.as_str() == "tensor-shape-mismatch")
    );
}

#[test]
fn a_controller_that_dies_mid_recovery_goes_on_from_its_journal() {
    let ended = play("controller-lost");
    golden("controller-lost", &ended);
    assert!(ended.is_finished());
    assert_eq!(
        verdicts(&ended),
        [on("gpu-fallen-off-bus", "node-2", CaseState::Recovered)]
    );
}

#[test]
fn a_node_at_risk_makes_the_job_checkpoint_before_it_is_lost() {
    let ended = play("risk");
    golden("risk", &ended);
    assert!(ended.is_finished());
    // The interval rule alone would have taken no checkpoint: all work would have been lost.
    let job = &ended.status.jobs[0];
    let [called] = job.checkpoints.as_slice() else {
        panic!("{:?}", job.checkpoints)
    };
    assert!(called.step.0 > 0 && called.step.0 < 110, "{}", called.step);
    let lost: Vec<_> = ended
        .state
        .cases()
        .values()
        .filter_map(|case| case.steps_lost)
        .collect();
    assert!(!lost.is_empty() && lost.iter().all(|lost| *lost < 60), "{lost:?}");
}

#[test]
fn a_call_that_one_node_hears_too_late_is_void_and_the_next_ones_look_further_ahead() {
    let ended = play("call-late");
    golden("call-late", &ended);
    let text = ended.transcript.as_str();
    assert!(text.contains("the call came too late"), "{text}");
    let job = &ended.status.jobs[0];
    assert_eq!(job.checkpoints.len(), 1, "{:?}", job.checkpoints);
    assert_eq!(job.checkpoints[0].world_size, 6);
}

#[test]
fn replicas_that_differ_blame_the_minority_and_nobody_starts_from_them() {
    let ended = play("replicas-differ");
    golden("replicas-differ", &ended);
    assert!(ended.is_finished());
    let verdicts = verdicts(&ended);
    assert_eq!(verdicts, [on("silent-data-corruption", "node-2", CaseState::Recovered)]);
    let plans: Vec<_> = ended.state.plans().values().collect();
    assert!(plans.len() == 2 && !plans[1].nodes.contains(&NodeId::from("node-2")));
    let case = ended.state.cases().values().next().expect("one case");
    let told = |wanted: &str| case.findings.iter().any(|finding| finding.text.contains(wanted));
    assert!(told("decoder.0.weight") && told("step 50"), "{:?}", case.findings);
    assert!(case.verdict.root_rank.is_some(), "{:?}", case.verdict);
}

#[test]
fn the_interval_follows_what_images_cost_and_a_new_generation_starts_with_it() {
    let ended = play("interval");
    golden("interval", &ended);
    assert!(ended.is_finished());
    let steps: Vec<u64> = ended.status.jobs[0].checkpoints.iter().map(|one| one.step.0).collect();
    // 20 ms an image and a failure in months: the longest interval allowed, 4 s, is 80 steps of 50 ms.
    let late: Vec<u64> = steps.iter().copied().filter(|step| *step > 60).collect();
    assert!(
        late.len() > 8 && late.iter().all(|step| step.is_multiple_of(80)),
        "{steps:?}"
    );
    let generations: Vec<u64> = ended.status.jobs[0]
        .checkpoints
        .iter()
        .map(|one| one.generation.0)
        .collect();
    assert!(generations.contains(&2), "{generations:?}");
    assert!(
        steps.contains(&5) && steps.contains(&10),
        "the rule of the launch holds at first: {steps:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for name in [
        "risk",
        "interval",
        "call-late",
        "replicas-differ",
        "gpu-lost",
        "node-lost",
        "host-oom",
        "user-bug",
        "rank-killed",
        "controller-lost",
    ] {
        let one = play(name);
        let other = play(name);
        assert_eq!(one.transcript, other.transcript, "{name}");
        let bytes = |ended: &SimulationOutcome| format!("{:?}", ended.journal);
        assert_eq!(bytes(&one), bytes(&other), "{name}");
    }
}
