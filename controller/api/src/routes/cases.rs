//! Routes of cases.

use std::collections::BTreeSet;

use rankguard_core::DecisionState;
use rankguard_faults::Catalogue;
use rankguard_model::{Case, CaseId, CaseQuery, ClassId, JobId, NodeId};

use super::{StateRequest, json, number};
use crate::documents::{CaseDocument, CaseSummary, Page, word};
use crate::page::PagedList;
use crate::problem::{Problem, quoted};
use crate::query::Query;

/// Hint for an unknown class.
pub(super) const CLASSES_HINT: &str = "`rankguard taxonomy crosswalk` lists the classes";

pub(super) fn list(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let StateRequest { state, query, .. } = request;
    let after = PagedList::Cases.number_after(query)?;
    check_names(state, query)?;
    let wanted = case_query(query);
    let is_open = query.flag("open");
    let in_state = query.text("state");
    let is_wanted = |case: &&Case| {
        wanted.matches(case)
            && is_open.is_none_or(|open| case.is_open() == open)
            && in_state.is_none_or(|state| word(&case.state) == state)
    };
    let cases = state.cases().range(..CaseId(after.unwrap_or(u64::MAX))).rev();
    let cases = cases.map(|(_, case)| case).filter(is_wanted);
    let page = PagedList::Cases.page(query, cases, |case| case.id.to_string());
    json(&Page {
        items: page.items.into_iter().map(CaseSummary::of).collect(),
        next: page.next,
    })
}

pub(super) fn one(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let id = CaseId(number(request.name, "case", "/api/v1/cases")?);
    let case = request.state.cases().get(&id);
    let case = case.ok_or_else(|| Problem::absent("case", request.name, "/api/v1/cases"))?;
    let plan = case.plan.and_then(|plan| request.state.plans().get(&plan));
    json(&CaseDocument::of(case, plan))
}

pub(super) fn case_query(query: &Query) -> CaseQuery {
    let text = |name| query.text(name).map(str::to_owned);
    CaseQuery {
        job: text("job"),
        node: text("node"),
        class: text("class"),
        layer: text("layer"),
        category: text("taxonomy"),
        since: query.time("since"),
        until: query.time("until"),
        without_drills: query.flag("drills") == Some(false),
        only_open: false,
    }
}

/// Rejects names that are no known job, node, class, layer or category: a mistyped name must not look like an empty list.
pub(super) fn check_names(state: &DecisionState, query: &Query) -> Result<(), Problem> {
    let catalogue = state.catalogue();
    let any = |holds: &dyn Fn(&Case) -> bool| state.cases().values().any(holds);
    if let Some(job) = query.text("job") {
        let is_known = state.has_job_name(&JobId::from(job));
        if !is_known && !any(&|case| case.job.as_ref().is_some_and(|name| name.as_str() == job)) {
            return Err(unknown("job", job).hint("GET /api/v1/jobs lists the jobs"));
        }
    }
    if let Some(node) = query.text("node") {
        let is_known = state.fleet().get(&NodeId::from(node)).is_some();
        if !is_known && !any(&|case| case.nodes().any(|name| name.as_str() == node)) {
            return Err(unknown("node", node).hint("GET /api/v1/nodes lists the nodes"));
        }
    }
    if let Some(class) = query.text("class") {
        let is_known = catalogue.class(&class.into()).is_some();
        if !is_known && !any(&|case| case.verdict.class.as_str() == class) {
            return Err(unknown_class(catalogue, class));
        }
    }
    if let Some(layer) = query.text("layer") {
        let layers: BTreeSet<&str> = catalogue.classes().map(|class| class.layer.as_str()).collect();
        if !layers.contains(layer) && !any(&|case| case.verdict.layer == layer) {
            return Err(unknown("layer", layer)
                .known(layers)
                .hint("use one of the known layers"));
        }
    }
    if let Some(wanted) = query.text("taxonomy") {
        let known = wanted
            .split_once(':')
            .and_then(|(taxonomy, category)| catalogue.category_name(taxonomy, category));
        if known.is_none() && !any(&|case| case.is_in_category(wanted)) {
            return Err(unknown("taxonomy", wanted)
                .hint("write TAXONOMY:CATEGORY; GET /api/v1/taxonomies lists the taxonomies and their categories"));
        }
    }
    Ok(())
}

/// Refuses a class that the catalogue does not have.
pub(crate) fn check_class(state: &DecisionState, class: &ClassId) -> Result<(), Problem> {
    let catalogue = state.catalogue();
    if catalogue.class(class).is_some() {
        return Ok(());
    }
    Err(unknown_class(catalogue, class.as_str()))
}

/// Returns the problem of an unknown class, with the nearest ones.
fn unknown_class(catalogue: &Catalogue, class: &str) -> Problem {
    let similar = catalogue.similar_classes(class);
    let all = || catalogue.classes().map(|class| class.id.as_str()).collect();
    let known: Vec<&str> = if similar.is_empty() { all() } else { similar };
    unknown("class", class).known(known).hint(CLASSES_HINT)
}

pub(super) fn unknown(field: &str, value: &str) -> Problem {
    Problem::invalid(field, format!("there is no {field} {}", quoted(value)))
}
