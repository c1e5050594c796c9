//! Categories of a cause in published taxonomies: those of its class, unless the circumstances show another cause.

use std::collections::BTreeMap;

use rankguard_faults::classes;
use rankguard_model::{ClassId, SharedValue};

use crate::knowledge::ClassEntry;
use crate::missing_programs::node_that_lacks;
use crate::stopped_ranks::is_stopped;
use crate::{CauseCandidate, FailureScene};

/// Taxonomies in which a hang is a failure of a collective library. A process that a signal stopped shows none.
const OF_COLLECTIVES: [&str; 3] = ["hu-nsdi2024", "jeon-atc2019", "kokolis-hpca2025"];

/// Returns the categories of a cause.
pub(crate) fn of_cause(
    scene: &FailureScene<'_>,
    cause: &CauseCandidate,
    known: ClassEntry<'_>,
) -> SharedValue<BTreeMap<String, Vec<String>>> {
    let general = known.taxonomies(scene.catalogue);
    let of_class = |class: &str| scene.catalogue.taxonomies_of(&ClassId::from(class));
    if node_that_lacks(scene, cause).is_some() && known.is_program() {
        return of_class(match cause.class.as_str() {
            classes::IMPORT_ERROR => classes::LIBRARY_MISSING,
            _ => classes::FILESYSTEM_MOUNT_MISSING,
        });
    }
    if !is_stopped(scene, cause) {
        return general;
    }
    let unknown = of_class(classes::UNKNOWN);
    let of_taxonomy = |(taxonomy, categories): (&String, &Vec<String>)| {
        let is_of_collectives = OF_COLLECTIVES.contains(&taxonomy.as_str());
        let categories = if is_of_collectives {
            unknown.get(taxonomy)
        } else {
            Some(categories)
        };
        categories.map(|categories| (taxonomy.clone(), categories.clone()))
    };
    SharedValue::from(general.iter().filter_map(of_taxonomy).collect::<BTreeMap<_, _>>())
}
