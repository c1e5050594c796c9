//! Route of the failure mix.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rankguard_core::DecisionState;
use rankguard_faults::Taxonomy;
use rankguard_model::{Case, ClassId};

use super::cases::{case_query, check_names, unknown};
use super::{StateRequest, json};
use crate::documents::{FailureGroup, FailureMixDocument, UtcTime};
use crate::problem::Problem;

/// Groupings that are no taxonomy.
const GROUPINGS: [&str; 5] = ["class", "layer", "blamed", "node", "failure-domain"];

/// Property by which cases are counted.
#[derive(Debug, Clone, Copy)]
enum Grouping<'s> {
    Class,
    Layer,
    Blamed,
    Node,
    FailureDomain,
    Taxonomy(&'s Taxonomy),
}

pub(super) fn mix(request: &StateRequest<'_>) -> Result<Vec<u8>, Problem> {
    let StateRequest { state, query, .. } = request;
    check_names(state, query)?;
    let by = query.text("by").unwrap_or("class");
    let grouping = Grouping::parse(state, by)?;
    let wanted = case_query(query);
    let mut groups: BTreeMap<String, FailureGroup> = BTreeMap::new();
    let mut cases = 0;
    let mut without_group = 0;
    for case in state.cases().values().filter(|case| wanted.matches(case)) {
        cases += 1;
        match grouping.key(state, case) {
            Some(key) => {
                let group = groups.entry(key).or_insert_with_key(|key| grouping.group(key, case));
                group.add(case);
            }
            None => without_group += 1,
        }
    }
    let mut groups: Vec<FailureGroup> = groups.into_values().collect();
    // Stable: groups of the same size are sorted by key.
    groups.sort_by_key(|group| Reverse(group.cases));
    json(&FailureMixDocument {
        by: by.to_owned(),
        taxonomy: grouping.title().map(str::to_owned),
        cases,
        without_group,
        groups,
    })
}

impl<'s> Grouping<'s> {
    fn parse(state: &'s DecisionState, by: &str) -> Result<Self, Problem> {
        let catalogue = state.catalogue();
        Ok(match by {
            "class" => Self::Class,
            "layer" => Self::Layer,
            "blamed" => Self::Blamed,
            "node" => Self::Node,
            "failure-domain" => Self::FailureDomain,
            other => Self::Taxonomy(catalogue.taxonomy(other).ok_or_else(|| {
                let known = GROUPINGS.into_iter().chain(catalogue.taxonomy_ids());
                unknown("by", other)
                    .known(known)
                    .hint("use one of the known groupings; GET /api/v1/taxonomies describes the taxonomies")
            })?),
        })
    }

    /// Returns the group of a case.
    fn key(self, state: &DecisionState, case: &Case) -> Option<String> {
        let catalogue = state.catalogue();
        let verdict = &case.verdict;
        let corrected = case.corrected_class();
        match self {
            Self::Class => Some(corrected.unwrap_or(&verdict.class).to_string()),
            Self::Layer => {
                let corrected = corrected.and_then(|class| catalogue.class(class));
                Some(corrected.map_or_else(|| verdict.layer.clone(), |class| class.layer.clone()))
            }
            Self::Blamed => Some(case.blamed_text()),
            Self::Node => verdict.blamed.node().map(ToString::to_string),
            Self::FailureDomain => {
                let node = state.fleet().get(verdict.blamed.node()?)?;
                let domain = &node.info.failure_domain;
                (!domain.is_empty()).then(|| domain.clone())
            }
            Self::Taxonomy(taxonomy) => {
                let recorded = verdict.taxonomies.get(&taxonomy.id).filter(|_| corrected.is_none());
                let class: &ClassId = corrected.unwrap_or(&verdict.class);
                let places = recorded.or_else(|| catalogue.places_in(class, &taxonomy.id));
                places.and_then(|places| places.first().cloned())
            }
        }
    }

    /// Returns an empty group.
    fn group(self, key: &str, case: &Case) -> FailureGroup {
        let name = match self {
            Self::Taxonomy(taxonomy) => taxonomy.name_of(key).unwrap_or(key),
            _ => key,
        };
        FailureGroup {
            key: key.to_owned(),
            name: name.to_owned(),
            cases: 0,
            open: 0,
            steps_lost: 0,
            downtime_ms: 0,
            newest_at: UtcTime(case.first_at),
            newest_case: case.id.0,
        }
    }

    fn title(self) -> Option<&'s str> {
        match self {
            Self::Taxonomy(taxonomy) => Some(&taxonomy.short),
            _ => None,
        }
    }
}

impl FailureGroup {
    fn add(&mut self, case: &Case) {
        self.cases += 1;
        self.open += u64::from(case.is_open());
        self.steps_lost = self.steps_lost.saturating_add(case.steps_lost.unwrap_or(0));
        let downtime = case.delays.first_step_ms.unwrap_or(0);
        self.downtime_ms = self.downtime_ms.saturating_add(downtime);
        if case.first_at >= self.newest_at.0 {
            self.newest_at = UtcTime(case.first_at);
            self.newest_case = case.id.0;
        }
    }
}
