//! Merge of the states of several ranks into one value.

use super::PythonValue;
use crate::problem::ProblemList;

/// Merges `other` into `first`: dictionaries by key, lists and tuples of equal length item by item, `PerRank` values by
/// rank. Where other values differ, that of `first` is retained and a problem with its path is added. `path` is the
/// dotted path of both values; empty for the whole state.
pub(crate) fn merge(first: &mut PythonValue, other: PythonValue, path: &str, problems: &mut ProblemList) {
    match (first, other) {
        (PythonValue::Dict(pairs), PythonValue::Dict(others)) => {
            for (at, (key, item)) in others.into_iter().enumerate() {
                // Ranks mostly have the same keys in the same order, so that the linear search below is rare.
                let is_at = |pair: &(PythonValue, PythonValue)| pair.0 == key;
                let at = if pairs.get(at).is_some_and(is_at) {
                    Some(at)
                } else {
                    pairs.iter().position(is_at)
                };
                match at {
                    Some(at) => merge(&mut pairs[at].1, item, &below(path, &key.key_text()), problems),
                    None => pairs.push((key, item)),
                }
            }
        }
        (PythonValue::List(items), PythonValue::List(others))
        | (PythonValue::Tuple(items), PythonValue::Tuple(others))
            if items.len() == others.len() =>
        {
            for (at, (item, other)) in items.iter_mut().zip(others).enumerate() {
                merge(item, other, &below(path, &at.to_string()), problems);
            }
        }
        (PythonValue::PerRank(ranks), PythonValue::PerRank(others)) => ranks.extend(others),
        (first, other) => {
            if !is_same(first, &other) {
                let what = "differs between ranks; the value of the lowest rank is exported (PerRank exports all)";
                problems.add(if path.is_empty() { "state" } else { path }, what);
            }
        }
    }
}

/// Returns the path of an entry of the container at `path`.
fn below(path: &str, part: &str) -> String {
    if path.is_empty() {
        part.to_owned()
    } else {
        format!("{path}.{part}")
    }
}

/// Returns true for equal values. Floats are compared by their bits, so that NaN equals itself.
fn is_same(one: &PythonValue, other: &PythonValue) -> bool {
    match (one, other) {
        (PythonValue::Float(one), PythonValue::Float(other)) => one.to_bits() == other.to_bits(),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::from_json;
    use super::*;

    #[test]
    fn keys_are_united_and_differences_reported() {
        let mut first = from_json(&json!({"a": 1, "n": {"x": [1, 2]}}));
        let mut problems = ProblemList::default();
        merge(
            &mut first,
            from_json(&json!({"b": 2, "n": {"x": [1, 3], "y": 4}})),
            "",
            &mut problems,
        );
        assert_eq!(first, from_json_in_order());
        let paths: Vec<String> = problems.into_vec().into_iter().map(|problem| problem.entry).collect();
        assert_eq!(paths, ["n.x.1"]);
    }

    fn from_json_in_order() -> PythonValue {
        let PythonValue::Dict(mut pairs) = from_json(&json!({"a": 1, "n": {"x": [1, 2], "y": 4}})) else {
            unreachable!("an object is a dict");
        };
        pairs.push((PythonValue::text("b"), PythonValue::Int(2)));
        PythonValue::Dict(pairs)
    }
}
