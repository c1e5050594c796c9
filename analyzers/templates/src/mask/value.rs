//! Byte kinds and recognition of values by form.

pub(super) const SPACE: u8 = 1;
pub(super) const BREAK: u8 = 2;
pub(super) const QUOTE: u8 = 4;
pub(super) const RARE: u8 = 8;
pub(super) const DIGIT: u8 = 16;
pub(super) const SLASH: u8 = 32;
pub(super) const JOINT: u8 = 64;
pub(super) const NOT_HEX: u8 = 128;
/// Kinds that end a compound.
pub(super) const END: u8 = SPACE | BREAK;

pub(super) const KINDS: [u8; 256] = kinds();

const fn kinds() -> [u8; 256] {
    let mut kinds = [NOT_HEX; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        kinds[byte] = match b {
            0x1b => SPACE | RARE,
            // Box drawing and block elements start with 0xe2; the following byte decides.
            0xe2 => BREAK | RARE,
            0..=b' ' => SPACE,
            b'0'..=b'9' => DIGIT,
            b'a'..=b'f' | b'A'..=b'F' => 0,
            b'/' => SLASH | JOINT,
            b'.' | b':' | b'-' | b',' | b'@' | b'+' | b'%' | b'~' | b'#' | b'*' | b'$' | b'\\' => JOINT,
            b'"' | b'\'' => BREAK | QUOTE,
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'=' | b';' | b'|' | b'<' | b'>' | b'!' | b'?' | b'&' | b'`'
            | b'^' => BREAK,
            _ => NOT_HEX,
        };
        byte += 1;
    }
    kinds
}

/// Returns the length of the leading token if it contains no byte that can form a value; eight bytes are tested at a
/// time.
#[inline]
pub(super) fn plain(text: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    // Sets the high bit of each byte (ignoring its own) that is at least `least`.
    let from = |bytes: u64, least: u64| (bytes & !HIGH) + (0x80 - least) * LOW;
    let mut length = 0;
    while length <= super::WORD_LIMIT {
        let rest = &text[length..];
        let bytes = u64::from_le_bytes(rest.first_chunk().copied().unwrap_or_else(|| {
            let mut padded = [b' '; 8];
            padded[..rest.len()].copy_from_slice(rest);
            padded
        }));
        let spaces = !(from(bytes, 0x21) | bytes) & HIGH;
        // Quotes and the bytes between them, `/` and digits, bytes that are not ASCII.
        let valued = (from(bytes, 0x22) & !from(bytes, 0x28)) | (from(bytes, 0x2f) & !from(bytes, 0x3a)) | bytes;
        let valued = valued & HIGH;
        if spaces == 0 {
            if valued != 0 {
                return None;
            }
            length += 8;
            continue;
        }
        let end = spaces.trailing_zeros() & !7;
        if valued & ((1 << end) - 1) != 0 {
            return None;
        }
        length += end as usize / 8;
        let odd = match length {
            0..=2 => false,
            3 => is_calendar(&text[..3]) || text[0] == b'<',
            4 if text[0] == b'[' => is_calendar(&text[1..4]),
            _ => text[0] == text[1] && !text[0].is_ascii_alphanumeric(),
        };
        return (!odd && length <= super::WORD_LIMIT).then_some(length);
    }
    None
}

/// Returns the length of the leading token if it is only a number, a time or a numeric address.
#[inline]
pub(super) fn number(text: &[u8]) -> Option<usize> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    // `+ , - . /`, digits and `:` are contiguous in ASCII.
    let length = text.iter().take_while(|b| matches!(b, b'+'..=b':')).count();
    let ends = text.get(length).is_none_or(|b| KINDS[usize::from(*b)] & SPACE != 0);
    (ends && text[length - 1].is_ascii_digit()).then_some(length)
}

/// Returns the length of the leading escape sequence.
pub(super) fn escape(text: &[u8]) -> usize {
    if text.get(1) != Some(&b'[') {
        return 1;
    }
    let parameters = text[2..]
        .iter()
        .take(32)
        .take_while(|b| matches!(b, 0x20..=0x3f))
        .count();
    let last = text.get(2 + parameters).is_some_and(|b| matches!(b, 0x40..=0x7e));
    2 + parameters + usize::from(last)
}

/// Returns the length of the leading query.
pub(super) fn query(text: &[u8]) -> usize {
    let inner = |b: &u8| KINDS[usize::from(*b)] & END == 0 || matches!(b, b'?' | b'=' | b'&' | b';');
    text.iter().take_while(|b| inner(b)).count()
}

pub(super) fn is_path(text: &[u8]) -> bool {
    let slashes = text.iter().filter(|b| **b == b'/').count();
    slashes >= 2 || (text[0] == b'/' && text.len() > 1)
}

/// Returns true if `text`, which contains a digit, consists of hex words only: numbers, times, addresses, UUIDs.
pub(super) fn is_address(text: &[u8]) -> bool {
    let mut words = 0;
    let mut with_digit = 0;
    let mut inside = false;
    let mut digit = false;
    for byte in text {
        let kind = KINDS[usize::from(*byte)];
        if kind & JOINT != 0 {
            (inside, digit) = (false, false);
            continue;
        }
        words += usize::from(!inside);
        inside = true;
        with_digit += usize::from(kind & DIGIT != 0 && !digit);
        digit |= kind & DIGIT != 0;
    }
    with_digit == words || words >= 3
}

/// Returns the length of the leading host name: three labels or more, a digit in the first, a letter in the last.
pub(super) fn host(text: &[u8]) -> Option<usize> {
    let label = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let first = text.iter().take_while(|b| label(b)).count();
    if text.get(first) != Some(&b'.') || !text[..first].iter().any(u8::is_ascii_digit) {
        return None;
    }
    let length = text.iter().take_while(|b| label(b) || **b == b'.').count();
    let name = &text[..length];
    let dots = name.iter().filter(|b| **b == b'.').count();
    let last = name.rsplit(|b| *b == b'.').next()?;
    (dots >= 2 && last.first().is_some_and(u8::is_ascii_alphabetic)).then_some(length)
}

/// Returns true for units of sizes and durations.
pub(super) fn is_unit(text: &[u8]) -> bool {
    matches!(
        text,
        b"B" | b"KB"
            | b"MB"
            | b"GB"
            | b"TB"
            | b"kB"
            | b"KiB"
            | b"MiB"
            | b"GiB"
            | b"TiB"
            | b"s"
            | b"ms"
            | b"us"
            | b"ns"
            | b"sec"
            | b"min"
    )
}

/// Returns true for abbreviated names of days and months.
pub(super) fn is_calendar(text: &[u8]) -> bool {
    matches!(
        text,
        b"Jan"
            | b"Feb"
            | b"Mar"
            | b"Apr"
            | b"May"
            | b"Jun"
            | b"Jul"
            | b"Aug"
            | b"Sep"
            | b"Oct"
            | b"Nov"
            | b"Dec"
            | b"Mon"
            | b"Tue"
            | b"Wed"
            | b"Thu"
            | b"Fri"
            | b"Sat"
            | b"Sun"
    )
}
