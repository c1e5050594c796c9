//! Repeat hash: equal for two signs with the same content about the same entity.

use std::hash::{Hash, Hasher};

use rankguard_model::{Classification, Entity, EvidenceSource, FoldHasher};

/// Number of bytes that are hashed together.
const PART: usize = 128;

/// Source, entity and text, shared by all meanings of one line or sample.
#[derive(Debug)]
pub(crate) struct RepeatKey<'e> {
    source: EvidenceSource,
    entity: &'e Entity,
    /// Text without digits: sizes and counters differ from line to line.
    words: Vec<u8>,
    ends_in_number: bool,
}

impl<'e> RepeatKey<'e> {
    pub(crate) fn of(source: EvidenceSource, entity: &'e Entity, text: &str) -> Self {
        Self {
            source,
            entity,
            words: without_digits(text),
            ends_in_number: text.bytes().next_back().is_none_or(|last| last.is_ascii_digit()),
        }
    }

    /// Returns the hash that all repeats of a mark share. A hash collision only counts two kinds of lines as one. Of
    /// the numbers in the text, only process id and rank count.
    pub(crate) fn sameness(&self, mark: &Classification) -> u64 {
        let field = |name: &str| mark.fields.get(name);
        let mut hasher = FoldHasher::default();
        (self.source, self.entity).hash(&mut hasher);
        (&mark.class, mark.role, &mark.signature).hash(&mut hasher);
        (field("pid"), field("rank")).hash(&mut hasher);
        // All parts but the last have equal length, and the last is shorter.
        let (parts, rest) = self.words.as_chunks::<PART>();
        parts.iter().for_each(|part| hasher.write(part));
        hasher.write(rest);
        hasher.write_u8(u8::from(self.ends_in_number));
        hasher.finish()
    }
}

/// Returns a text without its digits. Most chunks of eight bytes have none and are copied whole.
fn without_digits(text: &str) -> Vec<u8> {
    let mut kept = vec![0; text.len()];
    let mut length = 0;
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    for word in words {
        if has_digit(*word) {
            length = keep(&mut kept, length, word);
        } else {
            kept[length..length + 8].copy_from_slice(word);
            length += 8;
        }
    }
    length = keep(&mut kept, length, rest);
    kept.truncate(length);
    kept
}

/// Appends the bytes that are not digits, given enough room for all; returns the new length.
fn keep(kept: &mut [u8], mut length: usize, bytes: &[u8]) -> usize {
    for byte in bytes {
        kept[length] = *byte;
        length += usize::from(!byte.is_ascii_digit());
    }
    length
}

/// Returns true if any of eight bytes is a digit: XOR with `0` gives less than ten.
fn has_digit(word: [u8; 8]) -> bool {
    let each = |byte: u8| u64::from_le_bytes([byte; 8]);
    let rest = u64::from_le_bytes(word) ^ each(b'0');
    rest.wrapping_sub(each(10)) & !rest & each(0x80) != 0
}

#[cfg(test)]
mod tests {
    use rankguard_model::{FieldValues, Role};

    use super::*;

    fn same(text: &str) -> u64 {
        let mark = Classification {
            class: "host-oom-kill".into(),
            role: Role::Root,
            confidence: 0.9,
            signature: "oom-killed".into(),
            fields: FieldValues::new(),
        };
        RepeatKey::of(EvidenceSource::KernelLog, &Entity::Unknown, text).sameness(&mark)
    }

    #[test]
    fn a_digit_is_found_wherever_it_stands_and_nothing_else_is_one() {
        for (at, byte) in (0..8).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte))) {
            let mut word = *b"/:aZ \xb0\xff~";
            word[at] = byte;
            assert_eq!(has_digit(word), byte.is_ascii_digit(), "{byte} at {at}");
        }
    }

    #[test]
    fn what_is_kept_is_what_is_no_digit() {
        for length in 0..400 {
            let text: String = ('a'..='z').flat_map(|c| [c, '7', c, c]).cycle().take(length).collect();
            let kept: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_digit()).collect();
            assert_eq!(without_digits(&text), kept);
        }
    }

    #[test]
    fn numbers_of_any_length_make_no_other_line_however_long_it_is() {
        let line = |number: &str| {
            format!(
                "Killed process {number} {} total-vm:{number}kB {}",
                "x".repeat(200),
                "tail".repeat(30)
            )
        };
        assert_eq!(same(&line("7")), same(&line("1234567890")));
        assert_ne!(same(&line("7")), same(&line("7").replace("tail", "tale")));
        assert_ne!(same("abcdefgh"), same("abcdefghi"));
    }
}
