//! Hanging jobs: the suspect is named within a minute, the job is left alone while it may still continue, and restarted
//! if it does not.

use std::time::Duration;

use rankguard_core::{Event, Policy, RULES, TimerKey};
use rankguard_model::{
    Case, CaseState, ClassId, Classification, Device, DeviceKind, Entity, EvidenceBody, EvidenceSource, FieldValues,
    Generation, JobSpec, NodeRange, ProcessExit, Rank, Role,
};

use crate::cluster::{Cluster, job, node};

/// An agent reports a rank as silent for 31 s, with this stack frame.
pub(crate) fn silent(cluster: &mut Cluster, rank: u32, step: u64, place: &str) {
    silent_in(cluster, rank, step, place, "S");
}

/// The same, of a process in this state of the kernel.
fn silent_in(cluster: &mut Cluster, rank: u32, step: u64, place: &str, state: &str) {
    let fields = [
        ("step", step.to_string()),
        ("silent_ms", "31000".to_owned()),
        ("state", state.to_owned()),
    ];
    let mark = Classification {
        class: ClassId::from("hang-no-error"),
        role: Role::Confirmation,
        confidence: 0.6,
        signature: "ranks.stalled".into(),
        fields: fields.into(),
    };
    let body = EvidenceBody::Line {
        text: format!("no step for 31 s after step {step}"),
        context: vec![
            "main (train.py:9)".to_owned(),
            place.to_owned(),
            "-- thread x".to_owned(),
        ],
        repeats: 1,
    };
    cluster.rank_says(rank, body, vec![mark]);
}

/// All ranks wait for rank 5, which reads.
fn hung() -> Cluster {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    for rank in 0..8 {
        let place = if rank == 5 {
            "read (data.py:3)"
        } else {
            "all_reduce (dist.py:7)"
        };
        silent(&mut cluster, rank, 40, place);
    }
    cluster.wait(Duration::from_secs(10));
    cluster
}

/// NCCL reports to the agent of the first node which rank is behind.
fn nccl_names(cluster: &mut Cluster, generation: u64, rank: u32) {
    let mark = Classification {
        class: ClassId::from("hang-stalled-ranks"),
        role: Role::Confirmation,
        confidence: 0.7,
        signature: "nccl.ras".into(),
        fields: FieldValues::from([
            ("generation".to_owned(), generation.to_string()),
            (
                format!("rank {rank}"),
                "has launched 11 AllReduce operations, most ranks 12".to_owned(),
            ),
        ]),
    };
    let body = EvidenceBody::Line {
        text: format!("NCCL 2.28.3 says: rank {rank} of 8 has launched 11 AllReduce operations, most ranks 12"),
        context: Vec::new(),
        repeats: 1,
    };
    cluster.report(
        node(0),
        EvidenceSource::Ranks,
        Entity::Job { job: job() },
        body,
        vec![mark],
    );
}

#[test]
fn where_all_stand_alike_nccl_names_the_rank_that_is_behind() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    silent(&mut cluster, 0, 40, "all_reduce (dist.py:7)");
    nccl_names(&mut cluster, 1, 3);
    // A report of an older generation is ignored.
    nccl_names(&mut cluster, 0, 6);
    (1..8).for_each(|rank| silent(&mut cluster, rank, 40, "all_reduce (dist.py:7)"));
    cluster.wait(Duration::from_secs(10));
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "hang-stalled-ranks");
    assert_eq!(case.verdict.root_rank, Some(Rank(3)));
    let named = format!(
        "Rank 3 on {} has launched 11 AllReduce operations, most ranks 12.",
        node(1)
    );
    assert!(
        case.reasoning.iter().any(|reason| reason.text == named),
        "{:#?}",
        case.reasoning
    );
}

#[test]
fn what_nccl_answers_after_the_case_is_told_in_it() {
    let mut cluster = hung();
    nccl_names(&mut cluster, 1, 3);
    let case = cluster.cases()[0].clone();
    assert!(
        case.reasoning
            .iter()
            .any(|reason| reason.text.starts_with("NCCL 2.28.3 says: rank 3 of 8")),
        "{:#?}",
        case.reasoning
    );
    assert_eq!(case.verdict.root_rank, Some(Rank(5)));
}

