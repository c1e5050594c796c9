//! What diagnosis asks of the catalogue about a class, with an answer for classes that nobody knows.

use rankguard_faults::Catalogue;
use rankguard_model::{ClassId, Role, Severity};

/// The layer the class sits in; `unknown` for a class nobody knows.
pub(crate) fn layer<'a>(catalogue: &'a Catalogue, class: &ClassId) -> &'a str {
    catalogue.class(class).map_or("unknown", |class| class.layer.as_str())
}

/// How bad the class is by itself.
pub(crate) fn severity(catalogue: &Catalogue, class: &ClassId) -> Severity {
    catalogue.class(class).map_or(Severity::Failure, |class| class.severity)
}

/// What evidence clears it (RG-10).
pub(crate) fn clears(catalogue: &Catalogue, class: &ClassId) -> String {
    catalogue.class(class).map_or_else(
        || "a person names the cause, or the job completes a step in a newer generation".to_owned(),
        |class| class.clears.clone(),
    )
}

/// Whether a failure of this class sits in a machine or its network, so that a node may be acted on.
pub(crate) fn is_machine(catalogue: &Catalogue, class: &ClassId) -> bool {
    layer(catalogue, class) == "hardware" || is_adapter(class)
}

/// Whether a machine or its network that reports this has failed, and as a rule first.
pub(crate) fn is_outright_fault(catalogue: &Catalogue, class: &ClassId) -> bool {
    catalogue.class(class).map_or(is_adapter(class), |known| {
        let machine = known.layer == "hardware" || is_adapter(class);
        machine && known.severity == Severity::Failure && known.role == Role::Root
    })
}

fn is_adapter(class: &ClassId) -> bool {
    matches!(class.as_str(), "nic-fault" | "nic-link-down" | "nic-link-flap")
}

/// Whether the program, its data or its numbers are at fault, so that a retry meets the same failure.
pub(crate) fn is_program(catalogue: &Catalogue, class: &ClassId) -> bool {
    matches!(
        layer(catalogue, class),
        "user-code" | "user-data" | "model-numerics" | "framework"
    )
}

/// Whether one rank can be the first. A limit or a cancellation ends all ranks of a job at once.
pub(crate) fn has_first_rank(catalogue: &Catalogue, class: &ClassId) -> bool {
    layer(catalogue, class) != "scheduler"
        || matches!(class.as_str(), "preempted" | "external-termination" | "slurm-node-fail")
}
