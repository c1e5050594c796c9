//! Routes of nodes.

use std::collections::BTreeMap;

use rankguard_core::{DecisionState, Node};
use rankguard_model::{Entity, NodeId, Role};

use super::{StateRequest, json};
use crate::documents::{NodeDevice, NodeDocument, NodeHealth, NodeSummary, Page, word};
use crate::page::PagedList;
use crate::problem::Problem;

pub(super) fn list(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let StateRequest { state, query, .. } = request;
    let after = PagedList::Nodes.after(query)?.map(NodeId::from);
    let in_state = query.text("state");
    let is_schedulable = query.flag("schedulable");
    let views = state.node_views(after.as_ref());
    let views = views.filter_map(|view| {
        let node = state.fleet().get(&view.node)?;
        let is_wanted = in_state.is_none_or(|wanted| word(&view.state) == wanted)
            && is_schedulable.is_none_or(|wanted| node.is_usable() == wanted);
        is_wanted.then_some((view, node))
    });
    let page = PagedList::Nodes.page(query, views, |(view, _)| view.node.to_string());
    json(&Page {
        items: page
            .items
            .iter()
            .map(|(view, node)| NodeSummary::of(view, node, request.refusals.revoked_agent(&view.node)))
            .collect(),
        next: page.next,
    })
}

pub(super) fn one(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let name = NodeId::from(request.name);
    let absent = || Problem::absent("node", request.name, "/api/v1/nodes");
    let node = request.state.fleet().get(&name).ok_or_else(absent)?;
    let view = request.state.node_view(&name).ok_or_else(absent)?;
    let summary = NodeSummary::of(&view, node, request.refusals.revoked_agent(&name));
    json(&NodeDocument::of(summary, &view, node, devices(request.state, &name)))
}

pub(super) fn health(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let StateRequest { state, query, .. } = request;
    let after = PagedList::Nodes.after(query)?.map(NodeId::from);
    let is_schedulable = query.flag("schedulable");
    let is_wanted = |node: &Node| is_schedulable.is_none_or(|wanted| node.is_usable() == wanted);
    let nodes = state.fleet().after(after.as_ref()).filter(|(_, node)| is_wanted(node));
    let page = PagedList::Nodes.page(query, nodes, |(name, _)| name.to_string());
    json(&Page {
        items: page
            .items
            .into_iter()
            .map(|(name, node)| {
                let has_job = || state.node_view(name).is_some_and(|view| view.job.is_some());
                NodeHealth::of(name.as_str(), node, node.cordon.is_some() && has_job())
            })
            .collect(),
        next: page.next,
    })
}

/// Returns the devices of a node that cases name, sorted.
fn devices(state: &DecisionState, node: &NodeId) -> Vec<NodeDevice> {
    let mut devices: BTreeMap<(String, String), NodeDevice> = BTreeMap::new();
    for case in state.cases().values().rev() {
        // Noise is no sign of a failure of its device.
        let findings = case.findings.iter().filter(|finding| finding.role != Role::Noise);
        let entities = findings.map(|finding| &finding.entity);
        for entity in entities.chain([&case.verdict.blamed]) {
            let Entity::Device { node: of, device } = entity else {
                continue;
            };
            if of != node {
                continue;
            }
            let (kind, address) = (word(&device.kind), device.address.clone());
            let entry = devices.entry((kind.clone(), address.clone()));
            let entry = entry.or_insert_with(|| NodeDevice {
                kind,
                address,
                cases: Vec::new(),
                has_open_case: false,
            });
            if entry.cases.last() != Some(&case.id.0) {
                entry.cases.push(case.id.0);
            }
            entry.has_open_case |= case.is_open();
        }
    }
    devices.into_values().collect()
}
