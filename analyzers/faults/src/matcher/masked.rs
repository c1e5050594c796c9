//! A text with its digits hidden: what lines have in common that differ only in numbers of the same length.

/// A longer text is hidden outside the stack.
pub(super) const SHORT: usize = 512;

/// What stands in the place of every digit.
pub(super) const DIGIT: u8 = b'0';

/// Calls with the text of which every digit is [`DIGIT`]; all places stay what they are.
pub(super) fn masked<T>(text: &str, with: impl FnOnce(&[u8]) -> T) -> T {
    let mut short = [0; SHORT];
    let Some(room) = short.get_mut(..text.len()) else {
        return with(&text.bytes().map(hide).collect::<Vec<u8>>());
    };
    for (place, byte) in room.iter_mut().zip(text.bytes()) {
        *place = hide(byte);
    }
    with(room)
}

fn hide(byte: u8) -> u8 {
    if byte.is_ascii_digit() { DIGIT } else { byte }
}
