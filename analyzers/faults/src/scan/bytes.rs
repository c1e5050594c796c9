//! Sets of bytes and sequences of them: what a pattern asks of a stretch of text, whatever the case of its letters.

/// A byte with the case of letters taken off. Other bytes fall together as well (`[` and `{`), which only makes sets wider.
pub(super) fn fold(byte: u8) -> u8 {
    byte | 0x20
}

/// A set of folded bytes.
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

    /// Every byte.
    pub(super) const ANY: Self = Self([0xffff_ffff_0000_0000; 4]);

    /// What may stand beside a word boundary on the far side of a word. Bytes beyond ASCII are in it: whether they are letters
    /// takes more than one byte to tell. Control characters that fold onto digits and the underscore are left out; a cleaned
    /// line has none.
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

    /// Nothing but letters, digits and underscores.
    pub(super) fn is_word(self) -> bool {
        // DEL falls together with the underscore.
        self.iter().all(|byte| is_word(byte) || byte == 0x7f)
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Bytes that must follow one another.
pub(super) type Sequence = Vec<ByteSet>;

/// A text in any case.
pub(super) fn sequence(text: &[u8]) -> Sequence {
    text.iter().map(|byte| ByteSet::of([*byte])).collect()
}
