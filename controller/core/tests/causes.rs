//! Start of a failure, and verdicts about nodes whose agent returns on the same boot. Journals of older rules replay
//! as they were decided.

mod case_texts;
mod confined_errors;
mod cordon_limits;
mod separate_cases;

use std::time::Duration;

use rankguard_core::{Event, Policy, RULES};
use rankguard_model::{
    Classification, Device, DeviceKind, Entity, EvidenceBody, EvidenceSource, FieldValues, NodeInfo, ProcessExit, Rank,
    RankRef, Role, RunningRank, Timestamp,
};

use crate::cluster::{Cluster, job, node};

const BOOT: &str = "5e4a3f52-4b8e-4f4e-8a2e-0d3b6f2f8a11";

fn policy(rules: u32) -> Policy {
    Policy {
        rules,
        ..Policy::default()
    }
}

fn mark(class: &str, role: Role) -> Classification {
    Classification {
        class: class.into(),
        role,
        confidence: 0.9,
        signature: class.into(),
        fields: FieldValues::new(),
    }
}

fn text(text: &str) -> EvidenceBody {
    EvidenceBody::Line {
        text: text.to_owned(),
        context: Vec::new(),
        repeats: 1,
    }
}

impl Cluster {
    /// Joins a node, with its ranks or without.
    fn joins_on_boot(&mut self, number: u32, incarnation: &str, boot_id: &str, has_ranks: bool) {
        let generation = self.generation();
        let ranks = (number * 2..number * 2 + 2).filter(|_| has_ranks);
        let running = ranks.map(|rank| RunningRank {
            rank: RankRef {
                job: job(),
                generation,
                rank: Rank(rank),
            },
            pid: rank,
            step: None,
        });
        let known = self.state.fleet().get(&node(number)).expect("it joined").info.clone();
        let info = NodeInfo {
            incarnation: incarnation.to_owned(),
            boot_id: boot_id.to_owned(),
            running: running.collect(),
            ..known
        };
        self.tell(Event::NodeJoined { info });
    }

    fn is_silent_for_5_s(&mut self, number: u32) {
        let last_heard = self.now;
        self.wait(Duration::from_secs(5));
        self.tell(Event::NodeFellSilent {
            node: node(number),
            last_heard,
        });
    }

    fn class_of(&self, case: usize) -> String {
        self.cases()[case].verdict.class.to_string()
    }
}

/// Writes noise, ends a rank 10 s later, and returns the start of the case and the end of the rank.
fn start_after_noise(rules: u32) -> (Timestamp, Timestamp) {
    let mut cluster = Cluster::running(policy(rules));
    cluster.rank_says(3, text("the rank writes output"), vec![mark("none", Role::Noise)]);
    cluster.wait(Duration::from_secs(10));
    for rank in 0..8 {
        cluster.progress(rank, 41);
    }
    let failed_at = cluster.now;
    let exit = EvidenceBody::RankExited {
        pid: 1,
        exit: ProcessExit::Signal(9),
        ended_by_agent: false,
    };
    cluster.rank_says(1, exit, Vec::new());
    cluster.wait(Duration::from_secs(8));
    let case = cluster.cases()[0];
    let plan_ms = case.delays.plan_ms.expect("a plan was made");
    assert_eq!(case.actions[0].at.millis_since(case.first_at), plan_ms);
    (case.first_at, failed_at)
}

#[test]
fn a_case_and_its_delays_begin_with_the_failure() {
    let (first_at, failed_at) = start_after_noise(RULES);
    assert_eq!(first_at, failed_at);
}

#[test]
fn journals_of_older_rules_begin_cases_with_the_earliest_evidence() {
    let (first_at, failed_at) = start_after_noise(4);
    assert!(first_at < failed_at);
}

/// Ends the agent of node 1 by a signal, starts it again on a boot, and returns the class of the case.
fn class_after_restart(rules: u32, boot: &str) -> String {
    let mut cluster = Cluster::running(policy(rules));
    cluster.joins_on_boot(1, "1", BOOT, true);
    cluster.wait(Duration::from_millis(500));
    let last_heard = Some(cluster.now);
    cluster.tell(Event::SessionEnded {
        node: node(1),
        last_heard,
    });
    cluster.wait(Duration::from_secs(1));
    cluster.joins_on_boot(1, "2", boot, false);
    cluster.wait(Duration::from_secs(8));
    cluster.class_of(0)
}

