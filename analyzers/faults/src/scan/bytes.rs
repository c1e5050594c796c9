//! Case-folded byte sets and sequences of them: requirements of a pattern on a stretch of text.

/// Folds the case of letters. Other bytes fold together too (`[` and `{`), which only widens sets.
pub(super) fn fold(byte: u8) -> u8 {
    byte | 0x20
}

/// Set of folded bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    pub(super) fn of(bytes: impl IntoIterator<Item = u8>) -> Self {
        let mut set = Self::default();
        for byte in bytes {
            let byte = usize::from(fold(byte));
            set.0[byte / 64] |= 1 << (byte % 64);
        }
        set
    }

    /// All folded bytes.
    pub(super) const ANY: Self = Self([0xffff_ffff_0000_0000; 4]);

    /// Bytes outside a word at a word boundary. Includes non-ASCII bytes, because one byte does not show if they are
    /// letters. Excludes control characters that fold onto digits and the underscore; a cleaned line has none.
    pub(super) const OUTSIDE_WORD: Self = {
        let mut set = Self([0; 4]);
        let mut byte = 0_usize;
        while byte < 256 {
            if !is_word(byte as u8) && !matches!(byte, 0x10..=0x1f | 0x7f) {
                let folded = byte | 0x20;
                set.0[folded / 64] |= 1 << (folded % 64);
            }
            byte += 1;
        }
        set
    };

    pub(super) fn contains(&self, folded: u8) -> bool {
        let byte = usize::from(folded);
        self.0[byte / 64] >> (byte % 64) & 1 == 1
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u8> {
        (0_u8..4).zip(self.0).flat_map(|(number, mut bits)| {
            std::iter::from_fn(move || {
                let bit = u8::try_from(bits.trailing_zeros()).ok().filter(|bit| *bit < 64)?;
                bits &= bits - 1;
                Some(number * 64 + bit)
            })
        })
    }

    /// Returns true if the set holds only letters, digits and underscores.
    pub(super) fn is_word(self) -> bool {
        // DEL folds together with the underscore.
        self.iter().all(|byte| is_word(byte) || byte == 0x7f)
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Bytes that must follow one another.
pub(super) type ByteSequence = Vec<ByteSet>;

/// Returns the sequence of a text in any case.
pub(super) fn sequence(text: &[u8]) -> ByteSequence {
    text.iter().map(|byte| ByteSet::of([*byte])).collect()
}
