//! Route of the failure mix.

use rankguard_core::DecisionState;
use rankguard_summary::{CaseGroup, CaseGrouping, CaseSummary, RankCounts, SummaryInput};

use super::cases::{case_query, check_names, unknown};
use super::{StateRequest, json};
use crate::documents::{FailureGroup, FailureMixDocument, UtcTime};
use crate::problem::Problem;

pub(super) fn mix(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let StateRequest { state, query, .. } = request;
    check_names(state, query)?;
    let by = query.text("by").unwrap_or("class");
    let grouping = grouping(state, by)?;
    let wanted = case_query(query);
    let summary = CaseSummary::of(
        state.cases().values().filter(|case| wanted.matches(case)),
        grouping,
        &SummaryInput {
            catalogue: state.catalogue(),
            domain_of: &|node| Some(state.fleet().get(node)?.info.failure_domain.clone()),
            ranks: &RankCounts::new(),
        },
    );
    json(&FailureMixDocument {
        by: by.to_owned(),
        taxonomy: grouping.title().map(str::to_owned),
        cases: summary.cases,
        without_group: summary.without_group,
        groups: summary.groups.into_iter().map(FailureGroup::from).collect(),
    })
}

fn grouping<'s>(state: &'s DecisionState, by: &str) -> Result<CaseGrouping<'s>, Problem> {
    let catalogue = state.catalogue();
    CaseGrouping::parse(by, catalogue).ok_or_else(|| {
        let known = CaseGrouping::NAMES.into_iter().chain(catalogue.taxonomy_ids());
        unknown("by", by)
            .known(known)
            .hint("use one of the known groupings; GET /api/v1/taxonomies describes the taxonomies")
    })
}

impl From<CaseGroup> for FailureGroup {
    fn from(group: CaseGroup) -> Self {
        Self {
            key: group.key,
            name: group.name,
            cases: group.cases,
            open: group.open,
            steps_lost: group.steps_lost,
            recoveries: group.recoveries,
            downtime_ms: group.downtime_ms,
            first_at: UtcTime(group.first_at),
            newest_at: UtcTime(group.newest_at),
            newest_case: group.newest_case,
        }
    }
}
