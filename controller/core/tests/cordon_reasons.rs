//! Reasons of a cordon of a node with several faults.

use std::time::Duration;

use rankguard_core::{CORDON_REASONS_MAX, Event, Policy, RULES};
use rankguard_model::{
    ClassId, Classification, Device, DeviceKind, Entity, EvidenceBody, EvidenceSource, FieldValues, NodeView, Role,
};

use crate::cluster::{Cluster, node};

const CONTAINED: &str = "gpu-ecc-contained";
const UNCORRECTABLE: &str = "gpu-ecc-uncorrectable";

/// The driver reports an error of a GPU of the last node, where nothing runs.
fn gpu_error(cluster: &mut Cluster, class: &str, address: &str) {
    let number = if class == CONTAINED { 94 } else { 48 };
    let device = Device {
        kind: DeviceKind::Gpu,
        address: address.to_owned(),
    };
    let mark = Classification {
        class: ClassId::from(class),
        role: Role::Root,
        confidence: 0.95,
        signature: format!("xid-{number}").into(),
        fields: FieldValues::new(),
    };
    let body = EvidenceBody::Line {
        text: format!("NVRM: Xid (PCI:{address}): {number}, pid='<unknown>', name=<unknown>"),
        context: Vec::new(),
        repeats: 1,
    };
    let entity = Entity::Device { node: node(3), device };
    cluster.report(node(3), EvidenceSource::KernelLog, entity, body, vec![mark]);
    cluster.wait(Duration::from_secs(10));
}

fn view(cluster: &Cluster) -> NodeView {
    let mut nodes = cluster.state.status(cluster.now).nodes.into_iter();
    nodes.find(|view| view.node == node(3)).expect("it is known")
}

/// Errors of an idle node are reported in this order.
#[track_caller]
fn check(errors: &[(&str, &str)], expect: &str) {
    let mut cluster = Cluster::new(Policy::default());
    for (class, address) in errors {
        gpu_error(&mut cluster, class, address);
    }
    assert_eq!(view(&cluster).reason.as_deref(), Some(expect), "{:#?}", cluster.cases());
}

#[test]
fn a_worse_fault_of_a_cordoned_node_is_its_first_reason() {
    check(
        &[(CONTAINED, "0000:1b:00"), (UNCORRECTABLE, "0000:1b:00")],
        "case 2: gpu-ecc-uncorrectable on node node-3, gpu 0000:1b:00; case 1: gpu-ecc-contained on node node-3, gpu 0000:1b:00",
    );
    check(
        &[(UNCORRECTABLE, "0000:1b:00"), (CONTAINED, "0000:3b:00")],
        "case 1: gpu-ecc-uncorrectable on node node-3, gpu 0000:1b:00; case 2: gpu-ecc-contained on node node-3, gpu 0000:3b:00",
    );
}

#[test]
fn a_fault_that_is_reported_again_is_one_reason() {
    check(
        &[(UNCORRECTABLE, "0000:1b:00"), (UNCORRECTABLE, "0000:1b:00")],
        "case 1: gpu-ecc-uncorrectable on node node-3, gpu 0000:1b:00",
    );
}

#[test]
fn the_reason_of_an_operator_remains_beside_a_fault() {
    let mut cluster = Cluster::new(Policy::default());
    cluster.tell(Event::NodeCordoned {
        node: node(3),
        reason: "fan, ticket 7".to_owned(),
    });
    gpu_error(&mut cluster, UNCORRECTABLE, "0000:1b:00");
    let reason = view(&cluster).reason.unwrap_or_default();
    assert!(
        reason.contains("fan, ticket 7") && reason.contains("gpu-ecc-uncorrectable"),
        "{reason}"
    );
}

/// An operator's reasons of a cordon, oldest first, under these rules.
fn cordoned(rules: u32, reasons: &[String]) -> (Cluster, Vec<String>) {
    let mut cluster = Cluster::new(Policy {
        rules,
        ..Policy::default()
    });
    for reason in reasons {
        cluster.tell(Event::NodeCordoned {
            node: node(3),
            reason: reason.clone(),
        });
    }
    let shown = view(&cluster).cordon.expect("a cordon").reasons;
    (cluster, shown)
}

#[test]
fn all_distinct_reasons_of_a_cordon_are_retained_up_to_a_bound() {
    let reasons: Vec<String> = (1..=CORDON_REASONS_MAX)
        .map(|number| format!("ticket {number}"))
        .collect();
    let newest_first: Vec<String> = reasons.iter().rev().cloned().collect();
    let (_, shown) = cordoned(RULES, &reasons);
    assert_eq!(shown, newest_first);
    let (_, shown) = cordoned(7, &reasons);
    assert_eq!(shown, newest_first[..8], "older journals have the same decisions");
    let (mut cluster, _) = cordoned(RULES, &reasons);
    gpu_error(&mut cluster, UNCORRECTABLE, "0000:1b:00");
    let shown = view(&cluster).cordon.expect("a cordon").reasons;
    assert_eq!(shown.len(), CORDON_REASONS_MAX);
    assert!(shown[0].contains(UNCORRECTABLE), "{shown:?}");
}

#[test]
fn the_parts_of_a_reason_are_not_repeated() {
    let reasons = ["fan; ticket 7", "ticket 7; fan", "fan"].map(str::to_owned);
    assert_eq!(cordoned(RULES, &reasons).1, ["fan", "ticket 7"]);
}
