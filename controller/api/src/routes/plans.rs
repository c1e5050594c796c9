//! Routes of plans.

use rankguard_model::{JobId, PlanId};

use super::{StateRequest, json, number};
use crate::documents::{Page, PlanDocument, PlanSummary};
use crate::page::PagedList;
use crate::problem::{Problem, quoted};

pub(super) fn list(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let StateRequest { state, query, .. } = request;
    let after = PagedList::Plans.number_after(query)?;
    let job = query.text("job");
    if let Some(job) = job
        && !state.has_job_name(&JobId::from(job))
    {
        let problem = Problem::invalid("job", format!("there is no job {}", quoted(job)));
        return Err(problem.hint("GET /api/v1/jobs lists the jobs"));
    }
    let plans = state.plans().range(..PlanId(after.unwrap_or(u64::MAX))).rev();
    let plans = plans.map(|(_, plan)| plan);
    let plans = plans.filter(|plan| job.is_none_or(|job| plan.job.as_str() == job));
    let page = PagedList::Plans.page(query, plans, |plan| plan.id.to_string());
    json(&Page {
        items: page.items.into_iter().map(PlanSummary::of).collect(),
        next: page.next,
    })
}

pub(super) fn one(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let id = PlanId(number(request.name, "plan", "/api/v1/plans")?);
    let plan = request.state.plans().get(&id);
    let plan = plan.ok_or_else(|| Problem::absent("plan", request.name, "/api/v1/plans"))?;
    json(&PlanDocument::of(plan))
}