#[test]
fn a_file_server_that_answers_again_is_told_in_the_case_of_its_hang_and_another_is_not() {
    let mut cluster = Cluster::running(Policy::default());
    let line = |server: &str, says: &str, class: &str, role, signature: &str| {
        let mark = Classification {
            class: ClassId::from(class),
            role,
            confidence: 0.94,
            signature: signature.into(),
            fields: FieldValues::from([("server", server)]),
        };
        let body = EvidenceBody::Line {
            text: format!("nfs: server {server} {says}"),
            context: Vec::new(),
            repeats: 1,
        };
        (body, vec![mark])
    };
    let entity = || Entity::Node { node: node(1) };
    let (body, marks) = line(
        "nas01",
        "not responding, still trying",
        "filesystem-hang",
        Role::Root,
        "nfs-not-responding",
    );
    cluster.report(node(1), EvidenceSource::KernelLog, entity(), body, marks);
    cluster.wait(Duration::from_secs(31));
    (0..8).for_each(|rank| silent(&mut cluster, rank, 40, "read (data.py:3)"));
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.cases()[0].verdict.class.as_str(), "filesystem-hang");
    for server in ["nas02", "nas01"] {
        let (body, marks) = line(server, "OK", "none", Role::Noise, "nfs-ok");
        cluster.report(node(1), EvidenceSource::KernelLog, entity(), body, marks);
    }
    let case = cluster.cases()[0].clone();
    let told: Vec<&str> = case.actions.iter().map(|action| action.text.as_str()).collect();
    let wanted = "what was waited for answers again: nfs: server nas01 OK";
    assert_eq!(
        told.iter().filter(|text| text.contains("answers again")).count(),
        1,
        "{told:?}"
    );
    assert!(told.contains(&wanted), "{told:?}");
    assert_eq!(case.state, CaseState::Recovering, "a step clears it");
}

/// Returns the reason of the job's state in the status.
fn why(cluster: &Cluster) -> Option<String> {
    let status = cluster.state.status(cluster.now);
    status.jobs.into_iter().find_map(|job| job.reason)
}

#[test]
fn the_rank_that_stands_elsewhere_is_named_with_the_tree_of_all_stacks_and_nothing_is_restarted_yet() {
    let cluster = hung();
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "hang-stalled-ranks");
    assert_eq!(case.verdict.root_rank, Some(Rank(5)));
    assert_eq!(case.verdict.blamed.node(), Some(&node(2)));
    assert_eq!(case.state, CaseState::Recovering);
    let told: String = case
        .reasoning
        .iter()
        .map(|reason| reason.text.as_str())
        .collect::<Vec<_>>()
        .join("\n");
    for wanted in [
        "ranks 0-7: main (train.py:9)\n",
        "ranks 0-4,6-7:   all_reduce (dist.py:7)\n",
        "rank 5:   read (data.py:3)",
        "stands in main (train.py:9) > read (data.py:3), while 7 of 8 wait for others",
    ] {
        assert!(told.contains(wanted), "{wanted} is not in {told}");
    }
    assert!(!told.contains("thread x"), "{told}");
    assert_eq!(cluster.generation(), Generation(1));
    let why = why(&cluster).expect("whoever asks is told why nothing happens");
    assert!(why.contains("the job is left alone until"), "{why}");
}

#[test]
fn a_step_clears_the_case() {
    let mut cluster = hung();
    cluster.progress(0, 41);
    assert_eq!(cluster.cases()[0].state, CaseState::Closed);
    assert_eq!(why(&cluster), None);
    for step in 42..600 {
        for rank in 0..8 {
            cluster.progress(rank, step);
        }
        cluster.wait(Duration::from_secs(1));
    }
    assert_eq!((cluster.cases().len(), cluster.generation()), (1, Generation(1)));
}

#[test]
fn a_report_of_an_old_step_clears_nothing() {
    let mut cluster = hung();
    cluster.progress(0, 40);
    assert_eq!(cluster.cases()[0].state, CaseState::Recovering);
}

#[test]
fn a_silence_that_lasts_ends_in_a_new_generation_of_the_same_case() {
    let mut cluster = hung();
    cluster.wait(Duration::from_secs(250));
    assert_eq!(cluster.generation(), Generation(1));
    cluster.wait(Duration::from_secs(20));
    assert_eq!(cluster.generation(), Generation(2));
    cluster.obey();
    cluster.obey();
    for rank in 0..8 {
        cluster.progress(rank, 1);
    }
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.state, CaseState::Recovered);
}

