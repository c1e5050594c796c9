//! Reports of ranks that are shown and restart nothing: losses that are not finite, refused processes, errors before an exit
//! with code 0.

use std::time::Duration;

use rankguard_core::Policy;
use rankguard_model::{
    Case, CaseState, CheckpointPolicy, CheckpointTiers, ClassId, Classification, EvidenceBody, EvidenceSource,
    Generation, JobState, ProcessExit, Role, Step,
};

use crate::cluster::{Cluster, job, node};

fn line(text: &str) -> EvidenceBody {
    EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

fn signed(class: &str, role: Role, signature: &str, fields: &[(&'static str, &str)]) -> Classification {
    Classification {
        class: ClassId::from(class),
        role,
        confidence: 0.9,
        signature: signature.into(),
        fields: fields
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect(),
    }
}

/// A rank makes a step with a loss; the first that is not finite is also reported by itself.
fn step(cluster: &mut Cluster, rank: u32, number: u64, loss: f64, is_first_bad: bool) {
    if is_first_bad {
        let step = number.to_string();
        let fields = [("step", step.as_str()), ("loss", "nan")];
        let mark = signed("loss-nan", Role::Root, "ranks.loss", &fields);
        let text = format!("rank {rank} reported the loss nan at step {number}");
        cluster.rank_says(rank, line(&text), vec![mark]);
    }
    let body = EvidenceBody::Progress {
        step: Step(number),
        // The journal has no NaN: a replay reads none.
        loss: Some(loss).filter(|loss| loss.is_finite()),
        step_ms: 1.0,
        own_ms: None,
    };
    cluster.rank_says(rank, body, Vec::new());
}

fn reason(cluster: &Cluster) -> String {
    let view = cluster.state.job_view(&job(), cluster.now).expect("it is known");
    view.reason.unwrap_or_default()
}

fn reasoning(case: &Case) -> String {
    let texts: Vec<&str> = case.reasoning.iter().map(|entry| entry.text.as_str()).collect();
    texts.join("\n")
}

/// Eight ranks report NaN from step 25 on; steps 10 and 20 are committed.
fn diverged() -> Cluster {
    let mut cluster = Cluster::checkpointed(Policy::default(), CheckpointTiers::default());
    for number in [10, 20] {
        cluster.checkpoint(number);
    }
    (0..8).for_each(|rank| step(&mut cluster, rank, 24, 0.25, false));
    (0..8).for_each(|rank| step(&mut cluster, rank, 25, f64::NAN, true));
    cluster.wait(Duration::from_secs(10));
    cluster
}

#[test]
fn a_loss_that_is_not_finite_is_a_present_fault_until_a_finite_one() {
    let mut cluster = diverged();
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "loss-nan");
    assert_eq!(case.state, CaseState::FaultPresent, "{:?}", case.outcome);
    assert!(
        reasoning(case).contains("Loss nan since step 25 (ranks 0, 1, 2, 3, 4, 5, 6, 7)."),
        "{}",
        reasoning(case)
    );
    assert!(
        reasoning(case).contains("Committed up to there: 10, 20."),
        "{}",
        reasoning(case)
    );
    assert_eq!(cluster.generation(), Generation(1), "nothing is restarted");
    assert_eq!(
        reason(&cluster),
        "loss nan since step 25 (ranks 0, 1, 2, 3, 4, 5, 6, 7)"
    );

    (0..7).for_each(|rank| step(&mut cluster, rank, 26, 0.5, false));
    assert_eq!(cluster.cases()[0].state, CaseState::FaultPresent, "rank 7 has none yet");
    step(&mut cluster, 7, 26, 0.5, false);
    let case = cluster.cases()[0];
    assert_eq!(case.state, CaseState::Closed);
    let outcome = case.outcome.as_deref().unwrap_or_default();
    assert!(
        outcome.contains("rank 7 reported a finite loss at step 26"),
        "{outcome}"
    );
    assert_eq!(reason(&cluster), "");
}

#[test]
fn retention_keeps_the_newest_checkpoint_from_before_the_loss() {
    let mut cluster = diverged();
    for number in [30, 40, 50] {
        cluster.checkpoint(number);
    }
    let retained = |cluster: &Cluster| -> Vec<u64> {
        let job = cluster.job();
        let policy = job.spec.checkpoint.clone().expect("the job has a store");
        let policy = CheckpointPolicy { keep: 2, ..policy };
        let retained = job.retained_checkpoints(&policy, cluster.now);
        let mut steps: Vec<u64> = retained.iter().map(|id| id.step.0).collect();
        steps.sort_unstable();
        steps
    };
    assert_eq!(retained(&cluster), [20, 40, 50]);
    (0..8).for_each(|rank| step(&mut cluster, rank, 51, 0.5, false));
    assert_eq!(retained(&cluster), [40, 50]);
    // The loss of step 61 is that of the weights of step 60.
    (0..8).for_each(|rank| step(&mut cluster, rank, 61, f64::NAN, true));
    for number in [60, 70, 80] {
        cluster.checkpoint(number);
    }
    assert_eq!(retained(&cluster), [50, 70, 80]);
}

#[test]
fn a_refused_process_is_shown_and_part_of_the_case_that_follows() {
    let mut cluster = Cluster::running(Policy::default());
    (0..8).for_each(|rank| cluster.progress(rank, 35));
    let error = signed("key-error", Role::Root, "python-key-error", &[]);
    let entity = cluster.rank_entity(1).1;
    cluster.report(
        node(0),
        EvidenceSource::JobLog,
        entity,
        line("KeyError: 'x'"),
        vec![error],
    );
    let text = "the command of rank 1 started its program again, and process 9 was refused";
    let mark = signed("none", Role::Noise, "agent.refused-process", &[]);
    cluster.rank_says(1, line(text), vec![mark]);
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.cases().len(), 0, "the command may still end");
    assert_eq!(reason(&cluster), text);
    cluster.exits(1, ProcessExit::Code(1), false);
    cluster.wait(Duration::from_secs(10));
    let case = cluster.cases()[0];
    assert_eq!(case.verdict.class.as_str(), "key-error");
    let wanted = "The command of rank 1 started its program again, and process 9 was refused.";
    assert!(reasoning(case).contains(wanted), "{}", reasoning(case));
    assert_eq!(cluster.generation(), Generation(2), "all ranks start again");
}

/// Ranks 1 and 2 print an error, and all end with code 0.
fn ended(rules: u32, goes_on: bool) -> Cluster {
    let mut cluster = Cluster::running(Policy {
        rules,
        ..Policy::default()
    });
    (0..8).for_each(|rank| cluster.progress(rank, 54));
    cluster.wait(Duration::from_secs(1));
    for rank in [1, 2] {
        let error = signed("key-error", Role::Root, "python-key-error", &[]);
        let entity = cluster.rank_entity(rank).1;
        cluster.report(
            node(rank / 2),
            EvidenceSource::JobLog,
            entity,
            line("KeyError: 'x'"),
            vec![error],
        );
    }
    cluster.wait(Duration::from_secs(1));
    if goes_on {
        cluster.progress(1, 55);
        cluster.rank_says(2, EvidenceBody::RankFinished, Vec::new());
    }
    (0..8).for_each(|rank| cluster.exits(rank, ProcessExit::Code(0), false));
    let view = cluster.state.job_view(&job(), cluster.now).expect("it is known");
    assert_eq!(view.state, JobState::Finished);
    cluster
}

#[test]
fn errors_before_an_exit_with_code_0_are_shown_if_the_work_did_not_go_on() {
    let text = "ranks 1, 2 printed key-error before the exit with code 0, without a report that the work was done; the newest \
                step is 54";
    assert_eq!(reason(&ended(Policy::default().rules, false)), text);
    // A rank that made a step after it, or reported the end of its work, has handled the error.
    assert_eq!(reason(&ended(Policy::default().rules, true)), "");
    assert_eq!(reason(&ended(8, false)), "", "journals of earlier rules");
    assert_eq!(ended(Policy::default().rules, false).cases().len(), 0);
}
