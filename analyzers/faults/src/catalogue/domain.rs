//! Fallback category of a class by its layer.

use crate::taxonomy::OUTSIDE_SCOPE;

/// Returns the category for a class without one in the taxonomy. Kokolis et al. name three domains besides their
/// symptoms, and the layer selects one; the other primary taxonomies have nothing wider than their categories.
pub(super) fn domain_of(taxonomy: &str, layer: &str) -> &'static str {
    match (taxonomy, layer) {
        ("kokolis-hpca2025", "user-code" | "user-data" | "model-numerics" | "framework") => "user-program",
        ("kokolis-hpca2025", "hardware") => "hardware-infrastructure",
        ("kokolis-hpca2025", "network" | "storage" | "platform") => "system-software",
        _ => OUTSIDE_SCOPE,
    }
}
