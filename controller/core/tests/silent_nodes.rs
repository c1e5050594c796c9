//! Agents of several nodes that fall silent together.

use std::time::Duration;

use rankguard_core::{Event, Policy};
use rankguard_model::{CaseState, Entity};

use crate::cluster::{Cluster, node};

#[test]
fn agents_that_fall_silent_together_blame_none_and_the_job_goes_on_without_them() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.submit(2);
    cluster.obey();
    cluster.obey();
    for rank in 0..8 {
        cluster.progress(rank, 40);
    }
    cluster.wait(Duration::from_secs(5));
    let last_heard = cluster.now;
    cluster.wait(Duration::from_secs(6));
    for number in [1, 2] {
        cluster.tell(Event::NodeFellSilent {
            node: node(number),
            last_heard: last_heard.after(Duration::from_millis(u64::from(number))),
        });
    }
    for _ in 0..60 {
        cluster.obey();
        cluster.wait(Duration::from_secs(1));
    }
    for rank in 0..4 {
        cluster.progress(rank, 41);
    }
    let cordoned = cluster.state.fleet().cordoned();
    assert_eq!(cordoned, 0, "{:#?}", cluster.announced);
    let cases = cluster.cases();
    let [case] = cases[..] else { panic!("{cases:#?}") };
    assert_eq!(case.verdict.blamed, Entity::Unknown);
    assert_eq!(case.blamed_text(), "what nodes node-1, node-2 share");
    assert_eq!(case.state, CaseState::Recovered, "{case:#?}");
    let status = cluster.state.status(cluster.now);
    let nodes: Vec<&str> = status.jobs[0]
        .placements
        .iter()
        .map(|place| place.node.as_str())
        .collect();
    assert_eq!(nodes, ["node-0", "node-0", "node-3", "node-3"]);
    assert!(status.open_cases.is_empty(), "{:?}", status.open_cases);
}
