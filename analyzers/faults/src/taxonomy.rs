//! Published failure taxonomies: categories with definitions, counts and citation.
//!
//! Papers, traces, exit-code tables and event catalogues have different figures beside name and definition. Common
//! figures are typed ([`TaxonomyCategory::count`], [`TaxonomyCategory::share_percent`]); figures of one taxonomy only are in
//! [`TaxonomyCategory::details`] and [`Taxonomy::facts`] under their own key, so that nothing read from a source is lost.
//!
//! A missing key means that the figure was not read in the source.

mod check;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use check::{ListPositions, check};

/// Category of classes that a taxonomy does not cover. It is defined here and not by the authors, and shows that the
/// study examined other failures, which is more useful to a reader than a forced category.
pub const OUTSIDE_SCOPE: &str = "outside-scope";

/// Schema id of a taxonomy file.
pub(crate) const SCHEMA: &str = "failure-taxonomy/1";

/// Published taxonomy of failures.
#[derive(Debug, Clone, Serialize)]
pub struct Taxonomy {
    /// Id in this catalogue (`gao-icse-seip2023`).
    pub id: String,
    /// Title of the publication.
    pub title: String,
    /// Short title by which it is known.
    pub short: String,
    /// Kind of publication: `paper`, `trace` or `software`.
    pub kind: String,
    /// Criterion that divides its categories (symptom, root cause, failure message, exit code, event).
    pub axis: String,
    /// Citation of the publication.
    pub citation: Citation,
    /// Parts of the publication that were read.
    pub provenance: TaxonomyProvenance,
    /// Studied population: number of jobs, months, failures.
    pub population: BTreeMap<String, PublishedFact>,
    /// Rules and formulas that the publication states beside its categories.
    pub facts: BTreeMap<String, BTreeMap<String, PublishedFact>>,
    /// Figures that must add up.
    pub sums: Vec<FigureSum>,
    /// Upper level: groups, domains or axes.
    pub dimensions: Vec<TaxonomyDimension>,
    pub categories: Vec<TaxonomyCategory>,
}

/// Taxonomy file without its lists, which are parsed one entry at a time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaxonomyHeader {
    pub(crate) id: String,
    title: String,
    short: String,
    #[serde(default = "paper")]
    kind: String,
    axis: String,
    citation: Citation,
    #[serde(default)]
    provenance: TaxonomyProvenance,
    #[serde(default)]
    population: BTreeMap<String, PublishedFact>,
    #[serde(default)]
    facts: BTreeMap<String, BTreeMap<String, PublishedFact>>,
}

fn paper() -> String {
    "paper".to_owned()
}

impl TaxonomyHeader {
    pub(crate) fn with(
        self,
        sums: Vec<FigureSum>,
        dimensions: Vec<TaxonomyDimension>,
        categories: Vec<TaxonomyCategory>,
    ) -> Taxonomy {
        Taxonomy {
            id: self.id,
            title: self.title,
            short: self.short,
            kind: self.kind,
            axis: self.axis,
            citation: self.citation,
            provenance: self.provenance,
            population: self.population,
            facts: self.facts,
            sums,
            dimensions,
            categories,
        }
    }
}

/// Citation of a publication.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Citation {
    pub authors: Vec<String>,
    /// Conference, journal or site.
    pub venue: String,
    pub year: u32,
    pub url: String,
    /// Digital object identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doi: Option<String>,
    /// Number in the arXiv.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arxiv: Option<String>,
}

/// Parts of a publication that were read.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TaxonomyProvenance {
    /// Degree of completeness.
    pub level: String,
    /// Sources that were read.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Remark on the figures.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Published figure or text.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum PublishedFact {
    Flag(bool),
    Count(i64),
    /// Share, rate or duration; the unit is in its key.
    Number(f64),
    /// Word or range ("more than 150 million").
    Text(String),
    /// List of facts.
    List(Vec<PublishedFact>),
}

impl PublishedFact {
    /// Returns the value of a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            // Published counts are far below 2^52.
            #[allow(clippy::cast_precision_loss)]
            Self::Count(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}

impl std::fmt::Display for PublishedFact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::List(list) => {
                for (at, item) in list.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{item}")?;
                }
                Ok(())
            }
        }
    }
}

