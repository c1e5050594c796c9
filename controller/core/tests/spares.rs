//! Standby processes on the spare node of a job.

use std::time::Duration;

use rankguard_core::{Event, Policy};
use rankguard_model::{AgentOrder, CheckpointPolicy, CheckpointTiers, JobSpec, NodeId, NodeRange, StandbyPolicy};

use crate::cluster::{Cluster, job, node};

/// Runs a job with standby processes on two of the four nodes.
fn running(policy: Policy) -> Cluster {
    running_with(policy, None, &[0, 1, 2, 3])
}

/// The same, with checkpoints where there is a policy; only these nodes are up.
fn running_with(policy: Policy, checkpoints: Option<CheckpointPolicy>, up: &[u32]) -> Cluster {
    let mut cluster = Cluster::new(policy);
    for number in (0..4).filter(|number| !up.contains(number)) {
        cluster.falls_silent(number);
    }
    let spec = JobSpec {
        standby: Some(StandbyPolicy {
            count: 1,
            imports: vec!["torch".to_owned()],
        }),
        nodes: NodeRange { min: 2, max: 2 },
        ..cluster.spec(1, checkpoints)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.start_ranks();
    cluster.progress(0, 1);
    cluster
}

impl Cluster {
    /// Carries out the orders of a new generation.
    fn start_ranks(&mut self) {
        for _ in 0..4 {
            self.obey_all_but_preparations();
            if let Some(look) = self.looks.pop() {
                self.looks.clear();
                self.tell(Event::ShardsFound {
                    job: job(),
                    generation: look.generation,
                    seals: Vec::new(),
                    newest: None,
                    committed: Vec::new(),
                    same_size: Vec::new(),
                    unusable: Vec::new(),
                    problem: None,
                });
            }
        }
    }

    fn obey_all_but_preparations(&mut self) {
        let (kept, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.orders)
            .into_iter()
            .partition(|(_, order)| matches!(order, AgentOrder::Prepare(_)));
        self.orders = others;
        self.obey();
        self.orders.extend(kept);
    }

    /// Removes the orders to prepare from the sent ones: the nodes that start processes, and those that end them.
    fn take_prepared(&mut self) -> (Vec<NodeId>, Vec<NodeId>) {
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        let orders = std::mem::take(&mut self.orders);
        for (node, order) in orders {
            match order {
                AgentOrder::Prepare(wanted) if wanted.standby.is_some() => begun.push(node),
                AgentOrder::Prepare(_) => ended.push(node),
                other => self.orders.push((node, other)),
            }
        }
        (begun, ended)
    }
}

#[test]
fn the_node_that_would_replace_a_lost_one_is_prepared_once_and_ahead() {
    let mut cluster = running(Policy::default());
    assert_eq!(
        cluster.take_prepared(),
        (vec![node(2)], vec![]),
        "one of the two that are free"
    );
    cluster.progress(0, 2);
    assert_eq!(cluster.take_prepared(), (vec![], vec![]));
    cluster.falls_silent(1);
    cluster.wait(Duration::from_secs(10));
    cluster.start_ranks();
    assert_eq!(cluster.job().nodes(), [node(0), node(2)]);
    cluster.progress(0, 3);
    let (begun, ended) = cluster.take_prepared();
    assert_eq!(
        (begun, ended),
        (vec![node(3)], vec![]),
        "the processes on node 2 are ranks"
    );
}

#[test]
fn the_order_is_repeated_and_ends_with_the_job() {
    let mut cluster = running(Policy::default());
    let _ = cluster.take_prepared();
    for _ in 0..3 {
        cluster.wait(Duration::from_secs(301));
        assert_eq!(
            cluster.take_prepared().0,
            [node(2)],
            "agents end processes after a while"
        );
    }
    cluster.tell(Event::JobCancelled { job: job(), by: None });
    assert_eq!(cluster.take_prepared().1, [node(2)]);
    cluster.wait(Duration::from_secs(1_000));
    assert_eq!(cluster.take_prepared(), (vec![], vec![]));
}

/// Reports the end of what the orders to stop concern; returns the nodes of these orders.
fn obey_stops(cluster: &mut Cluster) -> Vec<NodeId> {
    let is_stop = |order: &AgentOrder| matches!(order, AgentOrder::Stop { .. });
    let (stops, others): (Vec<_>, Vec<_>) = std::mem::take(&mut cluster.orders)
        .into_iter()
        .partition(|(_, order)| is_stop(order));
    cluster.orders = stops.clone();
    cluster.obey();
    cluster.orders.extend(others);
    stops.into_iter().map(|(node, _)| node).collect()
}

#[test]
fn a_former_node_drops_its_images_before_processes_start_there() {
    let checkpoints = Some(Cluster::checkpoint_policy(CheckpointTiers::default()));
    let mut cluster = running_with(Policy::default(), checkpoints, &[0, 3]);
    cluster.progress(0, 40);
    cluster.checkpoint(50);
    assert_eq!(cluster.take_prepared().0, [], "no node is free");
    cluster.joins(1, "2", &[]);
    assert_eq!(cluster.take_prepared().0, [node(1)], "it was never a node of the job");
    cluster.falls_silent(0);
    cluster.wait(Duration::from_secs(10));
    cluster.start_ranks();
    assert_eq!(cluster.job().nodes(), [node(1), node(3)]);
    cluster.progress(0, 51);
    cluster.joins(0, "2", &[]);
    cluster.obey_all_but_preparations();
    assert_eq!(cluster.take_prepared().0, [], "it may hold images");
    cluster.checkpoint(60);
    assert_eq!(obey_stops(&mut cluster), [node(0)]);
    assert_eq!(cluster.take_prepared().0, [node(0)]);
}

#[test]
fn a_spare_that_is_lost_is_replaced() {
    let mut cluster = running(Policy::default());
    let _ = cluster.take_prepared();
    cluster.falls_silent(2);
    assert_eq!(cluster.take_prepared().0, [node(3)]);
}

#[test]
fn earlier_rules_and_jobs_without_standby_processes_prepare_no_spare() {
    let mut cluster = running(Policy {
        rules: 8,
        ..Policy::default()
    });
    assert_eq!(cluster.take_prepared(), (vec![], vec![]));
    let mut cluster = Cluster::new(Policy::default());
    let spec = JobSpec {
        nodes: NodeRange { min: 2, max: 2 },
        ..cluster.spec(1, None)
    };
    cluster.tell(Event::JobSubmitted { spec, claim: None });
    cluster.start_ranks();
    cluster.progress(0, 1);
    assert_eq!(cluster.take_prepared(), (vec![], vec![]));
}