#[test]
fn a_second_silence_of_the_same_generation_is_answered_too() {
    let mut cluster = hung();
    for rank in 0..8 {
        cluster.progress(rank, 41);
    }
    cluster.wait(Duration::from_secs(31));
    for rank in 0..8 {
        silent(&mut cluster, rank, 41, "all_reduce (dist.py:7)");
    }
    cluster.wait(Duration::from_secs(400));
    assert_eq!(cluster.generation(), Generation(2));
}

#[test]
fn a_rank_that_gives_up_ends_the_wait() {
    let mut cluster = hung();
    let exit = EvidenceBody::RankExited {
        pid: 3,
        exit: ProcessExit::Signal(6),
        ended_by_agent: false,
    };
    cluster.rank_says(3, exit, Vec::new());
    assert_eq!(cluster.generation(), Generation(2));
}

#[test]
fn ranks_that_have_ended_are_not_waited_for_although_another_only_hangs() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    for rank in (0..8).filter(|rank| *rank != 5) {
        let exit = EvidenceBody::RankExited {
            pid: rank,
            exit: ProcessExit::Code(1),
            ended_by_agent: false,
        };
        cluster.rank_says(rank, exit, Vec::new());
    }
    silent(&mut cluster, 5, 40, "stopped");
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.cases().len(), 1);
    assert_eq!(cluster.generation(), Generation(2));
}

const STOPPED: &str = "was stopped by a signal (state T); SIGCONT lets it go on";

/// Rank 3 is stopped in a collective, where all others wait for it.
#[test]
fn a_stopped_rank_is_blamed_for_the_hang_of_all() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    for rank in 0..8 {
        let place = if rank == 5 {
            "read (data.py:3)"
        } else {
            "all_reduce (dist.py:7)"
        };
        silent_in(&mut cluster, rank, 40, place, if rank == 3 { "T" } else { "S" });
    }
    cluster.wait(Duration::from_secs(10));
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.blamed.rank(), Some(Rank(3)), "{case:#?}");
    assert_shows_stop(case);
    let wanted = format!("Rank 3 on node-1 {STOPPED}");
    let reasons: Vec<&str> = case.reasoning.iter().map(|reason| reason.text.as_str()).collect();
    assert!(reasons.iter().any(|text| text.starts_with(&wanted)), "{reasons:#?}");
    let shown = why(&cluster).unwrap_or_default();
    assert!(
        shown.contains("rank 3 on node-1 has made no step since") && shown.contains(STOPPED),
        "{shown}"
    );
}

/// The verdict is about the stop, and not about a collective.
fn assert_shows_stop(case: &Case) {
    let verdict = &case.verdict;
    assert_eq!(verdict.layer, "unknown", "{case:#?}");
    assert!(
        verdict.mitigation.advice.contains("SIGCONT"),
        "{:?}",
        verdict.mitigation
    );
    assert!(case.clears.contains("SIGCONT"), "{}", case.clears);
    let categories: Vec<&String> = verdict.taxonomies.values().flatten().collect();
    assert!(
        categories.iter().any(|category| *category == "symptom-job-hang"),
        "{categories:?}"
    );
    assert!(
        categories.iter().all(|category| !category.contains("nccl")),
        "{categories:?}"
    );
}

#[test]
fn a_stopped_rank_that_stands_alone_is_named_until_it_makes_a_step() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    silent_in(&mut cluster, 5, 40, "read (data.py:3)", "T");
    for step in 41..341 {
        cluster.progress(0, step);
        cluster.wait(Duration::from_secs(1));
    }
    assert_shows_stop(cluster.cases()[0]);
    let outcome = cluster.cases()[0].outcome.clone().unwrap_or_default();
    assert!(
        outcome.contains("rank 5 on node-2 has made no step since") && outcome.ends_with(STOPPED),
        "{outcome}"
    );
    assert!(
        why(&cluster).unwrap_or_default().ends_with(STOPPED),
        "{:?}",
        why(&cluster)
    );
    cluster.progress(5, 41);
    assert_eq!(why(&cluster), None);
}