/// Assertion that figures add up to a published total.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FigureSum {
    /// Figure of the categories: `count`, `share_percent`, or a key of their details.
    pub of: String,
    /// Dimension of the summed categories; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimension: Option<String>,
    /// Published total of the figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Key of the population that holds the total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub population: Option<String>,
    /// Allowed rounding difference between sum and total, in the unit of the figure.
    #[serde(default)]
    pub within: f64,
    /// Reason for a difference, or meaning of the total.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Group of categories, or failure domain.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TaxonomyDimension {
    pub id: String,
    pub name: String,
    /// Definition in this project's words.
    pub definition: String,
    /// Criterion that divides it, if the taxonomy has several axes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub axis: String,
    /// Published count of failures in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Published share, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// Published share of GPU time, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_time_percent: Option<f64>,
    /// Groups that the authors form within it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Position in the authors' order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<i64>,
    /// Reason why no failure class maps to its categories (for example, they name mitigations).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
}

/// Category of a taxonomy.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TaxonomyCategory {
    /// Category id, unique within the taxonomy.
    pub id: String,
    /// Name as the authors print it.
    pub name: String,
    /// Id of its dimension.
    pub dimension: String,
    /// Criterion that divides it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub axis: String,
    /// Definition in this project's words.
    pub definition: String,
    /// Reading of the name: verbatim, translated or recalled.
    #[serde(default)]
    pub name_status: NameStatus,
    /// Group within its dimension.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Published count of failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Published share, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// Base of the share, if it is not all failures.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub share_of: String,
    /// XIDs that it covers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xid: Vec<u32>,
    /// Messages that the authors give.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub example_messages: Vec<String>,
    /// Causes that the authors give.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub root_causes: Vec<String>,
    /// Diagnosis steps of the authors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnosis: Vec<String>,
    /// Mitigations of the authors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mitigations: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Canonical classes of this category, for user taxonomies; those of the built-in ones are in the crosswalk.
    #[serde(default, skip_serializing)]
    pub(crate) classes: Vec<String>,
    /// Reason why no failure class maps to this category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// Figures and texts that only this taxonomy has, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, PublishedFact>,
}

/// Source of a category's name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NameStatus {
    #[default]
    Verbatim,
    /// In another language, or normalised.
    Translated,
    /// From memory; not read.
    Recalled,
}

impl Taxonomy {
    /// Returns the name of a category, or of a dimension if a class is mapped to a domain only.
    pub fn name_of(&self, id: &str) -> Option<&str> {
        if id == OUTSIDE_SCOPE {
            return Some("outside the scope of this study");
        }
        let category = self.category(id).map(|c| c.name.as_str());
        category.or_else(|| self.dimensions.iter().find(|d| d.id == id).map(|d| d.name.as_str()))
    }

    /// Returns the category with this id.
    pub fn category(&self, id: &str) -> Option<&TaxonomyCategory> {
        self.categories.iter().find(|c| c.id == id)
    }

    /// Returns the published figures of a category as text (`count 148, share 30.1 %`); empty if none was read.
    pub fn figures(&self, id: &str) -> String {
        let Some(category) = self.category(id) else {
            return String::new();
        };
        let share = category.share_percent.or_else(|| {
            category
                .details
                .get("share_percent_printed")
                .and_then(PublishedFact::number)
        });
        let mut words = Vec::new();
        let count = category.count.or_else(|| match category.details.get("trials") {
            Some(PublishedFact::Count(count)) => Some(*count),
            _ => None,
        });
        if let Some(count) = count {
            words.push(format!("count {count}"));
        }
        if let Some(share) = share {
            words.push(format!("share {share} %"));
        } else if let (Some(count), Some(total)) = (count, self.total()) {
            #[allow(clippy::cast_precision_loss)]
            let share = count as f64 * 100.0 / total;
            words.push(format!("{share:.1} % of {total}"));
        }
        if !words.is_empty() && !category.share_of.is_empty() {
            words.push(format!("of {}", category.share_of));
        }
        words.join(", ")
    }

    /// Returns the total of the counts of all categories, if the publication states it.
    fn total(&self) -> Option<f64> {
        let whole = self
            .sums
            .iter()
            .find(|sum| matches!(sum.of.as_str(), "count" | "trials") && sum.dimension.is_none())?;
        self.total_of(whole)
    }

    fn total_of(&self, sum: &FigureSum) -> Option<f64> {
        sum.total.or_else(|| {
            self.population
                .get(sum.population.as_deref()?)
                .and_then(PublishedFact::number)
        })
    }

    /// Returns the reason why no class maps to a category, stated for it or for its dimension.
    pub fn unreachable<'t>(&'t self, category: &'t TaxonomyCategory) -> Option<&'t str> {
        let dimension = self.dimensions.iter().find(|d| d.id == category.dimension);
        let why = category.unreachable.as_deref();
        why.or_else(|| dimension.and_then(|d| d.unreachable.as_deref()))
    }
}
