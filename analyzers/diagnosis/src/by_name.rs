//! Asking for a name what is found by it.

use std::collections::BTreeMap;
use std::hash::Hash;

use rankguard_model::Folded;

/// What a map has of a name. Where nothing is, as where no job runs, no name is folded to find that out.
pub(crate) fn by_name<'a, K: Hash + Clone + Ord, V>(all: &'a BTreeMap<Folded<K>, V>, name: &K) -> Option<&'a V> {
    if all.is_empty() {
        return None;
    }
    all.get(&Folded::of(name))
}