/// Rank 5 stands, and rank 0 makes a step each second.
fn one_stands(rules: u32, seconds: u64) -> Cluster {
    let mut cluster = Cluster::running(Policy {
        rules,
        ..Policy::default()
    });
    cluster.wait(Duration::from_secs(31));
    silent(&mut cluster, 5, 40, "read (data.py:3)");
    for step in 41..41 + seconds {
        cluster.progress(0, step);
        cluster.wait(Duration::from_secs(1));
    }
    cluster
}

#[test]
fn a_rank_that_stands_while_others_go_on_is_a_case_without_a_restart() {
    assert_eq!(one_stands(RULES, 250).cases().len(), 0);
    let mut cluster = one_stands(RULES, 300);
    // The agent reports the same silence again.
    silent(&mut cluster, 5, 40, "read (data.py:3)");
    cluster.wait(Duration::from_secs(5));
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "hang-stalled-ranks");
    assert_eq!(case.verdict.blamed.rank(), Some(Rank(5)));
    assert_eq!(case.verdict.blamed.node(), Some(&node(2)));
    assert_eq!((case.state, case.closed_at), (CaseState::FaultPresent, None));
    let outcome = case.outcome.clone().unwrap_or_default();
    assert!(outcome.contains("nothing was restarted"), "{outcome}");
    assert_eq!(cluster.generation(), Generation(1));
}

#[test]
fn journals_of_older_rules_open_no_case_for_one_standing_rank() {
    assert_eq!(one_stands(5, 400).cases().len(), 0);
}

#[test]
fn a_rank_that_stood_alone_does_not_delay_the_case_of_all() {
    let mut cluster = one_stands(RULES, 20);
    cluster.wait(Duration::from_secs(31));
    for rank in (0..8).filter(|rank| *rank != 5) {
        let step = if rank == 0 { 60 } else { 40 };
        silent(&mut cluster, rank, step, "all_reduce (dist.py:7)");
    }
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.cases().len(), 1);
}

#[test]
fn the_job_hangs_although_one_agent_does_not_tell() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    for rank in 0..7 {
        silent(&mut cluster, rank, 40, "all_reduce (dist.py:7)");
    }
    assert_eq!(cluster.cases().len(), 0);
    cluster.wait(Duration::from_secs(20));
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "hang-no-error");
}

#[test]
fn what_agents_find_is_not_heeded_when_the_policy_says_so() {
    let mut cluster = Cluster::running(Policy {
        hang_ms: 0,
        ..Policy::default()
    });
    cluster.wait(Duration::from_secs(31));
    for rank in 0..8 {
        silent(&mut cluster, rank, 40, "all_reduce (dist.py:7)");
    }
    cluster.wait(Duration::from_secs(1_000));
    assert_eq!(cluster.cases().len(), 0);
}

