//! Sameness: whether two signs say the same of the same thing, as a number that is equal when they do.

use std::hash::{Hash, Hasher};

use rankguard_model::{Entity, Mark, Source};

/// What is the same in all repeats of a mark, as a number.
///
/// Numbers in the text are left out (sizes and counters differ from line to line), except those by which a line names a
/// process or a rank.
pub(crate) fn sameness(source: Source, entity: &Entity, mark: &Mark, text: &str) -> u64 {
    let field = |name: &str| mark.fields.get(name).map(String::as_str);
    let mut hasher = Fold::default();
    (source, entity).hash(&mut hasher);
    (&mark.class, mark.role, &mark.signature).hash(&mut hasher);
    (field("pid"), field("rank")).hash(&mut hasher);
    without_digits(text, |part| hasher.write(part));
    let ends_in_number = text.bytes().next_back().is_none_or(|last| last.is_ascii_digit());
    hasher.write_u8(u8::from(ends_in_number));
    hasher.finish()
}

/// Folds what it is given into one number, word by word: the same in every run, and cheaper than what keeps out people who
/// look for collisions. Whoever found one would only have two kinds of lines counted as one.
#[derive(Debug, Default)]
struct Fold(u64);

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
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (bytes.len() as u64).rotate_left(56));
    }

    fn write_u8(&mut self, byte: u8) {
        self.word(u64::from(byte) + 1);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A text without its digits, part by part: all parts but the last are equally long, wherever the digits stood.
fn without_digits(text: &str, mut each: impl FnMut(&[u8])) {
    let mut kept = [0; 128];
    let mut length = 0;
    for byte in text.bytes() {
        kept[length] = byte;
        length += usize::from(!byte.is_ascii_digit());
        if length == kept.len() {
            each(&kept);
            length = 0;
        }
    }
    each(&kept[..length]);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rankguard_model::Role;

    use super::*;

    fn same(text: &str) -> u64 {
        let mark = Mark {
            class: "host-oom-kill".into(),
            role: Role::Root,
            confidence: 0.9,
            signature: "oom-killed".to_owned(),
            fields: BTreeMap::new(),
        };
        sameness(Source::KernelLog, &Entity::Unknown, &mark, text)
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
