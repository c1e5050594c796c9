//! Numbers as decimal text.

/// Parses the leading decimal number of a value, as C's `strtoll`: white space, a sign, digits, then anything. `None`
/// without digits or outside of `i64`.
pub(super) fn parse(value: &[u8]) -> Option<i64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = value.iter().position(|byte| !is_space(byte))?;
    let text = &value[start..];
    let signed = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = text[signed..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..signed + digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn numbers_are_read_as_strtoll_reads_them() {
        let cases: [(&[u8], Option<i64>); 12] = [
            (b"0", Some(0)),
            (b"-12", Some(-12)),
            (b"+7", Some(7)),
            (b" \t\n\x0b\x0c\r5", Some(5)),
            (b"12abc", Some(12)),
            (b"3\x004", Some(3)),
            (b"9223372036854775807", Some(i64::MAX)),
            (b"9223372036854775808", None),
            (b"", None),
            (b"-", None),
            (b"--1", None),
            (b"abc", None),
        ];
        for (value, number) in cases {
            assert_eq!(parse(value), number, "{value:?}");
        }
    }
}
