//! Numbers with their nouns in texts for operators.

/// Formats a number with its noun: `1 node`, `3 nodes`.
pub(crate) fn count(number: u32, noun: &str) -> String {
    match (number, noun.strip_suffix('s'), noun.strip_suffix('y')) {
        (1, ..) => format!("{number} {noun}"),
        (_, Some(_), _) => format!("{number} {noun}es"),
        (_, _, Some(stem)) => format!("{number} {stem}ies"),
        _ => format!("{number} {noun}s"),
    }
}

/// Formats a number with its noun and its form of "to be": `1 node is`, `3 nodes are`.
pub(crate) fn count_are(number: u32, noun: &str) -> String {
    let verb = if number == 1 { "is" } else { "are" };
    format!("{} {verb}", count(number, noun))
}

/// Converts a number for [`count`].
pub(crate) fn counted(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(
            [count(1, "node"), count(0, "node"), count(2, "process")],
            ["1 node", "0 nodes", "2 processes"]
        );
        assert_eq!(
            [count_are(1, "entry"), count_are(3, "entry")],
            ["1 entry is", "3 entries are"]
        );
    }
}
