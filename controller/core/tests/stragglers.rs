//! Stragglers: ranks that are slower than the others by their step marks.

use std::time::Duration;

use rankguard_core::Policy;
use rankguard_model::{Entity, EvidenceBody, Rank, Step, Timestamp};

use crate::cluster::{Cluster, job, node};

/// Eight ranks make steps, one a second, and report their own work time.
fn steps(cluster: &mut Cluster, from: u64, count: u64, own_ms: impl Fn(u32) -> f64) {
    for step in from..from + count {
        for rank in 0..8 {
            let body = EvidenceBody::Progress {
                step: Step(step),
                loss: None,
                step_ms: 140.0,
                own_ms: Some(own_ms(rank)),
            };
            cluster.rank_says(rank, body, Vec::new());
        }
        cluster.wait(Duration::from_secs(1));
    }
}

#[test]
fn a_slow_rank_is_shown_and_a_case_and_nothing_is_restarted() {
    let mut cluster = Cluster::running(Policy::default());
    let generation = cluster.generation();
    steps(&mut cluster, 100, 90, |rank| if rank == 5 { 140.0 } else { 100.0 });
    let view = cluster.state.status(Timestamp(0));
    let slow: Vec<_> = view.jobs[0]
        .stragglers
        .iter()
        .map(|it| (it.rank, it.node.clone(), it.usual_ms, it.is_usual))
        .collect();
    assert_eq!(slow, [(Rank(5), node(2), 100.0, false)]);
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "straggler");
    let slow = Entity::Rank {
        job: job(),
        generation,
        rank: Rank(5),
        node: node(2),
    };
    assert_eq!(
        case.verdict.blamed, slow,
        "rank 4 of the same node is as fast as the others"
    );
    assert_eq!(case.verdict.layer, "unknown", "nothing points to its machine");
    let told = "rank 5 on node-2 takes 140.0 ms a step and the others 100.0 ms: 40 % more; rank 4 on the same node is as \
                fast as the others";
    let text = &case.findings[0].text;
    let (named_at, stated) = text.split_once(", ").expect("two parts");
    assert_eq!(stated, told);
    // It was slow from the first step that is compared, and was named later.
    assert_eq!(case.first_at, view.jobs[0].stragglers[0].since);
    assert!(
        named_at.starts_with("as of ") && !named_at.contains(&case.first_at.to_string()),
        "{text}"
    );
    let opening = &case.reasoning[0].text;
    assert!(
        opening.contains("the controller's comparison of ranks says"),
        "{opening}"
    );
    let texts: Vec<&str> = case.reasoning.iter().map(|entry| entry.text.as_str()).collect();
    assert!(
        texts
            .iter()
            .any(|text| text.ends_with("it shows what is slow, not the reason.")),
        "{texts:?}"
    );
    assert!(!case.is_synthetic());
    assert_eq!(cluster.generation(), generation);
    let job = cluster.state.jobs().values().next().expect("there is one");
    assert!(job.is_running(), "{:?}", job.phase());
    // Most compared steps are usual again, but fewer than three comparisons in a row.
    steps(&mut cluster, 200, 24, |_| 100.0);
    let view = cluster.state.status(Timestamp(0));
    let states: Vec<_> = view.jobs[0]
        .stragglers
        .iter()
        .map(|it| (it.step_ms, it.is_usual))
        .collect();
    assert_eq!(states, [(100.0, true)]);
    steps(&mut cluster, 224, 66, |_| 100.0);
    assert_eq!(cluster.state.status(Timestamp(0)).jobs[0].stragglers, []);
}

#[test]
fn ranks_that_are_alike_are_no_news() {
    let mut cluster = Cluster::running(Policy::default());
    steps(&mut cluster, 100, 90, |rank| 100.0 + f64::from(rank) / 2.0);
    assert_eq!(cluster.cases().len(), 0);
    assert_eq!(cluster.state.status(Timestamp(0)).jobs[0].stragglers, []);
}

#[test]
fn a_rank_that_an_injection_slows_is_a_drill() {
    let mut cluster = Cluster::running(Policy::default());
    for step in 100..190 {
        for rank in 0..8 {
            let own_ms = if rank == 5 { 140.0 } else { 100.0 };
            let body = EvidenceBody::Progress {
                step: Step(step),
                loss: None,
                step_ms: 140.0,
                own_ms: Some(own_ms),
            };
            cluster.rank_reports(rank, body, rank == 5);
        }
        cluster.wait(Duration::from_secs(1));
    }
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.verdict.class.as_str(), "straggler");
    assert!(case.is_synthetic(), "{case:?}");
}

#[test]
fn slow_ranks_of_one_node_blame_the_node() {
    let mut cluster = Cluster::running(Policy::default());
    steps(&mut cluster, 100, 90, |rank| if rank / 2 == 2 { 140.0 } else { 100.0 });
    let cases = cluster.cases();
    assert_eq!(cases[0].verdict.blamed, Entity::Node { node: node(2) });
}
