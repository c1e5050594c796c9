//! Conversion of values that are not tensors to JSON.

use rankguard_pickle::{PickledValue, ValueId};
use serde_json::{Map, Value};

use super::walk::TreeWalk;

/// Maximum nesting depth of a value.
const DEPTH: u32 = 64;

/// Converts a value to JSON and returns notes on inexact conversions; the error is the reason why
/// JSON cannot hold it.
pub(crate) fn to_json(walk: &mut TreeWalk<'_>, id: ValueId) -> Result<(Value, Vec<String>), String> {
    let mut notes = Vec::new();
    let value = json(walk, id, DEPTH, &mut notes)?;
    Ok((value, notes))
}

fn json(walk: &mut TreeWalk<'_>, id: ValueId, depth: u32, notes: &mut Vec<String>) -> Result<Value, String> {
    let depth = depth.checked_sub(1).ok_or("lies too deep within itself")?;
    let tree = walk.tree;
    let cost = tree.bytes(id).map_or(1, <[u8]>::len);
    walk.spend(cost).ok_or("is too large for a state")?;
    match tree.node(id) {
        PickledValue::None => Ok(Value::Null),
        PickledValue::Bool(value) => Ok(Value::Bool(*value)),
        PickledValue::Int(value) => Ok((*value).into()),
        PickledValue::Float(value) => {
            let number = serde_json::Number::from_f64(*value);
            number
                .map(Value::Number)
                .ok_or_else(|| format!("is {value}, which JSON cannot say"))
        }
        PickledValue::Text(_) => {
            let text = walk.text(id).ok_or("is text that is no UTF-8")?;
            Ok(Value::String(text.to_owned()))
        }
        PickledValue::List(items) | PickledValue::Tuple(items) => list(walk, items, depth, notes),
        PickledValue::Dict(flat) => dictionary(walk, flat, depth, notes),
        PickledValue::Object { .. } => object(walk, id, depth, notes),
        PickledValue::Huge => Err("is a whole number beyond 64 bits".to_owned()),
        PickledValue::Bytes(_) => Err("is bytes, which JSON cannot hold".to_owned()),
        PickledValue::Set(_) => Err("is a set, which JSON cannot hold".to_owned()),
        PickledValue::Global { .. } => Err(format!("is the name {}", named(walk, id))),
        PickledValue::Persistent(_) => Err("holds a tensor within a value".to_owned()),
    }
}

fn list(walk: &mut TreeWalk<'_>, items: &[ValueId], depth: u32, notes: &mut Vec<String>) -> Result<Value, String> {
    let items = items.iter().map(|item| json(walk, *item, depth, notes));
    Ok(Value::Array(items.collect::<Result<_, _>>()?))
}

fn dictionary(walk: &mut TreeWalk<'_>, flat: &[ValueId], depth: u32, notes: &mut Vec<String>) -> Result<Value, String> {
    let mut map = Map::new();
    for pair in flat.chunks_exact(2) {
        let key = match walk.tree.node(pair[0]) {
            PickledValue::Text(_) => walk.text(pair[0]).ok_or("has a key that is no UTF-8")?.to_owned(),
            PickledValue::Int(number) => {
                let note = "its whole-number keys are text in JSON";
                if !notes.iter().any(|known| known == note) {
                    notes.push(note.to_owned());
                }
                number.to_string()
            }
            _ => return Err("has a key that is neither text nor a whole number".to_owned()),
        };
        let value = json(walk, pair[1], depth, notes)?;
        map.insert(key, value);
    }
    Ok(Value::Object(map))
}

