//! Published taxonomies: what their authors call a failure, with definitions, counts and where they were published.
//!
//! Papers, traces, exit-code tables and event catalogues have different figures beside a name and a meaning. What all share
//! is typed ([`Category::count`], [`Category::share_percent`]); what only one has stands in [`Category::details`] and
//! [`Taxonomy::facts`] under its own key, so that nothing read from a source is lost.
//!
//! Absent: figures that nobody read in a source. A key that is missing was not read.

mod check;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use check::{Lists, check};

/// Category that a class gets in a taxonomy that has no place for it. It is ours, not the authors': it says that the study
/// looked at other failures, which is more useful to a reader than a forced name.
pub const OUTSIDE_SCOPE: &str = "outside-scope";

/// Form of a taxonomy's file.
pub(crate) const SCHEMA: &str = "failure-taxonomy/1";

/// One published taxonomy.
#[derive(Debug, Clone, Serialize)]
pub struct Taxonomy {
    /// Our id of it (`gao-icse-seip2023`).
    pub id: String,
    /// Title of the publication.
    pub title: String,
    /// A few words by which people know it.
    pub short: String,
    /// What it is: `paper`, `trace` or `software`.
    pub kind: String,
    /// What its categories divide failures by (symptom, root cause, failure message, exit code, event).
    pub axis: String,
    /// Where and when it was published.
    pub citation: Citation,
    /// How much of the publication was read, and where.
    pub provenance: Provenance,
    /// What was studied: how many jobs, months, failures.
    pub population: BTreeMap<String, Fact>,
    /// Rules and formulas that the publication states beside its categories.
    pub facts: BTreeMap<String, BTreeMap<String, Fact>>,
    /// Figures that must add up.
    pub sums: Vec<Sum>,
    /// Its upper level: groups, domains or axes.
    pub dimensions: Vec<Dimension>,
    /// Its categories.
    pub categories: Vec<Category>,
}

/// A taxonomy's file without its lists, which are read one entry at a time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    pub(crate) id: String,
    title: String,
    short: String,
    #[serde(default = "paper")]
    kind: String,
    axis: String,
    citation: Citation,
    #[serde(default)]
    provenance: Provenance,
    #[serde(default)]
    population: BTreeMap<String, Fact>,
    #[serde(default)]
    facts: BTreeMap<String, BTreeMap<String, Fact>>,
}

fn paper() -> String {
    "paper".to_owned()
}

impl Head {
    pub(crate) fn with(self, sums: Vec<Sum>, dimensions: Vec<Dimension>, categories: Vec<Category>) -> Taxonomy {
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

/// Where a taxonomy was published.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Citation {
    /// Its authors.
    pub authors: Vec<String>,
    /// Conference, journal or site.
    pub venue: String,
    /// Year.
    pub year: u32,
    /// Address.
    pub url: String,
    /// Digital object identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doi: Option<String>,
    /// Number in the arXiv.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arxiv: Option<String>,
}

/// How much of a publication was read, and where.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// How complete it is.
    pub level: String,
    /// What was read.
    #[serde(default)]
    pub sources: Vec<String>,
    /// What a reader must know of the figures.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A published figure or word.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Fact {
    /// A yes or no.
    Flag(bool),
    /// A count.
    Count(i64),
    /// A share, rate or duration; the unit is in its key.
    Number(f64),
    /// A word or a range ("more than 150 million").
    Text(String),
    /// Several.
    List(Vec<Fact>),
}

impl Fact {
    /// Its value, where it is a number.
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

impl std::fmt::Display for Fact {
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

/// A claim that figures add up to a published total.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// The figure of the categories: `count`, `share_percent`, or a key of their details.
    pub of: String,
    /// Only categories of this dimension; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimension: Option<String>,
    /// The published total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Key of the population that holds the total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub population: Option<String>,
    /// How far rounding may take the sum from the total, in the unit of the figure.
    #[serde(default)]
    pub within: f64,
    /// Why it differs, or what the total is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A group of categories, or a domain that a failure can lie in.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Dimension {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// In our words.
    pub definition: String,
    /// What it divides by, where the taxonomy has several axes.
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
    /// Place in the authors' order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<i64>,
    /// Why no failure class leads to its categories (they name mitigations, say).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
}

/// One category of a taxonomy.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Category {
    /// Its id within the taxonomy.
    pub id: String,
    /// Its name as the authors print it.
    pub name: String,
    /// The dimension it belongs to.
    pub dimension: String,
    /// What it divides by.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub axis: String,
    /// In our words.
    pub definition: String,
    /// Whether the name was read as printed.
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
    /// What the share is a share of, where it is not all failures.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub share_of: String,
    /// Driver event numbers that it covers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xid: Vec<u32>,
    /// Messages that the authors give.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub example_messages: Vec<String>,
    /// Causes that the authors give.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub root_causes: Vec<String>,
    /// How the authors find the cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnosis: Vec<String>,
    /// What the authors do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mitigations: Vec<String>,
    /// A remark.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Canonical classes that belong here; for taxonomies that a user adds. Those of the built-in ones stand in the crosswalk.
    #[serde(default, skip_serializing)]
    pub(crate) classes: Vec<String>,
    /// Why no failure class leads here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// Figures and words that only this taxonomy has, by their key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, Fact>,
}

/// How a category's name was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NameStatus {
    /// As printed.
    #[default]
    Verbatim,
    /// In another language, or normalised.
    Translated,
    /// From memory; not read.
    Recalled,
}

impl Taxonomy {
    /// Name of a category, or of a dimension where a class is placed in a domain only.
    pub fn name_of(&self, id: &str) -> Option<&str> {
        if id == OUTSIDE_SCOPE {
            return Some("outside the scope of this study");
        }
        let category = self.category(id).map(|c| c.name.as_str());
        category.or_else(|| self.dimensions.iter().find(|d| d.id == id).map(|d| d.name.as_str()))
    }

    /// The category with this id.
    pub fn category(&self, id: &str) -> Option<&Category> {
        self.categories.iter().find(|c| c.id == id)
    }

    /// The published figures of a category in words (`count 148, share 30.1 %`); empty where none was read.
    pub fn figures(&self, id: &str) -> String {
        let Some(category) = self.category(id) else {
            return String::new();
        };
        let share = category
            .share_percent
            .or_else(|| category.details.get("share_percent_printed").and_then(Fact::number));
        let mut words = Vec::new();
        let count = category.count.or_else(|| match category.details.get("trials") {
            Some(Fact::Count(count)) => Some(*count),
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

    /// The total that the counts of all categories add up to, where the publication states it.
    fn total(&self) -> Option<f64> {
        let whole = self
            .sums
            .iter()
            .find(|sum| matches!(sum.of.as_str(), "count" | "trials") && sum.dimension.is_none())?;
        self.total_of(whole)
    }

    fn total_of(&self, sum: &Sum) -> Option<f64> {
        sum.total
            .or_else(|| self.population.get(sum.population.as_deref()?).and_then(Fact::number))
    }

    /// Why no class leads to a category, where that is said of it or of its dimension.
    pub fn unreachable<'t>(&'t self, category: &'t Category) -> Option<&'t str> {
        let dimension = self.dimensions.iter().find(|d| d.id == category.dimension);
        let why = category.unreachable.as_deref();
        why.or_else(|| dimension.and_then(|d| d.unreachable.as_deref()))
    }
}