#[test]
fn reports_without_fields_and_of_old_generations_change_nothing() {
    let mut cluster = Cluster::running(Policy::default());
    let mark = Classification {
        class: ClassId::from("hang-no-error"),
        role: Role::Confirmation,
        confidence: 0.6,
        signature: "ranks.stalled".into(),
        fields: FieldValues::new(),
    };
    let line = || EvidenceBody::Line {
        text: "x".to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    cluster.rank_says(0, line(), vec![mark.clone()]);
    let entity = Entity::Rank {
        job: job(),
        generation: Generation(0),
        rank: Rank(0),
        node: node(0),
    };
    cluster.report(node(0), EvidenceSource::Ranks, entity, line(), vec![mark]);
    assert!(
        !cluster
            .state
            .timers()
            .keys()
            .any(|timer| matches!(timer, TimerKey::Hang { .. }))
    );
}

/// Rank 5 stood while others made steps, and moved on; later rank 2 is killed.
#[test]
fn a_rank_that_stood_and_moved_on_is_no_cause_of_a_later_failure() {
    let mut cluster = one_stands(RULES, 320);
    cluster.progress(5, 41);
    cluster.wait(Duration::from_secs(15));
    for rank in 0..8 {
        cluster.progress(rank, 400);
    }
    is_killed_by_itself(&mut cluster, 2);
}

/// Kills a rank; the newest case blames it and nothing else.
fn is_killed_by_itself(cluster: &mut Cluster, rank: u32) {
    let exit = EvidenceBody::RankExited {
        pid: 2,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(rank, exit, Vec::new());
    cluster.wait(Duration::from_secs(8));
    let cases = cluster.cases();
    let newest = cases.last().expect("a rank was killed");
    assert_eq!(
        (newest.verdict.class.as_str(), newest.verdict.root_rank),
        ("killed-by-signal", Some(Rank(rank)))
    );
}

/// All ranks stood, and went on by themselves; later rank 2 is killed.
#[test]
fn a_hang_that_is_over_is_no_cause_of_a_later_failure() {
    let mut cluster = hung();
    for rank in 0..8 {
        cluster.progress(rank, 41);
    }
    cluster.wait(Duration::from_secs(15));
    is_killed_by_itself(&mut cluster, 2);
}

fn link_changes(cluster: &mut Cluster, is_up: bool) {
    let (text, class, role, signature) = if is_up {
        ("Link up", "none", Role::Noise, "nic-link-up")
    } else {
        ("Link down", "nic-link-down", Role::Root, "nic-link-down")
    };
    let mark = Classification {
        class: ClassId::from(class),
        role,
        confidence: 0.9,
        signature: signature.into(),
        fields: FieldValues::new(),
    };
    let link = Entity::Device {
        node: node(1),
        device: Device {
            kind: DeviceKind::Nic,
            address: "ens1f0".to_owned(),
        },
    };
    let body = EvidenceBody::Line {
        text: format!("mlx5_core 0000:5e:00.0 ens1f0: {text}"),
        context: Vec::new(),
        repeats: 1,
    };
    cluster.report(node(1), EvidenceSource::KernelLog, link, body, vec![mark]);
}

/// A link goes down and comes up again 13 s later. The job goes on or not, and then stands.
fn hung_after_a_lost_link(goes_on: bool) -> Cluster {
    let mut cluster = Cluster::running(Policy::default());
    link_changes(&mut cluster, false);
    cluster.wait(Duration::from_secs(13));
    link_changes(&mut cluster, true);
    assert_eq!(cluster.cases()[0].verdict.class.as_str(), "nic-link-down");
    let mut step = 40;
    while goes_on && step < 46 {
        step += 1;
        cluster.wait(Duration::from_secs(1));
        (0..8).for_each(|rank| cluster.progress(rank, step));
    }
    cluster.wait(Duration::from_secs(31));
    (0..8).for_each(|rank| {
        let place = if rank == 5 {
            "read (data.py:3)"
        } else {
            "all_reduce (dist.py:7)"
        };
        silent(&mut cluster, rank, step, place);
    });
    cluster.wait(Duration::from_secs(10));
    cluster
}

#[test]
fn a_hang_after_a_lost_link_over_which_the_job_went_on_is_a_failure_of_its_own() {
    let cluster = hung_after_a_lost_link(true);
    let cases = cluster.cases();
    let [link, hang] = cases[..] else { panic!("{cases:#?}") };
    assert_eq!(link.state, CaseState::Closed, "{link:#?}");
    assert_eq!(hang.verdict.class.as_str(), "hang-stalled-ranks", "{hang:#?}");
    assert_eq!(hang.verdict.root_rank, Some(Rank(5)), "{hang:#?}");
    // A collective that the loss broke stands on although the link has returned.
    let cluster = hung_after_a_lost_link(false);
    let cases = cluster.cases();
    let [link] = cases[..] else { panic!("{cases:#?}") };
    let is_hang = |text: &str| text.contains("has completed no step since");
    assert!(link.findings.iter().any(|finding| is_hang(&finding.text)), "{link:#?}");
}

/// All ranks but 5 make step 41 and complete, while rank 5 was stopped by a signal after step 40.
fn others_complete(cluster: &mut Cluster, after: u64) {
    for step in 41..41 + after {
        cluster.progress(0, step);
        cluster.wait(Duration::from_secs(1));
    }
    for rank in (0..8).filter(|rank| *rank != 5) {
        completes(cluster, rank);
    }
}

fn completes(cluster: &mut Cluster, rank: u32) {
    let body = EvidenceBody::RankExited {
        pid: rank,
        exit: ProcessExit::Code(0),
        ended_by_agent: false,
    };
    cluster.rank_says(rank, body, Vec::new());
}

#[test]
fn a_rank_that_stands_after_the_others_completed_is_no_rank_beside_others_that_make_steps() {
    let mut cluster = Cluster::running(Policy::default());
    let begun = cluster.now;
    cluster.wait(Duration::from_secs(31));
    silent_in(&mut cluster, 5, 40, "read (data.py:3)", "T");
    // The limit of silence passes a moment after the others have completed.
    others_complete(&mut cluster, 265);
    let completed = cluster.now;
    cluster.wait(Duration::from_secs(60));
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.root_rank, Some(Rank(5)), "{case:#?}");
    let texts: Vec<&str> = case.reasoning.iter().map(|reason| reason.text.as_str()).collect();
    assert!(
        texts.iter().all(|text| !text.contains("other ranks make steps")),
        "{texts:#?}"
    );
    let shown = why(&cluster).expect("a reason");
    assert!(
        shown.starts_with("7 of its 8 ranks have ended with exit code 0; no rank has made a step since"),
        "{shown}"
    );
    // It has its full time from the newest step of the job.
    let hang = Duration::from_millis(Policy::default().hang_ms);
    assert_eq!(cluster.generation(), Generation(1));
    assert!(begun.after(hang) < cluster.now);
    cluster.wait(hang);
    assert!(completed.after(hang) <= cluster.now);
    assert_eq!(cluster.generation(), Generation(2));
}

#[test]
fn a_fault_beside_completed_ranks_does_not_state_that_every_rank_was_alive() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    silent_in(&mut cluster, 5, 40, "read (data.py:3)", "S");
    for rank in [6, 7] {
        completes(&mut cluster, rank);
    }
    for step in 41..341 {
        cluster.progress(0, step);
        cluster.wait(Duration::from_secs(1));
    }
    let outcome = cluster.cases()[0].outcome.clone().unwrap_or_default();
    assert!(
        outcome.starts_with("no rank of the job had failed, so nothing was restarted"),
        "{outcome}"
    );
}

