//! Sets of mostly ascending numbers, the greatest stored inline: most hold one number, which then needs no
//! allocation.

use crate::sorted_deque::SortedDeque;

/// Ordered set of numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SmallSortedSet<N = u64> {
    greatest: Option<N>,
    before: SortedDeque<N, ()>,
}

impl<N> Default for SmallSortedSet<N> {
    fn default() -> Self {
        Self {
            greatest: None,
            before: SortedDeque::default(),
        }
    }
}

impl<N: Ord + Copy> SmallSortedSet<N> {
    pub(crate) fn len(&self) -> usize {
        self.before.len() + usize::from(self.greatest.is_some())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.greatest.is_none()
    }

    pub(crate) fn greatest(&self) -> Option<N> {
        self.greatest
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = N> + Clone {
        self.before.keys().copied().chain(self.greatest)
    }

    /// Iterates from the greatest to the least.
    pub(crate) fn falling(&self) -> impl Iterator<Item = N> {
        self.greatest.into_iter().chain(self.before.keys().rev().copied())
    }

    pub(crate) fn contains(&self, number: N) -> bool {
        self.greatest == Some(number) || self.before.get(&number).is_some()
    }

    /// Inserts a number if it is absent.
    pub(crate) fn insert(&mut self, number: N) {
        match self.greatest {
            Some(greatest) if number == greatest => {}
            Some(greatest) if number < greatest => self.before.insert(number, ()),
            Some(greatest) => {
                self.before.insert(greatest, ());
                self.greatest = Some(number);
            }
            None => self.greatest = Some(number),
        }
    }

    pub(crate) fn remove(&mut self, number: N) {
        if self.greatest != Some(number) {
            self.before.remove(&number);
            return;
        }
        self.greatest = self.before.last().map(|(number, ())| *number);
        if let Some(number) = self.greatest {
            self.before.remove(&number);
        }
    }
}

impl<N: Ord + Copy> Extend<N> for SmallSortedSet<N> {
    fn extend<I: IntoIterator<Item = N>>(&mut self, numbers: I) {
        numbers.into_iter().for_each(|number| self.insert(number));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_whatever_the_order_of_its_numbers(steps in prop::collection::vec((any::<bool>(), 0..20_u64), 0..200)) {
            let mut row = SmallSortedSet::default();
            let mut set = BTreeSet::new();
            for (comes, number) in steps {
                if comes {
                    row.insert(number);
                    set.insert(number);
                } else {
                    row.remove(number);
                    set.remove(&number);
                }
                prop_assert_eq!((row.len(), row.is_empty()), (set.len(), set.is_empty()));
                prop_assert_eq!(row.greatest(), set.last().copied());
                prop_assert!((0..20).all(|number| row.contains(number) == set.contains(&number)));
                prop_assert!(row.iter().eq(set.iter().copied()));
                prop_assert!(row.falling().eq(set.iter().rev().copied()));
            }
        }
    }
}
