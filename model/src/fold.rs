//! Folding: a value as one number, the same in every run, and keys that are found by it.

use std::hash::{Hash, Hasher};

/// Folds what it is given into one number, word by word: the same in every run, and cheaper than what keeps out people who
/// look for collisions.
#[derive(Debug, Default)]
pub struct Fold(u64);

impl Fold {
    fn word(&mut self, word: u64) {
        let mixed = u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }
}

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        self.word(rest_of_word(rest) ^ (bytes.len() as u64).rotate_left(56));
    }

    fn write_u8(&mut self, byte: u8) {
        self.word(u64::from(byte) + 1);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Fewer than eight bytes as a word, the first one lowest and zeros above. Names are short, so most of what is folded is this
/// rest, and copying it by a call would cost more than folding it.
fn rest_of_word(bytes: &[u8]) -> u64 {
    let (mut word, mut bits, mut rest) = (0, 0, bytes);
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

/// A name as the key of an ordered map that is asked for every piece of evidence and never listed: a search compares numbers
/// and looks at one name, the last. The order says nothing, and is the same in every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Folded<K> {
    fold: u64,
    key: K,
}

impl<K: Hash + Clone> Folded<K> {
    /// The key of a name; a copy of a name is cheap.
    pub fn of(key: &K) -> Self {
        let mut fold = Fold::default();
        key.hash(&mut fold);
        Self {
            fold: fold.finish(),
            key: key.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn a_rest_is_the_word_that_zeros_fill_up() {
        let bytes = [0x81, 2, 3, 0xf4, 5, 6, 0xc7];
        for length in 0..=bytes.len() {
            let mut filled = [0; 8];
            filled[..length].copy_from_slice(&bytes[..length]);
            assert_eq!(rest_of_word(&bytes[..length]), u64::from_le_bytes(filled));
        }
    }

    #[test]
    fn names_that_fold_alike_are_still_two() {
        let of = |name| Folded {
            fold: 7,
            key: NodeId::from(name),
        };
        assert!(of("a") < of("b") && of("a") == of("a"));
        assert_eq!(Folded::of(&NodeId::from("a")), Folded::of(&NodeId::from("a")));
        assert_ne!(Folded::of(&NodeId::from("a")), Folded::of(&NodeId::from("b")));
    }
}