/// A rank that is merely silent: nothing but its being the last one distinguishes it.
#[test]
fn the_last_rank_of_a_job_is_blamed_if_it_hangs() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    silent(&mut cluster, 5, 40, "read (data.py:3)");
    others_complete(&mut cluster, 3);
    cluster.wait(Duration::from_secs(60));
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "hang-stalled-ranks", "{case:#?}");
    assert_eq!(case.verdict.root_rank, Some(Rank(5)), "{case:#?}");
    let own = case
        .findings
        .iter()
        .filter(|finding| finding.entity.rank() == Some(Rank(5)));
    assert!(own.clone().all(|finding| finding.role != Role::Noise), "{case:#?}");
    let texts: Vec<&str> = case.reasoning.iter().map(|reason| reason.text.as_str()).collect();
    let stated = "has not ended, while 7 ranks have completed";
    assert!(texts.iter().any(|text| text.contains(stated)), "{texts:#?}");
}

/// The others made steps for a minute after the rank had stood, and then completed.
#[test]
fn the_first_cause_of_a_last_rank_is_of_its_own_newest_step() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    let stood_at = cluster.now.before(Duration::from_secs(31));
    silent(&mut cluster, 5, 40, "read (data.py:3)");
    others_complete(&mut cluster, 9);
    cluster.wait(Duration::from_secs(300));
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.first_at, stood_at, "{case:#?}");
    assert_eq!(case.findings[0].at, stood_at, "{case:#?}");
    let stated = format!("rank 5 has made no step since {stood_at} and has not ended, while 7 ranks have completed");
    assert!(case.findings[0].text.contains(&stated), "{case:#?}");
    let is_earlier = |text: &str| text.contains(" earlier, ");
    assert!(
        !case.reasoning.iter().any(|reason| is_earlier(&reason.text)),
        "{case:#?}"
    );
}

#[test]
fn a_last_rank_that_has_ended_is_not_stated_as_running() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    others_complete(&mut cluster, 3);
    silent(&mut cluster, 5, 40, "read (data.py:3)");
    cluster.now = cluster.now.after(Duration::from_secs(1));
    let body = EvidenceBody::RankExited {
        pid: 5,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(5, body, Vec::new());
    cluster.wait(Duration::from_secs(60));
    let cases = cluster.cases();
    let case = cases.first().expect("the hang is a case");
    assert_eq!(case.verdict.class.as_str(), "hang-stalled-ranks", "{case:#?}");
    let texts: Vec<&str> = case.reasoning.iter().map(|reason| reason.text.as_str()).collect();
    let is_stated = |text: &&&str| text.contains("has not ended") && !text.contains("as of ");
    assert_eq!(texts.iter().find(is_stated), None, "{texts:#?}");
}

