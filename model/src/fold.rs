//! Folding: a deterministic, fast hash, and a map that uses it.

use std::fmt;
use std::hash::{Hash, Hasher};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Hasher that folds its input word by word into one number. The result is the same in every run; it does not resist
/// deliberate collisions, which keeps it cheap.
#[derive(Debug, Default)]
pub struct FoldHasher(u64);

impl FoldHasher {
    fn word(&mut self, word: u64) {
        let mixed = u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }
}

/// Integers of fixed length hash like their bytes, without a split into bytes.
impl Hasher for FoldHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        self.word(rest_of_word(rest) ^ length(bytes.len()));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.word(number);
        self.word(length(8));
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.word(u64::from(number) ^ length(4));
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.word(u64::from(byte) + 1);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Returns a length in the top byte of a word, where the rest of a short text has no bits.
fn length(bytes: usize) -> u64 {
    (bytes as u64).rotate_left(56)
}

/// Returns fewer than eight bytes as a little-endian word with zeros above. Most names are short and consist of this
/// rest only, and a `memcpy` call would cost more than the hash.
fn rest_of_word(bytes: &[u8]) -> u64 {
    let mut word = 0;
    let mut bits = 0;
    let mut rest = bytes;
    if let Some((four, behind)) = rest.split_first_chunk() {
        word = u64::from(u32::from_le_bytes(*four));
        (bits, rest) = (32, behind);
    }
    if let Some((two, behind)) = rest.split_first_chunk() {
        word |= u64::from(u16::from_le_bytes(*two)) << bits;
        (bits, rest) = (bits + 16, behind);
    }
    match rest {
        [one, ..] => word | u64::from(*one) << bits,
        [] => word,
    }
}

/// Hash map for lookups on every piece of evidence. It has no iterator, so hash order cannot leak into any output
/// (RG-8).
#[derive(Clone)]
pub struct LookupMap<K, V>(HashTable<(K, V)>);

impl<K, V> Default for LookupMap<K, V> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

fn fold(name: &impl Hash) -> u64 {
    let mut fold = FoldHasher::default();
    name.hash(&mut fold);
    fold.finish()
}

impl<K: Hash + Eq, V> LookupMap<K, V> {
    /// Returns true if the map is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of a name. `Q` may be a borrowed form that hashes like the key itself.
    pub fn get<Q: Hash + PartialEq<K>>(&self, name: &Q) -> Option<&V> {
        // An empty map, such as that of jobs on an idle cluster, needs no hash.
        if self.0.is_empty() {
            return None;
        }
        let found = self.0.find(fold(name), |(known, _)| *name == *known);
        found.map(|(_, value)| value)
    }

    /// Returns the value of a name for modification.
    pub fn get_mut<Q: Hash + PartialEq<K>>(&mut self, name: &Q) -> Option<&mut V> {
        let found = self.0.find_mut(fold(name), |(known, _)| *name == *known);
        found.map(|(_, value)| value)
    }

    /// Returns the value of a name; inserts the default if there is none.
    pub fn of(&mut self, name: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        let is = |(known, _): &(K, V)| known == name;
        let entry = self.0.entry(fold(name), is, |(known, _)| fold(known));
        let make = || (name.clone(), V::default());
        &mut entry.or_insert_with(make).into_mut().1
    }

    /// Sets the value of a name, replacing an earlier one.
    pub fn set(&mut self, name: K, value: V) {
        let is = |(known, _): &(K, V)| *known == name;
        match self.0.entry(fold(&name), is, |(known, _)| fold(known)) {
            Entry::Occupied(mut entry) => entry.get_mut().1 = value,
            Entry::Vacant(entry) => drop(entry.insert((name, value))),
        }
    }

    /// Modifies the value of a name, if there is one, and removes the entry if `how` returns true.
    pub fn update_or_remove<Q: Hash + PartialEq<K>>(&mut self, name: &Q, how: impl FnOnce(&mut V) -> bool) {
        if let Ok(mut entry) = self.0.find_entry(fold(name), |(known, _)| *name == *known)
            && how(&mut entry.get_mut().1)
        {
            entry.remove();
        }
    }
}

impl<K: Hash + Eq, V: PartialEq> PartialEq for LookupMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        let same = |(name, value): &(K, V)| other.get(name) == Some(value);
        self.0.len() == other.0.len() && self.0.iter().all(same)
    }
}

impl<K: Hash + Eq, V: Eq> Eq for LookupMap<K, V> {}

impl<K, V> fmt::Debug for LookupMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fold_as_their_bytes_do() {
        let bytes = |bytes: &[u8]| {
            let mut fold = FoldHasher::default();
            fold.write(bytes);
            fold.finish()
        };
        let number = 0x8123_4567_89ab_cdef_u64;
        assert_eq!(fold(&number), bytes(&number.to_le_bytes()));
        assert_eq!(fold(&(number as usize)), bytes(&number.to_le_bytes()));
        assert_eq!(fold(&(number as u32)), bytes(&(number as u32).to_le_bytes()));
    }

    #[test]
    fn a_rest_is_the_word_that_zeros_fill_up() {
        let bytes = [0x81, 2, 3, 0xf4, 5, 6, 0xc7];
        for length in 0..=bytes.len() {
            let mut filled = [0; 8];
            filled[..length].copy_from_slice(&bytes[..length]);
            assert_eq!(rest_of_word(&bytes[..length]), u64::from_le_bytes(filled));
        }
    }

    /// Hashes every key to the same number.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Colliding(u8);

    impl Hash for Colliding {
        fn hash<H: Hasher>(&self, state: &mut H) {
            7.hash(state);
        }
    }

    #[test]
    fn names_that_fold_alike_are_still_two() {
        let mut all = LookupMap::default();
        (0..100).for_each(|name| *all.of(&Colliding(name)) += u32::from(name) + 1);
        all.set(Colliding(3), 40);
        let found: Vec<_> = [0, 3, 99, 100].map(|name| all.get(&Colliding(name)).copied()).to_vec();
        assert_eq!(found, [Some(1), Some(40), Some(100), None]);
        let mut fewer = all.clone();
        fewer.update_or_remove(&Colliding(3), |_| true);
        fewer.update_or_remove(&Colliding(4), |value| *value == 0);
        assert_eq!((fewer.get(&Colliding(3)), fewer.get(&Colliding(4))), (None, Some(&5)));
        assert_ne!(fewer, all);
        fewer.set(Colliding(3), 40);
        assert_eq!(fewer, all);
    }
}
