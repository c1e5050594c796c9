//! Marks that this crate leaves on nodes, and texts of mirrors.
//!
//! A cordon of Rankguard is `spec.unschedulable`, the taint [`TAINT_KEY`] and the annotation [`CORDON_ANNOTATION`], which
//! owns the other two. A cordon of Kubernetes is mirrored in Rankguard with the reason
//! `cordoned in Kubernetes by MANAGER`. A person who removes the annotation makes the cordon their own.

use rankguard_scheduler_nodes::plain_text;

/// Field manager of all writes.
pub const FIELD_MANAGER: &str = "rankguard";
/// Type of the node condition.
pub const CONDITION_TYPE: &str = "RankguardHealthy";
/// Key of the taint; its value is the failure class, its effect `NoSchedule`.
pub const TAINT_KEY: &str = "rankguard.io/unhealthy";
/// Effect of the taint.
pub const TAINT_EFFECT: &str = "NoSchedule";
/// Annotation with the reasons of the cordon; its presence marks the cordon and the taint as those of Rankguard.
pub const CORDON_ANNOTATION: &str = "rankguard.io/cordon";
/// Annotation with the number of times that the cordon was set again after another manager had lifted it.
pub const REPEATS_ANNOTATION: &str = "rankguard.io/cordon-repeats";
/// Number of times that a cordon is set again. Beyond it the other manager has its way until the reasons change.
pub const REPEATS_MAX: u32 = 3;
/// Class of a cordon that an operator set in Rankguard.
pub const OPERATOR_CLASS: &str = "operator";

/// Start of the reason of a mirrored cordon in Rankguard.
const CORDON_START: &str = "cordoned in Kubernetes by ";
/// Longest text of an annotation, characters.
const TEXT_MAX: usize = 500;
/// Longest name of a field manager, characters; Kubernetes permits 128.
const MANAGER_MAX: usize = 64;
/// Longest value of a taint, characters; the limit of Kubernetes.
const VALUE_MAX: usize = 63;

/// Mark of a cordon of Rankguard on a node of Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CordonMark {
    /// Reasons, one line.
    pub reason: String,
    /// Value of the taint: failure class, or [`OPERATOR_CLASS`].
    pub class: String,
    /// Number of times that the cordon was set again.
    pub repeats: u32,
}

impl CordonMark {
    /// Returns the mark for these reasons of a cordon, newest first, and the class of its case.
    pub fn new(reasons: &[&str], class: Option<&str>) -> Self {
        Self {
            reason: plain_text(&reasons.join(", "), TEXT_MAX),
            class: taint_value(class.unwrap_or(OPERATOR_CLASS)),
            repeats: 0,
        }
    }

    /// Returns true if both marks have the same reasons and class.
    pub fn has_same_cause(&self, other: &Self) -> bool {
        self.reason == other.reason && self.class == other.class
    }
}

/// Returns the reason of a cordon in Rankguard for a cordon of Kubernetes.
pub fn cordon_reason(manager: Option<&str>) -> String {
    let manager = manager.map_or_else(|| "an unknown manager".to_owned(), |name| plain_text(name, MANAGER_MAX));
    format!("{CORDON_START}{manager}")
}

/// Returns true if the reason of a cordon in Rankguard is a mirror.
pub fn is_mirrored_cordon(reason: &str) -> bool {
    reason.starts_with(CORDON_START)
}

/// Reduces a class to a value that Kubernetes permits for labels and taints.
fn taint_value(class: &str) -> String {
    let letter = |letter: char| {
        if letter.is_ascii_alphanumeric() || "-_.".contains(letter) {
            letter
        } else {
            '-'
        }
    };
    let value: String = class.chars().map(letter).take(VALUE_MAX).collect();
    let value = value.trim_matches(['-', '_', '.']);
    if value.is_empty() {
        OPERATOR_CLASS.to_owned()
    } else {
        value.to_owned()
    }
}
