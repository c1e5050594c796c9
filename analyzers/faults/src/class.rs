//! Canonical failure classes: one tree from the literature's size down to what can be told apart in a log.

use std::collections::BTreeMap;

use rankguard_model::{ClassId, Mitigation, Role, Severity, Shared};
use serde::{Deserialize, Serialize};

/// One canonical failure class, complete: what it does not say itself it has from its parent.
#[derive(Debug, Clone)]
pub struct Class {
    /// Its id, kebab-case.
    pub id: ClassId,
    /// Ids by which other lists know the same class; [`crate::Catalogue::class`] resolves them.
    pub aliases: Vec<ClassId>,
    /// The wider class it is a case of; none for a root of the tree.
    pub parent: Option<ClassId>,
    /// The nearest class that labelled logs use, where they have none for it.
    pub told_as: Option<ClassId>,
    /// Whether it says how something else surfaced; a narrower meaning of the same line goes before it.
    pub surface: bool,
    /// Where it sits (hardware, network, storage, platform, scheduler, framework, user-code, user-data, model-numerics,
    /// none).
    pub layer: String,
    /// Whether it is a cause, a symptom or an end state.
    pub kind: Kind,
    /// What it means.
    pub definition: String,
    /// What usually causes it, most usual first.
    pub causes: Vec<String>,
    /// The part it plays in a failure as a rule.
    pub role: Role,
    /// How bad it is as a rule.
    pub severity: Severity,
    /// What to do.
    pub mitigation: Shared<Mitigation>,
    /// Ids of what to do after the first action, in order.
    pub then: Vec<String>,
    /// Whether a source recommends the first action for this very failure.
    pub basis: Basis,
    /// What other sources do first.
    pub alternatives: Vec<Alternative>,
    /// A remark on the action.
    pub notes: String,
    /// What evidence clears it (RG-10).
    pub clears: String,
    /// Ids of the sources where meaning and wording can be read ([`crate::Catalogue::source`]).
    pub sources: Vec<String>,
    /// Taxonomy id to category ids, most specific first; every primary taxonomy has an entry.
    pub taxonomies: Shared<BTreeMap<String, Vec<String>>>,
}

/// What a class says: a cause, a symptom or an end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It can be the cause of a failure.
    #[default]
    RootCause,
    /// It needs diagnosis before blame.
    Symptom,
    /// It is an end state that a scheduler or a user decided.
    Outcome,
}

/// Where the first action comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// A source recommends it for this failure.
    Published,
    /// It is ours, from a related recommendation.
    #[default]
    Inferred,
}

/// What another source does first for the same failure.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// The source.
    pub source: String,
    /// The action.
    pub action: String,
}

/// A class as its file says it, before it is joined with its parent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) id: ClassId,
    #[serde(default)]
    pub(crate) aliases: Vec<ClassId>,
    pub(crate) parent: Option<ClassId>,
    pub(crate) told_as: Option<ClassId>,
    #[serde(default)]
    pub(crate) surface: bool,
    pub(crate) layer: String,
    pub(crate) kind: Option<Kind>,
    pub(crate) definition: String,
    pub(crate) advice: String,
    #[serde(default)]
    pub(crate) causes: Vec<String>,
    pub(crate) role: Option<Role>,
    pub(crate) severity: Option<Severity>,
    pub(crate) clears: Option<String>,
    pub(crate) action: Option<String>,
    #[serde(default)]
    pub(crate) then: Vec<String>,
    pub(crate) recommended_by: Option<Vec<String>>,
    pub(crate) basis: Option<Basis>,
    #[serde(default)]
    pub(crate) alternatives: Vec<Alternative>,
    #[serde(default)]
    pub(crate) notes: String,
    #[serde(default)]
    pub(crate) sources: Vec<String>,
    #[serde(default)]
    pub(crate) map: BTreeMap<String, Vec<String>>,
}
