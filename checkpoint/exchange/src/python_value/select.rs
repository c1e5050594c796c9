//! Selection of a part of a state by the prefix of dotted names.

use super::PythonValue;
use crate::NameSelection;

/// Returns the selected part of `value`; `None` if no name matches.
pub(crate) fn select(value: PythonValue, selection: &NameSelection) -> Option<PythonValue> {
    if selection.is_all() {
        return Some(value);
    }
    let mut pairs = Vec::new();
    collect(value, selection.prefix(), selection.is_stripped(), &mut pairs);
    if pairs.is_empty() {
        return None;
    }
    Some(PythonValue::Dict(pairs))
}

/// Adds to `found` the entries of the dict `value` with names that start with `prefix`.
fn collect(value: PythonValue, prefix: &str, is_stripped: bool, found: &mut Vec<(PythonValue, PythonValue)>) {
    let PythonValue::Dict(pairs) = value else { return };
    for (key, item) in pairs {
        let text = key.key_text();
        if let Some(rest) = text.strip_prefix(prefix) {
            keep(key, item, rest, is_stripped, found);
        } else if let Some(rest) = prefix.strip_prefix(&text).and_then(|rest| rest.strip_prefix('.')) {
            if is_stripped {
                collect_or_splice(item, rest, found);
            } else {
                let mut inner = Vec::new();
                collect_inner(item, rest, &mut inner);
                if !inner.is_empty() {
                    found.push((key, PythonValue::Dict(inner)));
                }
            }
        }
    }
}

/// Adds an entry with a key that starts with the rest of the prefix.
fn keep(
    key: PythonValue,
    item: PythonValue,
    rest: &str,
    is_stripped: bool,
    found: &mut Vec<(PythonValue, PythonValue)>,
) {
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    match item {
        PythonValue::Dict(inner) if is_stripped && rest.is_empty() => found.extend(inner),
        item if is_stripped && !rest.is_empty() => found.push((PythonValue::text(rest), item)),
        item => found.push((key, item)),
    }
}

fn collect_or_splice(item: PythonValue, rest: &str, found: &mut Vec<(PythonValue, PythonValue)>) {
    match item {
        PythonValue::Dict(inner) if rest.is_empty() => found.extend(inner),
        item => collect(item, rest, true, found),
    }
}

fn collect_inner(item: PythonValue, rest: &str, found: &mut Vec<(PythonValue, PythonValue)>) {
    match item {
        PythonValue::Dict(inner) if rest.is_empty() => found.extend(inner),
        item => collect(item, rest, false, found),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::from_json;
    use super::*;

    fn check(prefix: &str, is_stripped: bool, expect: Option<Value>) {
        let state = json!({"model": {"module.w": 1, "module.b": 2, "other": 3}, "step": 4, "optimizer": {"lr": 5}});
        let found = select(from_json(&state), &NameSelection::new(prefix, is_stripped));
        assert_eq!(found, expect.as_ref().map(from_json), "{prefix}");
    }

    #[test]
    fn a_prefix_reaches_into_dicts_and_keys() {
        check(
            "model.",
            false,
            Some(json!({"model": {"module.w": 1, "module.b": 2, "other": 3}})),
        );
        check("model.", true, Some(json!({"module.w": 1, "module.b": 2, "other": 3})));
        check("model", true, Some(json!({"module.w": 1, "module.b": 2, "other": 3})));
        check("model.module.", true, Some(json!({"w": 1, "b": 2})));
        check(
            "model.module.",
            false,
            Some(json!({"model": {"module.w": 1, "module.b": 2}})),
        );
        check("step", true, Some(json!({"step": 4})));
        check("weights.", false, None);
        check("model.nothing.", true, None);
    }
}
