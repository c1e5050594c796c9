//! The domain of a study that a layer belongs to.

use crate::taxonomy::OUTSIDE_SCOPE;

/// Where a class without a category goes. Kokolis et al. name three domains beside their symptoms, and a layer says which; the
/// other studies have nothing wider than their categories.
pub(super) fn domain_of(taxonomy: &str, layer: &str) -> &'static str {
    match (taxonomy, layer) {
        ("kokolis-hpca2025", "user-code" | "user-data" | "model-numerics" | "framework") => "user-program",
        ("kokolis-hpca2025", "hardware") => "hardware-infrastructure",
        ("kokolis-hpca2025", "network" | "storage" | "platform") => "system-software",
        _ => OUTSIDE_SCOPE,
    }
}