#[test]
fn an_agent_that_was_started_again_on_the_same_boot_is_no_crashed_node() {
    assert_eq!(class_after_restart(RULES, BOOT), "node-agent-silent");
    assert_eq!(class_after_restart(RULES, "another"), "node-crash");
    // Without a known boot, only the silence is known.
    assert_eq!(class_after_restart(RULES, ""), "node-agent-silent");
    assert_eq!(class_after_restart(7, ""), "node-crash");
    assert_eq!(class_after_restart(4, BOOT), "node-crash");
}

/// While only the silence of a node is known, its class is that of a silent agent: the agent may be stopped and the node
/// may run on. A new boot shows that the node had stopped.
#[test]
fn the_boot_of_a_silent_node_that_returns_revises_its_case() {
    for (rules, boot, silent, returned, layer) in [
        (RULES, BOOT, "node-agent-silent", "node-agent-silent", "platform"),
        (RULES, "another", "node-agent-silent", "node-crash", "hardware"),
        (7, BOOT, "node-crash", "node-agent-silent", "platform"),
        (7, "another", "node-crash", "node-crash", "hardware"),
    ] {
        let mut cluster = Cluster::running(policy(rules));
        cluster.joins_on_boot(1, "1", BOOT, true);
        cluster.is_silent_for_5_s(1);
        cluster.wait(Duration::from_secs(8));
        assert_eq!(cluster.class_of(0), silent, "{rules} {boot}");
        cluster.joins_on_boot(1, "1", boot, true);
        assert_eq!(cluster.class_of(0), returned, "{rules} {boot}");
        assert_eq!(cluster.cases()[0].verdict.layer, layer, "{rules} {boot}");
        let entry = cluster.state.fleet().get(&node(1));
        assert_eq!(entry.and_then(|node| node.cordon.clone()), None);
    }
}

#[test]
fn an_agent_whose_connection_was_closed_is_no_crashed_node() {
    for (rules, has_closed, expected) in [
        (RULES, true, ("node-agent-silent", "platform")),
        (RULES, false, ("node-agent-silent", "hardware")),
        (7, false, ("node-crash", "hardware")),
        (5, true, ("node-crash", "hardware")),
    ] {
        let mut cluster = Cluster::running(policy(rules));
        if has_closed {
            let last_heard = Some(cluster.now);
            cluster.tell(Event::SessionEnded {
                node: node(1),
                last_heard,
            });
        }
        cluster.is_silent_for_5_s(1);
        cluster.wait(Duration::from_secs(8));
        let verdict = &cluster.cases()[0].verdict;
        assert_eq!((verdict.class.as_str(), verdict.layer.as_str()), expected, "{rules}");
    }
}

#[test]
fn an_event_on_an_idle_node_is_no_cause_of_the_next_job() {
    let mut cluster = Cluster::new(policy(RULES));
    let entity = Entity::Node { node: node(2) };
    let xid = mark("gpu-engine-exception", Role::Root);
    cluster.report(
        node(2),
        EvidenceSource::KernelLog,
        entity,
        text("NVRM: Xid 13"),
        vec![xid],
    );
    cluster.wait(Duration::from_secs(4));
    cluster.submit(4);
    cluster.wait(Duration::from_secs(1));
    cluster.obey();
    cluster.obey();
    cluster.rank_says(0, text("KeyError: 'loss'"), vec![mark("key-error", Role::Root)]);
    let exit = EvidenceBody::RankExited {
        pid: 0,
        exit: ProcessExit::Code(1),
        ended_by_agent: false,
    };
    cluster.rank_says(0, exit, Vec::new());
    cluster.wait(Duration::from_secs(8));
    let case = cluster.cases()[0];
    assert_eq!(case.verdict.class.as_str(), "key-error");
    assert_eq!(case.job, Some(job()));
    assert!(
        case.findings
            .iter()
            .all(|finding| finding.class.as_str() == "key-error" || finding.entity.rank().is_some())
    );
}

impl Cluster {
    /// Reports a lost GPU of a node and ends its first rank.
    fn loses_gpu(&mut self, number: u32) {
        let gpu = Entity::Device {
            node: node(number),
            device: Device {
                kind: DeviceKind::Gpu,
                address: "0000:9b:00".to_owned(),
            },
        };
        let marks = vec![mark("gpu-fallen-off-bus", Role::Root)];
        self.report(
            node(number),
            EvidenceSource::KernelLog,
            gpu,
            text("NVRM: Xid 79"),
            marks,
        );
    }

    fn first_ranks_step(&mut self, step: u64) {
        for rank in 0..6 {
            self.progress(rank, step);
        }
    }
}
