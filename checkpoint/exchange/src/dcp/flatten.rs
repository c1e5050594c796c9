//! Flattening of a nested state to the dictionary that DCP saves.

use std::collections::BTreeSet;

use crate::ExchangeError;
use crate::python_value::PythonValue;

/// Element of the path of an item: a dict key or a list index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathPart {
    Key(String),
    Place(u64),
}

/// Entry of the flat dictionary.
#[derive(Debug)]
pub(super) struct FlatItem<'v> {
    /// Parts of the path, joined by dots.
    pub(super) name: String,
    pub(super) path: Vec<PathPart>,
    pub(super) value: &'v PythonValue,
}

/// Flattens as `torch.distributed.checkpoint` does since 2.4: dicts always, lists only if they contain a tensor or a
/// dict.
pub(super) fn flatten(value: &PythonValue) -> Result<Vec<FlatItem<'_>>, ExchangeError> {
    let mut items = Vec::new();
    match value {
        PythonValue::Dict(_) => visit(value, &mut Vec::new(), &mut items),
        other => visit(other, &mut vec![PathPart::Key("state".to_owned())], &mut items),
    }
    let mut names = BTreeSet::new();
    for item in &items {
        if !names.insert(item.name.as_str()) {
            let what = format!("two entries have the name {:?} in the flat form of DCP", item.name);
            return Err(ExchangeError::Unfit { what });
        }
    }
    Ok(items)
}

fn visit<'v>(value: &'v PythonValue, path: &mut Vec<PathPart>, items: &mut Vec<FlatItem<'v>>) {
    match value {
        PythonValue::Dict(pairs) => {
            for (key, item) in pairs {
                path.push(PathPart::Key(key.key_text()));
                visit(item, path, items);
                path.pop();
            }
        }
        PythonValue::List(entries) if !is_terminal(value) => {
            for (place, item) in entries.iter().enumerate() {
                path.push(PathPart::Place(place as u64));
                visit(item, path, items);
                path.pop();
            }
        }
        value => items.push(FlatItem {
            name: name(path),
            path: path.clone(),
            value,
        }),
    }
}

fn is_terminal(value: &PythonValue) -> bool {
    match value {
        PythonValue::Dict(_) => false,
        PythonValue::List(items) => items.iter().all(|item| match item {
            PythonValue::Dict(_) | PythonValue::List(_) => is_terminal(item),
            PythonValue::Tensor(_) => false,
            _ => true,
        }),
        _ => true,
    }
}

fn name(path: &[PathPart]) -> String {
    let part = |part: &PathPart| match part {
        PathPart::Key(key) => key.clone(),
        PathPart::Place(place) => place.to_string(),
    };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::python_value::from_json;

    #[test]
    fn dicts_are_flattened_and_plain_lists_are_not() {
        let state = from_json(&json!({"a": {"b": [1, 2], "c": {}}, "d": [{"e": 1}], "f": null}));
        let names: Vec<String> = flatten(&state)
            .expect("flat")
            .into_iter()
            .map(|item| item.name)
            .collect();
        assert_eq!(names, ["a.b", "d.0.e", "f"]);
    }

    #[test]
    fn two_entries_of_one_name_are_refused() {
        let state = from_json(&json!({"a": {"b": 1}, "a.b": 2}));
        assert!(flatten(&state).is_err());
    }
}
