//! Lists of node names with ranges, as Slurm and pdsh write them: `n1,gpu-[01-32,40]`.

use std::collections::BTreeSet;

/// Largest number of nodes of a list.
pub(crate) const NODES_MAX: usize = 16_384;

/// Returns the names of all lists; the error describes the fault.
pub(crate) fn expand(lists: &[String]) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for list in lists {
        for word in words(list)? {
            expand_word(word, &mut names)?;
        }
    }
    Ok(names)
}

/// Splits a list at the commas outside of brackets.
fn words(list: &str) -> Result<Vec<&str>, String> {
    let mut words = Vec::new();
    let (mut start, mut is_inside) = (0, false);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' if is_inside => return Err(format!("{list:?} has a bracket within brackets")),
            '[' => is_inside = true,
            ']' => is_inside = false,
            ',' if !is_inside => {
                words.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&list[start..]);
    Ok(words)
}

/// Adds the names of a word; its first range is expanded before the others.
fn expand_word(word: &str, names: &mut BTreeSet<String>) -> Result<(), String> {
    let too_many = || format!("{word:?} names more than {NODES_MAX} nodes");
    let Some((before, rest)) = word.split_once('[') else {
        if word.is_empty() || word.contains(']') {
            return Err(format!("{word:?} is no name of a node"));
        }
        names.insert(word.to_owned());
        return if names.len() > NODES_MAX {
            Err(too_many())
        } else {
            Ok(())
        };
    };
    let (ranges, after) = rest
        .split_once(']')
        .ok_or_else(|| format!("{word:?} has no closing bracket"))?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let is_number = (1..=9).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
            let parsed = is_number.then(|| text.parse::<usize>().ok()).flatten();
            parsed.ok_or_else(|| format!("{range:?} in {word:?} is no number or range"))
        };
        let (low, high) = (number(first)?, number(last)?);
        if high < low {
            return Err(format!("{range:?} in {word:?} ends before it begins"));
        }
        if high - low >= NODES_MAX {
            return Err(too_many());
        }
        for number in low..=high {
            let width = first.len();
            expand_word(&format!("{before}{number:0width$}{after}"), names)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        expand(&[list.to_owned()]).expect("a list").into_iter().collect()
    }

    #[test]
    fn ranges_keep_their_width() {
        assert_eq!(
            names("n1,gpu-[08-11,20]"),
            ["gpu-08", "gpu-09", "gpu-10", "gpu-11", "gpu-20", "n1"]
        );
        assert_eq!(names("r[1-2]n[1-2].x"), ["r1n1.x", "r1n2.x", "r2n1.x", "r2n2.x"]);
        assert_eq!(names("a,a"), ["a"]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for wrong in [
            "",
            "a,",
            "a[1",
            "a]1",
            "a[2-1]",
            "a[x]",
            "a[]",
            "a[1-99999]",
            "a[[1]]",
            "a[1-300]b[1-300]",
        ] {
            assert!(expand(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
