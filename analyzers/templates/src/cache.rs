//! Cache from known shapes to template numbers, which saves most lines a walk through the tree.

/// Number of slots, a power of two. At most half are used.
const SLOTS: usize = 1 << 14;
/// Maximum total bytes of the cached shapes.
const BYTES: usize = 1 << 21;

#[derive(Clone, Copy, Default)]
struct CacheSlot {
    hash: u64,
    start: u32,
    length: u32,
    number: u32,
    used: bool,
}

/// Hash table of fixed size, cleared when full: it holds nothing that the tree does not.
pub(crate) struct ShapeCache {
    slots: Vec<CacheSlot>,
    texts: Vec<u8>,
    used: usize,
}

impl ShapeCache {
    pub(crate) fn new() -> Self {
        Self {
            slots: vec![CacheSlot::default(); SLOTS],
            texts: Vec::new(),
            used: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.slots.fill(CacheSlot::default());
        self.texts.clear();
        self.used = 0;
    }

    pub(crate) fn get(&self, hash: u64, shape: &[u8]) -> Option<u32> {
        let mut at = hash as usize % SLOTS;
        loop {
            let slot = &self.slots[at];
            if !slot.used {
                return None;
            }
            if slot.hash == hash && self.texts[slot.start as usize..(slot.start + slot.length) as usize] == *shape {
                return Some(slot.number);
            }
            at = (at + 1) % SLOTS;
        }
    }

    pub(crate) fn put(&mut self, hash: u64, shape: &[u8], number: u32) {
        if self.used >= SLOTS / 2 || self.texts.len() + shape.len() > BYTES {
            self.clear();
        }
        let mut at = hash as usize % SLOTS;
        while self.slots[at].used {
            at = (at + 1) % SLOTS;
        }
        let start = self.texts.len() as u32;
        self.texts.extend_from_slice(shape);
        self.slots[at] = CacheSlot {
            hash,
            start,
            length: shape.len() as u32,
            number,
            used: true,
        };
        self.used += 1;
    }
}

/// Computes a fast hash for this table only; hits are compared.
pub(crate) fn hash(text: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |state: u64, word: u64| {
        let product = u128::from(state ^ word) * u128::from(ODD);
        (product as u64) ^ ((product >> 64) as u64)
    };
    let (words, rest) = text.as_chunks::<8>();
    let state = words.iter().fold(text.len() as u64 ^ ODD, |state, word| {
        fold(state, u64::from_le_bytes(*word))
    });
    let last = rest.iter().fold(0, |last, byte| last << 8 | u64::from(*byte));
    fold(state, last)
}

#[cfg(test)]
mod tests {
    use super::{SLOTS, ShapeCache, hash};

    #[test]
    fn what_is_put_is_found_until_the_table_is_full() {
        let mut cache = ShapeCache::new();
        for n in 0..SLOTS as u32 {
            let shape = format!("shape {n}");
            cache.put(hash(shape.as_bytes()), shape.as_bytes(), n);
            assert_eq!(cache.get(hash(shape.as_bytes()), shape.as_bytes()), Some(n));
        }
        assert!(cache.used <= SLOTS / 2);
        assert_eq!(cache.get(hash(b"shape 0"), b"shape 0"), None);
    }

    #[test]
    fn equal_hashes_of_different_shapes_are_told_apart() {
        let mut cache = ShapeCache::new();
        cache.put(7, b"a", 1);
        cache.put(7, b"b", 2);
        assert_eq!(
            (cache.get(7, b"a"), cache.get(7, b"b"), cache.get(7, b"c")),
            (Some(1), Some(2), None)
        );
    }
}
