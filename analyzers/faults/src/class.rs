//! Canonical failure classes: one tree, from the granularity of the literature down to what a log line can
//! distinguish.

use std::collections::BTreeMap;

use rankguard_model::{ClassId, RecommendedMitigation, Role, Severity, SharedValue};
use serde::{Deserialize, Serialize};

/// Canonical failure class with all inherited values filled in.
#[derive(Debug, Clone)]
pub struct FailureClass {
    /// Class id, kebab-case.
    pub id: ClassId,
    /// Other ids of the same class; resolved by [`crate::Catalogue::class`].
    pub aliases: Vec<ClassId>,
    /// Parent class; none for a root of the tree.
    pub parent: Option<ClassId>,
    /// Nearest class that labelled logs use, if they have none for this class.
    pub told_as: Option<ClassId>,
    /// True if the class describes how another failure surfaced; a more specific meaning of the same line takes
    /// precedence.
    pub surface: bool,
    /// Layer: hardware, network, storage, platform, scheduler, framework, user-code, user-data, model-numerics or
    /// none.
    pub layer: String,
    /// Cause, symptom or end state.
    pub kind: ClassKind,
    pub definition: String,
    /// Usual causes, the most frequent first.
    pub causes: Vec<String>,
    /// Default role in a failure.
    pub role: Role,
    /// Default severity of the class.
    pub severity: Severity,
    /// Recommended first action, with advice and sources.
    pub mitigation: SharedValue<RecommendedMitigation>,
    /// Ids of the follow-up actions, in order.
    pub then: Vec<String>,
    /// Basis of the first action: published or inferred.
    pub basis: ActionBasis,
    /// First actions that other sources recommend.
    pub alternatives: Vec<AlternativeAction>,
    /// Remark on the action.
    pub notes: String,
    /// Clearing condition (RG-10).
    pub clears: String,
    /// Ids of the sources for meaning and wording ([`crate::Catalogue::source`]).
    pub sources: Vec<String>,
    /// Taxonomy id to category ids, most specific first; every primary taxonomy has an entry.
    pub taxonomies: SharedValue<BTreeMap<String, Vec<String>>>,
}

/// Kind of failure class: cause, symptom or end state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassKind {
    /// Possible cause of a failure.
    #[default]
    RootCause,
    /// Symptom that needs diagnosis before blame.
    Symptom,
    /// End state that a scheduler or a user decided.
    Outcome,
}

/// Basis of the first action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionBasis {
    /// A source recommends the action for this failure.
    Published,
    /// Inferred by this project from a related recommendation.
    #[default]
    Inferred,
}

/// First action that another source recommends for the same failure.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AlternativeAction {
    /// Id of the other source.
    pub source: String,
    /// Id of its first action.
    pub action: String,
}

/// Class as its file states it, before inheritance from its parent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClassRow {
    pub(crate) id: ClassId,
    #[serde(default)]
    pub(crate) aliases: Vec<ClassId>,
    pub(crate) parent: Option<ClassId>,
    pub(crate) told_as: Option<ClassId>,
    #[serde(default)]
    pub(crate) surface: bool,
    pub(crate) layer: String,
    pub(crate) kind: Option<ClassKind>,
    pub(crate) definition: String,
    pub(crate) advice: String,
    /// Advice once a restart has brought the failure back, if it differs.
    #[serde(default)]
    pub(crate) advice_on_return: String,
    #[serde(default)]
    pub(crate) causes: Vec<String>,
    pub(crate) role: Option<Role>,
    pub(crate) severity: Option<Severity>,
    pub(crate) clears: Option<String>,
    pub(crate) action: Option<String>,
    #[serde(default)]
    pub(crate) then: Vec<String>,
    pub(crate) recommended_by: Option<Vec<String>>,
    pub(crate) basis: Option<ActionBasis>,
    #[serde(default)]
    pub(crate) alternatives: Vec<AlternativeAction>,
    #[serde(default)]
    pub(crate) notes: String,
    #[serde(default)]
    pub(crate) sources: Vec<String>,
    #[serde(default)]
    pub(crate) map: BTreeMap<String, Vec<String>>,
}
