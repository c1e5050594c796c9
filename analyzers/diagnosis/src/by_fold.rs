//! Numbers of things by a name that is folded: found with one search, and no name is copied.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use rankguard_model::Fold;

/// Numbers by names. Two names may fold alike, so whoever finds a number looks whether it is that of the name it asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ByFold(BTreeSet<(u64, u64)>);

/// A name as a number.
pub(crate) fn fold(name: &impl Hash) -> u64 {
    let mut fold = Fold::default();
    name.hash(&mut fold);
    fold.finish()
}

impl ByFold {
    pub(crate) fn insert(&mut self, fold: u64, number: u64) {
        self.0.insert((fold, number));
    }

    pub(crate) fn remove(&mut self, fold: u64, number: u64) {
        self.0.remove(&(fold, number));
    }

    /// The numbers of names that fold so, in rising order.
    pub(crate) fn of(&self, fold: u64) -> impl DoubleEndedIterator<Item = u64> {
        self.0.range((fold, 0)..=(fold, u64::MAX)).map(|(_, number)| *number)
    }
}
