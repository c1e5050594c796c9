//! Sorted lists of names, limited by a common name for the rest.

use std::collections::BTreeSet;

/// Common name of streams or runs beyond their limit.
pub const OTHERS: &str = "(others)";

/// Returns the names, sorted and unique. Beyond `limit` the last in order become [`OTHERS`]; the result is independent
/// of the division of the names and the order of unions.
pub(crate) fn union<'a>(names: impl Iterator<Item = &'a str>, limit: usize) -> Vec<String> {
    let mut all: BTreeSet<&str> = names.collect();
    let mut others = all.remove(OTHERS);
    while all.len() > limit {
        all.pop_last();
        others = true;
    }
    if others {
        all.insert(OTHERS);
    }
    all.into_iter().map(str::to_owned).collect()
}

/// Returns the index of each name in a list that [`union`] built from them.
pub(crate) fn numbers<'a>(names: impl Iterator<Item = &'a str>, list: &[String]) -> Vec<u32> {
    let place = |name: &str| list.binary_search_by(|known| known.as_str().cmp(name));
    names
        .map(|name| place(name).or_else(|_| place(OTHERS)).unwrap_or_default() as u32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{numbers, union};

    #[test]
    fn names_beyond_the_limit_share_one() {
        let list = union(["c", "a", "d", "b", "a"].into_iter(), 2);
        assert_eq!(list, ["(others)", "a", "b"]);
        assert_eq!(numbers(["b", "d", "a", "(others)"].into_iter(), &list), [2, 0, 1, 0]);
        assert_eq!(
            union(list.iter().map(String::as_str).chain(["aa"]), 2),
            ["(others)", "a", "aa"]
        );
    }
}
