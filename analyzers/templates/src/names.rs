//! Sorted lists of names, bounded by one name for the rest.

use std::collections::BTreeSet;

/// The name that streams or runs beyond their limit share.
pub const OTHERS: &str = "(others)";

/// The names, sorted, each once. Of more than `limit` the last in order become [`OTHERS`]; the same come out however the
/// names are divided and whichever are united first.
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

/// Where each of the names stands in a list that [`union`] made of them.
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
