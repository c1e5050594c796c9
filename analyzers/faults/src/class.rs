//! Canonical failure classes.

use std::collections::BTreeMap;

use rankguard_model::{ClassId, Mitigation, Role, Severity};

/// One canonical failure class, complete: the leaf of `classes.toml` joined with its class of the crosswalk.
#[derive(Debug, Clone)]
pub struct Class {
    /// Its id, kebab-case.
    pub id: ClassId,
    /// Where it sits (hardware, network, storage, platform, scheduler, framework, user-code, user-data, model-numerics,
    /// none).
    pub layer: String,
    /// What it means.
    pub definition: String,
    /// What usually causes it, most usual first.
    pub causes: Vec<String>,
    /// The part it plays in a failure as a rule.
    pub role: Role,
    /// How bad it is as a rule.
    pub severity: Severity,
    /// What to do.
    pub mitigation: Mitigation,
    /// What evidence clears it (RG-10).
    pub clears: String,
    /// The coarser class of the crosswalk it belongs to.
    pub crosswalk: String,
    /// Taxonomy id to category ids, most specific first; every primary taxonomy has an entry.
    pub taxonomies: BTreeMap<String, Vec<String>>,
}
