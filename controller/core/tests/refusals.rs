//! Refused evidence is counted against its sender, in one case that a flood does not extend.

use std::time::Duration;

use rankguard_core::Policy;
use rankguard_core::authority::{AuthorityRule, REFUSED_CLASS, REFUSED_SIGNATURE};
use rankguard_model::{
    CaseState, ClassId, Classification, Entity, EvidenceBody, EvidenceSource, FieldValues, NodeState, Role, Severity,
};

use crate::cluster::{Cluster, node};

fn refuse(cluster: &mut Cluster, number: u32, rule: AuthorityRule) {
    let mark = Classification {
        class: ClassId::from(REFUSED_CLASS),
        role: Role::Noise,
        confidence: 1.0,
        signature: format!("{REFUSED_SIGNATURE}{rule}").into(),
        fields: FieldValues::new(),
    };
    let body = EvidenceBody::Gap {
        what: "evidence 1 (line) was refused".to_owned(),
        lost: Some(1),
    };
    let entity = Entity::Node { node: node(number) };
    cluster.report(node(number), EvidenceSource::Agent, entity, body, vec![mark]);
}

fn line(cluster: &mut Cluster, number: u32) {
    let body = EvidenceBody::Line {
        text: "all is well".to_owned(),
        context: Vec::new(),
        repeats: 1,
    };
    cluster.report(node(number), EvidenceSource::Host, Entity::Unknown, body, Vec::new());
}

#[test]
fn rg_13_a_flood_of_refusals_is_one_case_against_its_sender() {
    let mut cluster = Cluster::running(Policy::default());
    let generation = cluster.generation();
    for _ in 0..1_000 {
        refuse(&mut cluster, 0, AuthorityRule::ForeignRank);
    }
    refuse(&mut cluster, 1, AuthorityRule::NoOrder);
    let cases = cluster.cases();
    assert_eq!(cases.len(), 2);
    assert_eq!(cases[0].findings.len(), 10, "at 1, 2, 4 ... 512");
    assert_eq!(cases[0].verdict.blamed, Entity::Node { node: node(0) });
    assert_eq!(cases[0].verdict.severity, Severity::Warning);
    assert!(!cases[0].clears.is_empty() && !cases[0].verdict.mitigation.advice.is_empty());
    let status = cluster.state.status(cluster.now);
    assert_eq!(status.nodes[0].refused_evidence, 1_000);
    assert!(status.nodes.iter().all(|node| node.state == NodeState::Healthy));
    assert_eq!(cluster.generation(), generation, "nothing is restarted for it");
    let announced = cluster
        .announced
        .iter()
        .filter(|text| text.contains("was refused"))
        .count();
    assert_eq!(announced, 11);
}

#[test]
fn a_case_ends_when_nothing_was_refused_for_a_day() {
    let mut cluster = Cluster::new(Policy::default());
    refuse(&mut cluster, 0, AuthorityRule::ForeignNode);
    cluster.wait(Duration::from_secs(86_399));
    line(&mut cluster, 0);
    assert_eq!(cluster.cases()[0].state, CaseState::Open);
    cluster.wait(Duration::from_secs(2));
    line(&mut cluster, 0);
    assert_eq!(cluster.cases()[0].state, CaseState::Closed);
    // The second refusal of the node opens another case.
    refuse(&mut cluster, 0, AuthorityRule::ForeignNode);
    assert_eq!(cluster.cases().len(), 2);
}
