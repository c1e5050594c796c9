//! Texts with hidden digits: the common form of lines that differ only in numbers of the same length.

use memchr::memchr_iter;

/// Maximum length of a text that is masked on the stack, bytes.
pub(super) const SHORT: usize = 512;

/// Byte that replaces every digit.
pub(super) const DIGIT: u8 = b'0';

/// Calls `with` with the text in which every digit outside a name is [`DIGIT`]; all positions are unchanged.
pub(super) fn masked<T>(text: &str, with: impl FnOnce(&[u8]) -> T) -> T {
    let mut short = [0; SHORT];
    let Some(room) = short.get_mut(..text.len()) else {
        let mut long = text.as_bytes().to_vec();
        hide(&mut long, text.as_bytes());
        return with(&long);
    };
    hide(room, text.as_bytes());
    with(room)
}

/// Returns the byte, or [`DIGIT`] for a digit.
pub(super) fn hidden(byte: u8) -> u8 {
    if byte.is_ascii_digit() { DIGIT } else { byte }
}

fn hide(room: &mut [u8], text: &[u8]) {
    for (place, byte) in room.iter_mut().zip(text) {
        *place = hidden(*byte);
    }
    // Names are few, so each underscore is checked for the digit of a name before it.
    for end in memchr_iter(b'_', text) {
        if let Some(at) = end.checked_sub(1).filter(|at| is_of_a_name(text, *at)) {
            room[at] = text[at];
        }
    }
}

/// Returns true if the digit at `at` is part of a name as in `mlx5_core`: alone between a letter and an underscore.
/// Such a digit does not vary between lines as numbers do.
pub(super) fn is_of_a_name(text: &[u8], at: usize) -> bool {
    let stands = |at: Option<usize>, is: fn(&u8) -> bool| at.and_then(|at| text.get(at)).is_some_and(is);
    stands(at.checked_sub(1), u8::is_ascii_alphabetic)
        && stands(Some(at), u8::is_ascii_digit)
        && stands(at.checked_add(1), |byte| *byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_hidden_and_digits_of_names_are_not() {
        for (text, hidden) in [
            ("mlx5_core 0000:17:00.1: module 3", "mlx5_core 0000:00:00.0: module 0"),
            ("mlx5_1 x86_64 _7_ 5_ a5", "mlx5_0 x00_00 _0_ 0_ a0"),
            ("Xid 79", "Xid 00"),
        ] {
            masked(text, |masked| assert_eq!(masked, hidden.as_bytes(), "{text}"));
            let long = text.repeat(SHORT);
            masked(&long, |masked| {
                assert_eq!(masked, hidden.repeat(SHORT).as_bytes(), "{text}")
            });
        }
    }
}
