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
