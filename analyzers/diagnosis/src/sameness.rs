//! Sameness: whether two signs say the same of the same thing, as a number that is equal when they do.

use std::hash::{Hash, Hasher};

use rankguard_model::{Entity, Fold, Mark, Source};

/// What is the same in all repeats of a mark, as a number. Whoever found two kinds of lines that fold alike would only have
/// them counted as one.
///
/// Numbers in the text are left out (sizes and counters differ from line to line), except those by which a line names a
/// process or a rank.
pub(crate) fn sameness(source: Source, entity: &Entity, mark: &Mark, text: &str) -> u64 {
    let field = |name: &str| mark.fields.get(name);
    let mut hasher = Fold::default();
    (source, entity).hash(&mut hasher);
    (&mark.class, mark.role, &mark.signature).hash(&mut hasher);
    (field("pid"), field("rank")).hash(&mut hasher);
    without_digits(text, |part| hasher.write(part));
    let ends_in_number = text.bytes().next_back().is_none_or(|last| last.is_ascii_digit());
    hasher.write_u8(u8::from(ends_in_number));
    hasher.finish()
}

/// Bytes of a part.
const PART: usize = 128;

/// A text without its digits, part by part: all parts but the last are equally long, wherever the digits stood. Most words of a
/// text have none and are taken whole.
fn without_digits(text: &str, mut each: impl FnMut(&[u8])) {
    let mut kept = [0; PART + 8];
    let mut length = 0;
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    for word in words {
        if has_digit(*word) {
            length = keep(&mut kept, length, word);
        } else {
            kept[length..length + 8].copy_from_slice(word);
            length += 8;
        }
        length = give_whole(&mut kept, length, &mut each);
    }
    length = keep(&mut kept, length, rest);
    length = give_whole(&mut kept, length, &mut each);
    each(&kept[..length]);
}

/// Gives a part where one is whole; says how many bytes are left.
fn give_whole(kept: &mut [u8; PART + 8], length: usize, each: &mut impl FnMut(&[u8])) -> usize {
    if length < PART {
        return length;
    }
    each(&kept[..PART]);
    kept.copy_within(PART.., 0);
    length - PART
}

/// Puts bytes that are no digits behind those that are kept; says how many there are then.
fn keep(kept: &mut [u8; PART + 8], mut length: usize, bytes: &[u8]) -> usize {
    for byte in bytes {
        kept[length] = *byte;
        length += usize::from(!byte.is_ascii_digit());
    }
    length
}

/// Whether any of eight bytes is a digit: what the digits have in common taken away, it is less than ten.
fn has_digit(word: [u8; 8]) -> bool {
    let each = |byte: u8| u64::from_le_bytes([byte; 8]);
    let rest = u64::from_le_bytes(word) ^ each(b'0');
    rest.wrapping_sub(each(10)) & !rest & each(0x80) != 0
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Fields, Role};

    use super::*;

    fn same(text: &str) -> u64 {
        let mark = Mark {
            class: "host-oom-kill".into(),
            role: Role::Root,
            confidence: 0.9,
            signature: "oom-killed".into(),
            fields: Fields::new(),
        };
        sameness(Source::KernelLog, &Entity::Unknown, &mark, text)
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
    fn what_is_kept_is_cut_into_equal_parts() {
        for length in 0..400 {
            let text: String = ('a'..='z').flat_map(|c| [c, '7', c, c]).cycle().take(length).collect();
            let mut parts: Vec<Vec<u8>> = Vec::new();
            without_digits(&text, |part| parts.push(part.to_vec()));
            let kept: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_digit()).collect();
            assert_eq!(parts.concat(), kept);
            let (last, whole) = parts.split_last().expect("a last part, however short");
            assert!(last.len() < PART && whole.iter().all(|part| part.len() == PART));
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
