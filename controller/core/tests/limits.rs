//! RG-9: the state stays within its limits for arbitrary evidence and any duration.

use std::time::Duration;

use rankguard_core::{DecisionState, Event, Policy, StampedEvent, invariants, step};
use rankguard_model::{
    ClassId, Classification, Entity, Evidence, EvidenceBody, EvidenceId, EvidenceSource, FieldValues, Generation,
    JobId, JobSpec, NodeId, NodeRange, Rank, Role, Sequence, Step, Timestamp,
};

use crate::cluster::{Cluster, job, node};

/// Hostile agent that reports invented names, ranks and failures.
struct Liar {
    state: DecisionState,
    now: Timestamp,
    sequence: u64,
}

impl Liar {
    /// Creates the agent in a cluster with a running job.
    fn in_a_running_cluster() -> Self {
        let cluster = Cluster::running(Policy::default());
        Self {
            state: cluster.state,
            now: cluster.now,
            sequence: 1 << 20,
        }
    }

    fn tell(&mut self, event: Event) {
        self.now = self.now.after(Duration::from_millis(1));
        step(&mut self.state, &StampedEvent { at: self.now, event });
        let due: Vec<_> = self
            .state
            .timers()
            .iter()
            .filter(|(_, at)| **at <= self.now)
            .map(|(timer, _)| timer.clone())
            .collect();
        for timer in due {
            let event = Event::TimerFired { timer };
            step(&mut self.state, &StampedEvent { at: self.now, event });
        }
    }

    fn report(&mut self, node: NodeId, entity: Entity, body: EvidenceBody, marks: Vec<Classification>) {
        self.sequence += 1;
        let evidence = Evidence {
            id: EvidenceId {
                node,
                seq: Sequence(self.sequence),
            },
            at: self.now,
            source: EvidenceSource::KernelLog,
            entity,
            body,
            marks,
            synthetic: false,
        };
        self.tell(Event::EvidenceArrived { evidence });
    }

    /// Reports a failure of a node that does not exist.
    fn failure(&mut self, number: u64, text: &str) {
        let node = NodeId::from(format!("made-up-{number}"));
        let mark = Classification {
            class: ClassId::from("gpu-fallen-off-bus"),
            role: Role::Root,
            confidence: 0.9,
            signature: "made-up".into(),
            fields: FieldValues::new(),
        };
        let body = EvidenceBody::Line {
            text: format!("{number} {text}"),
            context: Vec::new(),
            repeats: 1,
        };
        self.report(node.clone(), Entity::Node { node }, body, vec![mark]);
    }

    fn check(&self) {
        assert_eq!(invariants::check(&self.state), []);
    }

    /// Returns the size of a snapshot, bytes.
    fn size(&self) -> usize {
        serde_json::to_vec(&self.state).expect("a state is JSON").len()
    }
}

#[test]
fn cases_of_made_up_failures_stay_within_their_number_and_bytes() {
    let mut liar = Liar::in_a_running_cluster();
    let text = "x".repeat(8 << 10);
    for number in 0..6_000 {
        liar.failure(number, &text);
        // Failures settle, and diagnosis drops them.
        if number % 100 == 0 {
            liar.now = liar.now.after(Duration::from_secs(60));
            liar.check();
        }
    }
    assert!(liar.state.removed().cases > 1_000, "{:?}", liar.state.removed());
    assert!(liar.state.cases().len() <= 4_000, "{} cases", liar.state.cases().len());
    assert!(liar.size() < 150 << 20, "{} bytes", liar.size());
}

#[test]
fn failures_that_come_all_at_once_are_gathered_within_limits() {
    let mut liar = Liar::in_a_running_cluster();
    let text = "y".repeat(8 << 10);
    for number in 0..20_000 {
        liar.now = Timestamp(liar.now.0 - 1_000_000);
        liar.failure(number, &text);
    }
    assert!(liar.state.cases().len() <= 1_100, "{} cases", liar.state.cases().len());
    assert!(liar.size() < 150 << 20, "{} bytes", liar.size());
}

