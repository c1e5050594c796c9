//! Catalogue queries of diagnosis, with defaults for unknown classes.

use std::collections::BTreeMap;

use rankguard_faults::{Catalogue, FailureClass, classes};
use rankguard_model::{ClassId, RecommendedMitigation, Role, Severity, SharedValue};

/// Class with its catalogue entry, looked up once for all queries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClassEntry<'a> {
    id: &'a ClassId,
    class: Option<&'a FailureClass>,
}

impl<'a> ClassEntry<'a> {
    pub(crate) fn of(catalogue: &'a Catalogue, id: &'a ClassId) -> Self {
        Self {
            id,
            class: catalogue.class(id),
        }
    }

    /// Returns true if it is this class.
    pub(crate) fn is(&self, class: &ClassId) -> bool {
        self.id == class
    }

    /// Returns the layer of the class; `unknown` for an unknown class.
    pub(crate) fn layer(&self) -> &'a str {
        self.class.map_or("unknown", |class| class.layer.as_str())
    }

    /// Returns the default severity of the class.
    pub(crate) fn severity(&self) -> Severity {
        self.class.map_or(Severity::Failure, |class| class.severity)
    }

    /// Returns the clearing condition (RG-10).
    pub(crate) fn clears(&self) -> String {
        self.class.map_or_else(
            || "a person names the cause, or the job completes a step in a newer generation".to_owned(),
            |class| class.clears.clone(),
        )
    }

    /// Returns its categories in the primary taxonomies and in those of user files; none for an unknown class.
    pub(crate) fn taxonomies(&self, catalogue: &Catalogue) -> SharedValue<BTreeMap<String, Vec<String>>> {
        catalogue.taxonomies_of(self.id)
    }

    /// Returns its mitigation; an unknown class returns that of an unknown failure.
    pub(crate) fn mitigation(&self, catalogue: &Catalogue) -> SharedValue<RecommendedMitigation> {
        match self.class {
            Some(class) => class.mitigation.clone(),
            None => catalogue.mitigation(self.id),
        }
    }

    /// Returns true if a failure of this class is in a machine or its network, so that a node may be acted on.
    pub(crate) fn is_machine(&self) -> bool {
        self.layer() == "hardware" || self.is_adapter()
    }

    /// Returns true if a machine or its network that reports this class has failed, usually as the first.
    pub(crate) fn is_outright_fault(&self) -> bool {
        self.class.map_or(self.is_adapter(), |known| {
            self.is_machine() && known.severity == Severity::Failure && known.role == Role::Root
        })
    }

    fn is_adapter(&self) -> bool {
        matches!(
            self.id.as_str(),
            classes::NIC_FAULT | classes::NIC_LINK_DOWN | classes::NIC_LINK_FLAP
        )
    }

    /// Returns true if the program, its data or its numerics are at fault, so that a retry fails again.
    pub(crate) fn is_program(&self) -> bool {
        matches!(self.layer(), "user-code" | "user-data" | "model-numerics" | "framework")
    }

    /// Returns true if one rank can be the first. A limit or a cancellation ends all ranks of a job at once, and a
    /// driver or fabric that is not ready affects all ranks on the node.
    pub(crate) fn has_first_rank(&self) -> bool {
        match self.id.as_str() {
            classes::PREEMPTED | classes::EXTERNAL_TERMINATION | classes::SLURM_NODE_FAIL => true,
            classes::DRIVER_VERSION_MISMATCH | classes::FABRIC_MANAGER_NOT_READY => false,
            _ => self.layer() != "scheduler",
        }
    }
}
