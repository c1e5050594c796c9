//! Property by which cases are grouped.

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use rankguard_faults::{Catalogue, Taxonomy};
use rankguard_model::{Case, ClassId, NodeId, Timestamp};

/// Property by which cases are grouped.
#[derive(Debug, Clone, Copy)]
pub enum CaseGrouping<'c> {
    /// Failure class.
    Class,
    /// Layer of the class.
    Layer,
    /// Blamed part or entity, in words.
    Blamed,
    /// Node of the blamed entity.
    Node,
    /// Failure domain of that node.
    FailureDomain,
    /// Job that failed.
    Job,
    /// Week of the first evidence: the date of its Monday, UTC.
    Week,
    /// Category of a published taxonomy.
    Taxonomy(&'c Taxonomy),
}

impl<'c> CaseGrouping<'c> {
    /// Names of the groupings that are no taxonomy.
    pub const NAMES: [&'static str; 7] = ["class", "layer", "blamed", "node", "failure-domain", "job", "week"];

    /// Returns the grouping of a name or of the id of a taxonomy.
    pub fn parse(name: &str, catalogue: &'c Catalogue) -> Option<Self> {
        Some(match name {
            "class" => Self::Class,
            "layer" => Self::Layer,
            "blamed" => Self::Blamed,
            "node" => Self::Node,
            "failure-domain" => Self::FailureDomain,
            "job" => Self::Job,
            "week" => Self::Week,
            id => Self::Taxonomy(catalogue.taxonomy(id)?),
        })
    }

    /// Returns the short title of a taxonomy; `None` for another grouping.
    pub fn title(self) -> Option<&'c str> {
        match self {
            Self::Taxonomy(taxonomy) => Some(&taxonomy.short),
            _ => None,
        }
    }

    /// Returns the name of a group: for a category as the authors of the taxonomy print it, else the key.
    pub fn name_of(self, key: &str) -> String {
        let name = match self {
            Self::Taxonomy(taxonomy) => taxonomy.name_of(key),
            _ => None,
        };
        name.unwrap_or(key).to_owned()
    }

    /// Returns the group of a case; `None` if the grouping has no place for it.
    pub(crate) fn key(
        self,
        case: &Case,
        catalogue: &Catalogue,
        domain_of: &dyn Fn(&NodeId) -> Option<String>,
    ) -> Option<String> {
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
            Self::FailureDomain => domain_of(verdict.blamed.node()?).filter(|domain| !domain.is_empty()),
            Self::Job => case.job.as_ref().map(ToString::to_string),
            Self::Week => monday(case.first_at),
            Self::Taxonomy(taxonomy) => {
                let recorded = verdict.taxonomies.get(&taxonomy.id).filter(|_| corrected.is_none());
                let class: &ClassId = corrected.unwrap_or(&verdict.class);
                let places = recorded.or_else(|| catalogue.places_in(class, &taxonomy.id));
                places.and_then(|places| places.first().cloned())
            }
        }
    }
}

/// Returns the date of the Monday of a week, UTC.
pub(crate) fn monday(at: Timestamp) -> Option<String> {
    let date = jiff::Timestamp::from_nanosecond(at.0.into())
        .ok()?
        .to_zoned(TimeZone::UTC)
        .date();
    let days = date.weekday().since(Weekday::Monday);
    let monday = date.checked_sub(jiff::Span::new().days(days)).ok()?;
    Some(monday.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_begins_on_monday() {
        let of = |text: &str| {
            let at: jiff::Timestamp = text.parse().expect("a time");
            monday(Timestamp(i64::try_from(at.as_nanosecond()).expect("in range")))
        };
        assert_eq!(of("2026-11-30T00:00:00Z").as_deref(), Some("2026-11-30"));
        assert_eq!(of("2026-11-29T23:59:59Z").as_deref(), Some("2026-11-23"));
        assert_eq!(of("2027-01-01T12:00:00Z").as_deref(), Some("2026-12-28"));
    }

    #[test]
    fn every_name_is_a_grouping_and_so_is_every_taxonomy() {
        let catalogue = Catalogue::builtin();
        for name in CaseGrouping::NAMES.into_iter().chain(catalogue.taxonomy_ids()) {
            assert!(CaseGrouping::parse(name, catalogue).is_some(), "{name}");
        }
        assert!(CaseGrouping::parse("classes", catalogue).is_none());
    }
}