#[test]
fn jobs_that_are_over_are_removed_and_their_names_stay_taken() {
    let mut liar = Liar::in_a_running_cluster();
    let spec = |number: u64| JobSpec {
        id: JobId::from(format!("job-{number}")),
        command: vec!["train".to_owned()],
        env: std::collections::BTreeMap::new(),
        workdir: None,
        nodes: NodeRange { min: 9, max: 9 },
        ranks_per_node: 1,
        checkpoint: None,
        max_restarts: 0,
        user: None,
        resume_from: None,
        standby: None,
    };
    for number in 0..1_500 {
        liar.tell(Event::JobSubmitted {
            spec: spec(number),
            claim: None,
        });
        liar.tell(Event::JobCancelled {
            job: spec(number).id,
            by: None,
        });
    }
    liar.check();
    assert!(liar.state.jobs().len() <= 1_002, "{} jobs", liar.state.jobs().len());
    assert!(liar.state.removed().jobs >= 498, "{:?}", liar.state.removed());
    assert!(liar.state.has_job_name(&spec(0).id) && !liar.state.jobs().contains_key(&spec(0).id));
    liar.tell(Event::JobSubmitted {
        spec: spec(0),
        claim: None,
    });
    assert!(!liar.state.jobs().contains_key(&spec(0).id), "a name is used once");
    assert!(liar.state.jobs().contains_key(&job()), "the running one stays");
    // A month later the rest is removed, too.
    liar.now = liar.now.after(Duration::from_secs(31 * 86_400));
    liar.tell(Event::JobSubmitted {
        spec: spec(9_999),
        claim: None,
    });
    assert!(liar.state.jobs().len() <= 3, "{} jobs", liar.state.jobs().len());
}

#[test]
fn ranks_that_do_not_exist_leave_no_trace() {
    let mut liar = Liar::in_a_running_cluster();
    let before = liar.size();
    for rank in 8..3_000 {
        let entity = Entity::Rank {
            job: job(),
            generation: Generation(1),
            rank: Rank(rank),
            node: node(0),
        };
        let step = Step(41);
        let sealed = EvidenceBody::ShardSealed {
            step,
            stall_ms: 1.0,
            bytes: 1,
        };
        for body in [
            EvidenceBody::RankStarted {
                pid: 1,
                from_standby: false,
            },
            sealed,
        ] {
            liar.report(node(0), entity.clone(), body, Vec::new());
        }
    }
    assert!(liar.size() < before + 2_000, "{} bytes after {before}", liar.size());
}

/// The sequence number of a node is retained as long as the node may return, and an endless series of names is dropped.
#[test]
fn numbers_of_made_up_nodes_are_bounded_and_those_of_the_fleet_stay() {
    let mut liar = Liar::in_a_running_cluster();
    for number in 0..101_000_u64 {
        liar.report(
            NodeId::from(format!("a-{number}")),
            Entity::Unknown,
            EvidenceBody::RankFinished,
            Vec::new(),
        );
    }
    assert!(liar.state.all_acknowledged().len() <= 100_000);
    for number in 0..4 {
        assert!(liar.state.acknowledged(&node(number)) > Sequence(0), "node {number}");
    }
}

/// Histories of one job: months of restarts and commits.
#[test]
fn plans_and_checkpoints_of_one_job_are_bounded() {
    let mut liar = Liar::in_a_running_cluster();
    for step in 1..=1_200_u64 {
        liar.tell(Event::ManifestCommitted {
            job: job(),
            step: Step(step * 10),
            generation: Generation(1),
            differing: Vec::new(),
            per_rank: Vec::new(),
            same_size: Vec::new(),
        });
    }
    assert_eq!(liar.state.jobs()[&job()].checkpoints.committed.len(), 512);
    assert_eq!(
        liar.state.jobs()[&job()].checkpoints.newest().map(|newest| newest.step),
        Some(Step(12_000))
    );
    for round in 0..300 {
        let name = node(round % 4);
        liar.tell(Event::NodeFellSilent {
            node: name.clone(),
            last_heard: liar.now,
        });
        liar.now = liar.now.after(Duration::from_secs(20));
        liar.tell(Event::JobCancelled {
            job: JobId::from("nobody"),
            by: None,
        });
        let mut info = liar.state.fleet().get(&name).expect("it joined").info.clone();
        info.incarnation = round.to_string();
        liar.tell(Event::NodeJoined { info });
    }
    liar.check();
    assert!(liar.state.plans().len() <= 65, "{} plans", liar.state.plans().len());
}