/// Converts the objects that wrap plain values, such as `OrderedDict`.
fn object(walk: &mut TreeWalk<'_>, id: ValueId, depth: u32, notes: &mut Vec<String>) -> Result<Value, String> {
    let tree = walk.tree;
    let Some(made) = walk.object(id) else {
        return Err("is an object of no class that can be named".to_owned());
    };
    let args = tree.items(made.args).unwrap_or(&[]);
    match (made.class, args) {
        (("collections", "OrderedDict"), []) => match tree.node(made.pairs) {
            PickledValue::Dict(flat) => dictionary(walk, flat, depth, notes),
            _ => Ok(Value::Object(Map::new())),
        },
        (("collections", "defaultdict"), _) => match tree.node(made.pairs) {
            PickledValue::Dict(flat) => dictionary(walk, flat, depth, notes),
            _ => Ok(Value::Object(Map::new())),
        },
        (("torch", "Size"), [only]) => json(walk, *only, depth, notes),
        (("torch", "Size"), []) => Ok(Value::Array(Vec::new())),
        (("pathlib", "PosixPath" | "PurePosixPath"), parts) => {
            let parts: Option<Vec<&str>> = parts.iter().map(|part| walk.text(*part)).collect();
            let parts = parts.ok_or("is a path of parts that are no text")?;
            Ok(Value::String(parts.join("/").replacen("//", "/", 1)))
        }
        // Encoding of bytes in protocol 2, which torch.save writes.
        (("_codecs", "encode"), _) => Err("is bytes, which JSON cannot hold".to_owned()),
        ((module, name), _) => Err(format!(
            "is an object of {}, which only the program that made it could make again",
            shown(&format!("{module}.{name}"))
        )),
    }
}

fn named(walk: &TreeWalk<'_>, id: ValueId) -> String {
    let (module, name) = walk.global(id).unwrap_or(("?", "?"));
    shown(&format!("{module}.{name}"))
}

/// Shortens foreign text and replaces control characters, for use in a message.
fn shown(text: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(120).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use rankguard_pickle::{ObjectPolicy, ParseLimits};
    use serde_json::json;

    use super::*;

    fn parse_json(pickle: &[u8]) -> Result<(Value, Vec<String>), String> {
        let read =
            rankguard_pickle::read(pickle, &ParseLimits::default(), ObjectPolicy::Describe).expect("a good pickle");
        let mut walk = TreeWalk::new(&read.tree, 10_000);
        to_json(&mut walk, read.tree.root)
    }

    #[test]
    fn plain_values_are_json() {
        let (value, notes) =
            parse_json(b"}(X\x01\x00\x00\x00a(K\x01N\x88G?\xe0\x00\x00\x00\x00\x00\x00tK\x05]u.").expect("plain");
        assert_eq!(value, json!({"a": [1, null, true, 0.5], "5": []}));
        assert_eq!(notes.len(), 1);
        let (value, notes) = parse_json(b"ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00aK\x01u.").expect("plain");
        assert_eq!((value, notes.len()), (json!({"a": 1}), 0));
        assert_eq!(
            parse_json(b"ctorch\nSize\n(K\x02K\x03tq\x00\x85R.").expect("plain").0,
            json!([2, 3])
        );
    }

    #[test]
    fn what_json_cannot_say_is_told_and_a_circle_ends() {
        for (pickle, word) in [
            (&b"cos\nsystem\n(S'id'\ntR."[..], "os.system"),
            (b"G\x7f\xf8\x00\x00\x00\x00\x00\x00.", "NaN"),
            (b"C\x01\x00.", "bytes"),
            (b"]q\x00h\x00a.", "deep"),
            (b"\x8f.", "set"),
            (b"}(NK\x01u.", "key"),
        ] {
            let error = parse_json(pickle).expect_err("not plain");
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_small_pickle_that_is_a_large_value_has_a_bound() {
        let mut pickle = b"]q\x00".to_vec();
        for level in 0..40u8 {
            pickle.extend([b'0', b']', b'q', level + 1, b'(']);
            pickle.extend([b'h', level].repeat(10));
            pickle.push(b'e');
        }
        pickle.push(b'.');
        assert!(parse_json(&pickle).expect_err("far too large").contains("large"));
    }
}
