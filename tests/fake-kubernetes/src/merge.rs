//! Patches.

use serde_json::{Map, Value, json};

/// Applies a JSON merge patch (RFC 7396).
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let object = target.as_object_mut().expect("made an object");
    for (name, value) in fields {
        if value.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Records who owns `spec.unschedulable` after a change by `manager`.
pub(crate) fn record_owner(node: &mut Value, before: &Value, manager: &str, time: &str) {
    let (old, new) = (&before["spec"]["unschedulable"], &node["spec"]["unschedulable"]);
    if old == new {
        return;
    }
    let is_set = new.as_bool() == Some(true);
    let metadata = node["metadata"].as_object_mut().expect("metadata");
    let owners = metadata.entry("managedFields").or_insert_with(|| json!([]));
    let owners = owners.as_array_mut().expect("a list");
    owners.retain(|owner| owner["fieldsV1"]["f:spec"]["f:unschedulable"].is_null());
    if is_set {
        owners.push(json!({
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": { "f:spec": { "f:unschedulable": {} } },
        }));
    }
}

/// Applies the conditions of a server-side apply document to a node: each is replaced by its type, others stay.
/// Returns the type of a condition that another manager owns.
pub(crate) fn apply_conditions(
    node: &mut Value,
    document: &Value,
    manager: &str,
    is_forced: bool,
) -> Result<(), String> {
    let wanted = document["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let owners = node["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let status = node
        .as_object_mut()
        .expect("a node")
        .entry("status")
        .or_insert_with(|| json!({}));
    let found = status
        .as_object_mut()
        .expect("a status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    let found = found.as_array_mut().expect("a list");
    for condition in wanted {
        let kind = condition["type"].as_str().unwrap_or_default().to_owned();
        let key = format!("k:{{\"type\":\"{kind}\"}}");
        let is_of_other = |owner: &Value| {
            owner["manager"] != manager && !owner["fieldsV1"]["f:status"]["f:conditions"][&key].is_null()
        };
        if owners.iter().any(is_of_other) && !is_forced {
            return Err(kind);
        }
        match found.iter_mut().find(|known| known["type"] == kind.as_str()) {
            Some(known) => *known = condition,
            None => found.push(condition),
        }
    }
    Ok(())
}
