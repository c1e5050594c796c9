//! What diagnosis asks of the catalogue about a class, with an answer for classes that nobody knows.

use std::collections::BTreeMap;

use rankguard_faults::{Catalogue, Class};
use rankguard_model::{ClassId, Mitigation, Role, Severity, Shared};

/// A class and what the catalogue has of it, looked up once for all questions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    id: &'a ClassId,
    class: Option<&'a Class>,
}

impl<'a> Known<'a> {
    pub(crate) fn of(catalogue: &'a Catalogue, id: &'a ClassId) -> Self {
        Self {
            id,
            class: catalogue.class(id),
        }
    }

    /// Whether it is of this class.
    pub(crate) fn is(&self, class: &ClassId) -> bool {
        self.id == class
    }

    /// The layer the class sits in; `unknown` for a class nobody knows.
    pub(crate) fn layer(&self) -> &'a str {
        self.class.map_or("unknown", |class| class.layer.as_str())
    }

    /// How bad the class is by itself.
    pub(crate) fn severity(&self) -> Severity {
        self.class.map_or(Severity::Failure, |class| class.severity)
    }

    /// What evidence clears it (RG-10).
    pub(crate) fn clears(&self) -> String {
        self.class.map_or_else(
            || "a person names the cause, or the job completes a step in a newer generation".to_owned(),
            |class| class.clears.clone(),
        )
    }

    /// Its places in the primary taxonomies; none for a class nobody knows.
    pub(crate) fn taxonomies(&self) -> Shared<BTreeMap<String, Vec<String>>> {
        self.class.map(|class| class.taxonomies.clone()).unwrap_or_default()
    }

    /// What to do about it; of a class nobody knows, what to do about an unknown failure.
    pub(crate) fn mitigation(&self, catalogue: &Catalogue) -> Shared<Mitigation> {
        match self.class {
            Some(class) => class.mitigation.clone(),
            None => catalogue.mitigation(self.id),
        }
    }

    /// Whether a failure of this class sits in a machine or its network, so that a node may be acted on.
    pub(crate) fn is_machine(&self) -> bool {
        self.layer() == "hardware" || self.is_adapter()
    }

    /// Whether a machine or its network that reports this has failed, and as a rule first.
    pub(crate) fn is_outright_fault(&self) -> bool {
        self.class.map_or(self.is_adapter(), |known| {
            self.is_machine() && known.severity == Severity::Failure && known.role == Role::Root
        })
    }

    fn is_adapter(&self) -> bool {
        matches!(self.id.as_str(), "nic-fault" | "nic-link-down" | "nic-link-flap")
    }

    /// Whether the program, its data or its numbers are at fault, so that a retry meets the same failure.
    pub(crate) fn is_program(&self) -> bool {
        matches!(self.layer(), "user-code" | "user-data" | "model-numerics" | "framework")
    }

    /// Whether one rank can be the first. A limit or a cancellation ends all ranks of a job at once, and a driver or a fabric
    /// that is not ready is met by all that run on the node.
    pub(crate) fn has_first_rank(&self) -> bool {
        match self.id.as_str() {
            "preempted" | "external-termination" | "slurm-node-fail" => true,
            "driver-version-mismatch" | "fabric-manager-not-ready" => false,
            _ => self.layer() != "scheduler",
        }
    }
}
