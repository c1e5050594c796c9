//! Check of JSON values against the schemas of the OpenAPI document: the part of JSON Schema that it uses.

use serde_json::Value;

/// Returns every difference between a value and a schema.
pub(crate) fn differences(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(document, schema, value, "$", &mut found);
    found
}

fn check(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#'));
        let target = target.unwrap_or_else(|| panic!("no schema {reference}"));
        return check(document, target, value, at, found);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        check(document, part, value, at, found);
    }
    if let Some(parts) = schema["oneOf"].as_array() {
        let fits = parts
            .iter()
            .filter(|part| differences(document, part, value).is_empty());
        if fits.count() != 1 {
            found.push(format!("{at}: {value} is not exactly one of {parts:?}"));
        }
    }
    check_type(&schema["type"], value, at, found);
    if schema["format"] == "date-time"
        && let Some(text) = value.as_str()
        && text.parse::<jiff::Timestamp>().is_err()
    {
        found.push(format!("{at}: {text} is no time"));
    }
    if let Some(least) = schema["minimum"].as_f64()
        && value.as_f64().is_some_and(|number| number < least)
    {
        found.push(format!("{at}: {value} is below {least}"));
    }
    if let Some(items) = value.as_array().filter(|_| schema["items"].is_object()) {
        for (number, item) in items.iter().enumerate() {
            check(document, &schema["items"], item, &format!("{at}[{number}]"), found);
        }
    }
    let Some(fields) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().expect("a name");
        if !fields.contains_key(name) {
            found.push(format!("{at}: {name} is missing"));
        }
    }
    for (name, field) in fields {
        let schema = match schema["properties"].get(name) {
            Some(schema) => schema,
            None if schema["additionalProperties"].is_object() => &schema["additionalProperties"],
            None => continue,
        };
        check(document, schema, field, &format!("{at}.{name}"), found);
    }
}

fn check_type(wanted: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let wanted: Vec<&str> = match wanted {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    let is = |kind: &&str| match *kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    };
    if !wanted.iter().any(is) {
        found.push(format!("{at}: {value} is not {wanted:?}"));
    }
}

/// Returns the names of all fields of a schema, those of its parts included.
pub(crate) fn field_names<'d>(document: &'d Value, schema: &'d Value) -> Vec<&'d str> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#')).expect("a schema");
        return field_names(document, target);
    }
    let parts = schema["allOf"].as_array().into_iter().flatten();
    let mut names: Vec<&str> = parts.flat_map(|part| field_names(document, part)).collect();
    names.extend(
        schema["properties"]
            .as_object()
            .into_iter()
            .flat_map(|fields| fields.keys())
            .map(String::as_str),
    );
    names
}

#[test]
fn differences_are_found() {
    let document = serde_json::json!({"components": {"schemas": {
        "Time": {"type": "string", "format": "date-time"},
        "Thing": {"type": "object", "required": ["id", "at"], "properties": {
            "id": {"type": "integer", "minimum": 0}, "at": {"$ref": "#/components/schemas/Time"},
            "end": {"oneOf": [{"type": "null"}, {"$ref": "#/components/schemas/Time"}]},
        }},
    }}});
    let schema = serde_json::json!({"type": "array", "items": {"$ref": "#/components/schemas/Thing"}});
    let count = |value: Value| differences(&document, &schema, &value).len();
    assert_eq!(
        count(serde_json::json!([{"id": 1, "at": "2026-11-24T10:00:00.000Z", "end": null}])),
        0
    );
    assert_eq!(count(serde_json::json!([{"id": -1, "at": "now", "end": 5}])), 3);
    assert_eq!(count(serde_json::json!([{}, 7])), 3);
}
