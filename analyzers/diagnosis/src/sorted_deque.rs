//! Map for mostly ascending keys: new entries are appended, removed ones leave from the front.

use std::collections::VecDeque;

/// Entries in key order. Access at both ends is O(1); inserting a key elsewhere costs its distance to the nearer end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SortedDeque<K, V>(VecDeque<(K, V)>);

impl<K, V> Default for SortedDeque<K, V> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: Ord, V> SortedDeque<K, V> {
    /// Returns the index of a key, or where to insert it.
    fn place(&self, key: &K) -> Result<usize, usize> {
        match (self.0.front(), self.0.back()) {
            (Some((first, _)), _) if first == key => Ok(0),
            (_, Some((last, _))) if last >= key => self.0.binary_search_by(|(known, _)| known.cmp(key)),
            _ => Err(self.0.len()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the entry with the least key.
    pub(crate) fn first(&self) -> Option<&(K, V)> {
        self.0.front()
    }

    /// Returns the entry with the greatest key.
    pub(crate) fn last(&self) -> Option<&(K, V)> {
        self.0.back()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let place = self.place(key).ok()?;
        Some(&self.0[place].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key).ok()?;
        Some(&mut self.0[place].1)
    }

    /// Inserts an entry, or replaces the value of its key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.place(&key) {
            Ok(place) => self.0[place].1 = value,
            Err(place) if place == self.0.len() => self.0.push_back((key, value)),
            Err(place) => self.0.insert(place, (key, value)),
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let gone = match self.place(key).ok()? {
            0 => self.0.pop_front(),
            place => self.0.remove(place),
        };
        gone.map(|(_, value)| value)
    }

    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + Clone {
        self.0.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map_whatever_the_order_of_its_keys(steps in prop::collection::vec((0..3_u8, 0..20_u8, 0..9_u8), 0..200)) {
            let mut rising = SortedDeque::default();
            let mut map = BTreeMap::new();
            for (what, key, value) in steps {
                match what {
                    0 => prop_assert_eq!(rising.remove(&key), map.remove(&key)),
                    _ => {
                        rising.insert(key, value);
                        map.insert(key, value);
                    }
                }
                prop_assert_eq!(rising.get(&key), map.get(&key));
                prop_assert_eq!(rising.get_mut(&key), map.get_mut(&key));
                prop_assert_eq!(rising.first().map(|(key, _)| key), map.keys().next());
                prop_assert_eq!(rising.last().map(|(key, _)| key), map.keys().next_back());
                prop_assert!(rising.keys().eq(map.keys()));
                prop_assert!(rising.values().eq(map.values()));
                prop_assert_eq!(rising.len(), map.len());
            }
            prop_assert!(rising.into_values().eq(map.into_values()));
        }
    }
}