#[test]
fn of_several_ranks_that_a_signal_stopped_none_is_blamed_before_the_others() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    for rank in 0..8 {
        let is_stopped = rank == 2 || rank == 5;
        let step = if rank == 2 { 39 } else { 40 };
        silent_in(
            &mut cluster,
            rank,
            step,
            "all_reduce (dist.py:7)",
            if is_stopped { "T" } else { "S" },
        );
    }
    cluster.wait(Duration::from_secs(10));
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "hang-stalled-ranks", "{case:#?}");
    assert_eq!(
        (case.verdict.root_rank, &case.verdict.blamed),
        (None, &Entity::Job { job: job() }),
        "{case:#?}"
    );
    assert_eq!(case.verdict.layer, "unknown", "{case:#?}");
    let text = &case.findings[0].text;
    assert!(
        ["rank 2 was stopped", "rank 5 was stopped"]
            .iter()
            .all(|part| text.contains(part)),
        "{text}"
    );
    let texts: Vec<&str> = case.reasoning.iter().map(|reason| reason.text.as_str()).collect();
    assert!(
        texts.iter().any(|text| text.contains("stopped their processes")),
        "{texts:#?}"
    );
}

/// Half of the ranks complete, and the others stand since a step long before.
#[test]
fn ranks_that_stand_while_as_many_complete_are_the_first_cause_since_their_own_step() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    let stood_at = cluster.now.before(Duration::from_secs(31));
    (4..8).for_each(|rank| silent(&mut cluster, rank, 40, "read (data.py:3)"));
    for step in 41..50 {
        cluster.progress(0, step);
        cluster.wait(Duration::from_secs(1));
    }
    (0..4).for_each(|rank| completes(&mut cluster, rank));
    cluster.wait(Duration::from_secs(300));
    let cases = cluster.cases();
    let case = cases.first().expect("the hang is a case");
    assert_eq!(case.verdict.root_rank, None, "{case:#?}");
    assert_eq!(case.first_at, stood_at, "{case:#?}");
    let stated = format!("the ranks that have not completed have made none since {stood_at}");
    assert!(case.findings[0].text.contains(&stated), "{case:#?}");
}

#[test]
fn the_last_of_two_ranks_is_blamed_if_it_hangs() {
    let mut cluster = Cluster::new(Policy::default());
    let spec = JobSpec {
        nodes: NodeRange { min: 1, max: 1 },
        ..cluster.spec(1, None)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.obey();
    cluster.obey();
    (0..2).for_each(|rank| cluster.progress(rank, 40));
    cluster.wait(Duration::from_secs(31));
    completes(&mut cluster, 0);
    silent(&mut cluster, 1, 40, "read (data.py:3)");
    cluster.wait(Duration::from_secs(60));
    let cases = cluster.cases();
    let case = cases.first().expect("the hang is a case");
    assert_eq!(case.verdict.root_rank, Some(Rank(1)), "{case:#?}");
    let stated = "has not ended, while 1 rank has completed";
    assert!(case.findings[0].text.contains(stated), "{case:#?}");
}

#[test]
fn of_several_last_ranks_none_is_blamed_before_the_others() {
    let mut cluster = Cluster::running(Policy::default());
    cluster.wait(Duration::from_secs(31));
    (0..6).for_each(|rank| completes(&mut cluster, rank));
    (6..8).for_each(|rank| silent(&mut cluster, rank, 40, "read (data.py:3)"));
    cluster.wait(Duration::from_secs(60));
    let cases = cluster.cases();
    let case = cases.first().expect("the hang is a case");
    assert_eq!(
        (case.verdict.root_rank, &case.verdict.blamed),
        (None, &Entity::Job { job: job() }),
        "{case:#?}"
    );
    let text = &case.findings[0].text;
    assert!(
        ["rank 6 has", "rank 7 has"].iter().all(|part| text.contains(part)),
        "{text}"
    );
}
