//! Decoder of the Python package's JSON encoding (`rankguard.python/1`).

use std::collections::BTreeMap;

use rankguard_checkpoint::format::Dtype;
use serde_json::{Map, Value};

use super::{InlineTensor, PythonValue};

/// Digits of the longest decimal integer that a pickle of protocol 2 for `weights_only` can hold (255 bytes).
const MAX_DIGITS: usize = 610;

/// Largest nesting depth of a decoded state.
const MAX_DEPTH: usize = 200;

/// Path and cause of a state that cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}")]
pub(crate) struct DecodeError {
    path: String,
    cause: String,
}

/// Decodes the state of `rank`.
pub(crate) fn decode(value: &Value, rank: u32) -> Result<PythonValue, DecodeError> {
    let decoder = ValueDecoder { rank, tensors: None };
    decoder.value(value, "state", 0)
}

/// Converts JSON without the encoding: objects become dicts, arrays become lists.
pub(crate) fn from_json(value: &Value) -> PythonValue {
    match value {
        Value::Null => PythonValue::None,
        Value::Bool(flag) => PythonValue::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => PythonValue::Int(int),
            (None, Some(large)) => PythonValue::BigInt(large.to_le_bytes().into_iter().chain([0]).collect()),
            (None, None) => PythonValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => PythonValue::text(text),
        Value::Array(items) => PythonValue::List(items.iter().map(from_json).collect()),
        Value::Object(map) => {
            let pair = |(key, item): (&String, &Value)| (PythonValue::text(key), from_json(item));
            PythonValue::Dict(map.iter().map(pair).collect())
        }
    }
}

struct ValueDecoder<'a> {
    rank: u32,
    /// Tensors of the enclosing `per-rank` value.
    tensors: Option<&'a Map<String, Value>>,
}

impl ValueDecoder<'_> {
    fn value(&self, value: &Value, path: &str, depth: usize) -> Result<PythonValue, DecodeError> {
        if depth > MAX_DEPTH {
            return Err(error(path, "nested too deeply"));
        }
        match value {
            Value::Array(items) => Ok(PythonValue::List(self.items(items, path, depth)?)),
            Value::Object(map) if map.contains_key("$") => self.tagged(map, path, depth),
            Value::Object(map) => {
                let pair = |(key, item): (&String, &Value)| {
                    let item = self.value(item, &format!("{path}.{key}"), depth + 1)?;
                    Ok((PythonValue::text(key), item))
                };
                Ok(PythonValue::Dict(map.iter().map(pair).collect::<Result<_, _>>()?))
            }
            plain => Ok(from_json(plain)),
        }
    }

    fn items(&self, items: &[Value], path: &str, depth: usize) -> Result<Vec<PythonValue>, DecodeError> {
        let item = |(at, item): (usize, &Value)| self.value(item, &format!("{path}.{at}"), depth + 1);
        items.iter().enumerate().map(item).collect()
    }

    fn tagged(&self, map: &Map<String, Value>, path: &str, depth: usize) -> Result<PythonValue, DecodeError> {
        let kind = map.get("$").and_then(Value::as_str).unwrap_or("");
        let inner = map.get("v").unwrap_or(&Value::Null);
        match (kind, inner) {
            ("float", Value::String(text)) => {
                let number = text.parse().map_err(|_| error(path, "a float that is no number"))?;
                Ok(PythonValue::Float(number))
            }
            ("int", Value::String(text)) => {
                Ok(PythonValue::BigInt(big_int(text).ok_or_else(|| {
                    error(path, "an integer of more than 610 digits or no integer")
                })?))
            }
            ("bytes", Value::String(text)) => Ok(PythonValue::Bytes(base64(text).ok_or_else(|| not_base64(path))?)),
            ("tensor", Value::String(name)) => match self.tensors {
                None => Ok(PythonValue::Tensor(name.clone())),
                Some(tensors) => inline(tensors.get(name), path),
            },
            ("tuple", Value::Array(items)) => Ok(PythonValue::Tuple(self.items(items, path, depth)?)),
            ("dict", Value::Array(pairs)) => self.pairs(pairs, path, depth),
            ("stateful", inner) => self.value(inner, path, depth + 1),
            ("per-rank", Value::Object(inner)) => self.per_rank(inner, path, depth),
            ("scalar", Value::String(text)) => {
                let dtype = map.get("d").and_then(Value::as_str).unwrap_or("");
                let bytes = base64(text).ok_or_else(|| not_base64(path))?;
                scalar(dtype, &bytes).ok_or_else(|| error(path, &format!("a numpy scalar of type {dtype:?}")))
            }
            _ => Err(error(path, &format!("a value of kind {kind:?}"))),
        }
    }

    fn pairs(&self, pairs: &[Value], path: &str, depth: usize) -> Result<PythonValue, DecodeError> {
        let pair = |pair: &Value| {
            let Some([key, item]) = pair.as_array().map(Vec::as_slice) else {
                return Err(error(path, "an entry that is no pair"));
            };
            let key = self.value(key, path, depth + 1)?;
            let item = self.value(item, &format!("{path}.{}", key.key_text()), depth + 1)?;
            Ok((key, item))
        };
        Ok(PythonValue::Dict(pairs.iter().map(pair).collect::<Result<_, _>>()?))
    }

    fn per_rank(&self, inner: &Map<String, Value>, path: &str, depth: usize) -> Result<PythonValue, DecodeError> {
        let empty = Map::new();
        let decoder = ValueDecoder {
            rank: self.rank,
            tensors: Some(inner.get("tensors").and_then(Value::as_object).unwrap_or(&empty)),
        };
        let value = decoder.value(inner.get("state").unwrap_or(&Value::Null), path, depth + 1)?;
        Ok(PythonValue::PerRank(BTreeMap::from([(self.rank, value)])))
    }
}

fn error(path: &str, cause: &str) -> DecodeError {
    DecodeError {
        path: path.to_owned(),
        cause: format!("{cause} cannot be exported"),
    }
}

fn not_base64(path: &str) -> DecodeError {
    error(path, "text that is no base64")
}

/// Decodes the `[dtype, shape, base64, kind]` entry of a tensor in a `per-rank` value.
fn inline(entry: Option<&Value>, path: &str) -> Result<PythonValue, DecodeError> {
    let read = || {
        let entry = entry?.as_array()?;
        let dtype: Dtype = entry.first()?.as_str()?.parse().ok()?;
        let shape: Vec<u64> = serde_json::from_value(entry.get(1)?.clone()).ok()?;
        let bytes = base64(entry.get(2)?.as_str()?)?;
        let elements = shape
            .iter()
            .try_fold(1u64, |product, extent| product.checked_mul(*extent))?;
        let is_whole = elements.checked_mul(dtype.bytes())? == bytes.len() as u64;
        is_whole.then_some(PythonValue::Inline(InlineTensor { dtype, shape, bytes }))
    };
    read().ok_or_else(|| error(path, "a malformed tensor of one rank"))
}

/// Converts a decimal integer to little-endian two's complement.
fn big_int(text: &str) -> Option<Vec<u8>> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.is_empty() || digits.len() > MAX_DIGITS {
        return None;
    }
    let mut bytes = vec![0u8];
    for digit in digits.chars() {
        let mut carry = digit.to_digit(10)?;
        for byte in &mut bytes {
            carry += u32::from(*byte) * 10;
            *byte = carry as u8;
            carry >>= 8;
        }
        if carry > 0 {
            bytes.push(carry as u8);
        }
    }
    bytes.push(0);
    if is_negative {
        let mut carry = true;
        for byte in &mut bytes {
            let (sum, overflow) = (!*byte).overflowing_add(u8::from(carry));
            *byte = sum;
            carry = overflow;
        }
    }
    Some(bytes)
}

/// Decodes standard base64 with padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let mut bits = 0u32;
    let mut count = 0;
    for symbol in text.bytes() {
        let six = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

/// Converts a numpy scalar to a plain Python number.
fn scalar(dtype: &str, bytes: &[u8]) -> Option<PythonValue> {
    let (order, kind) = dtype.split_at_checked(1)?;
    let mut bytes = bytes.to_vec();
    if order == ">" {
        bytes.reverse();
    }
    let width = bytes.len();
    if kind.get(1..)?.parse() != Ok(width) || !matches!(width, 1 | 2 | 4 | 8) {
        return None;
    }
    let mut wide = [0u8; 8];
    wide[..width].copy_from_slice(&bytes);
    let unsigned = u64::from_le_bytes(wide);
    let shift = 64 - 8 * width as u32;
    match (kind.get(..1)?, width) {
        ("b", 1) => Some(PythonValue::Bool(unsigned != 0)),
        ("i", _) => Some(PythonValue::Int((unsigned << shift) as i64 >> shift)),
        ("u", _) => Some(from_json(&Value::from(unsigned))),
        ("f", 2) => Some(PythonValue::Float(half(unsigned as u16))),
        ("f", 4) => Some(PythonValue::Float(f64::from(f32::from_bits(unsigned as u32)))),
        ("f", 8) => Some(PythonValue::Float(f64::from_bits(unsigned))),
        _ => None,
    }
}

/// Decodes an IEEE half-precision number.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 31);
    let fraction = f64::from(bits & 1023);
    match exponent {
        0 => sign * fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(value: Value, expect: PythonValue) {
        assert_eq!(decode(&value, 3).expect("decoded"), expect);
    }

    #[test]
    fn values_of_the_encoding() {
        check(
            json!({"$": "float", "v": "-inf"}),
            PythonValue::Float(f64::NEG_INFINITY),
        );
        check(json!({"$": "float", "v": "1e-05"}), PythonValue::Float(1e-5));
        check(json!({"$": "int", "v": "-256"}), PythonValue::BigInt(vec![0, 255, 255]));
        check(json!({"$": "int", "v": "256"}), PythonValue::BigInt(vec![0, 1, 0]));
        check(json!({"$": "bytes", "v": "aGk="}), PythonValue::Bytes(b"hi".to_vec()));
        check(
            json!({"$": "scalar", "d": "<f4", "v": "AADAPw=="}),
            PythonValue::Float(1.5),
        );
        check(
            json!({"$": "scalar", "d": "<i8", "v": "/v////////8="}),
            PythonValue::Int(-2),
        );
        check(json!({"$": "scalar", "d": "<f2", "v": "AD4="}), PythonValue::Float(1.5));
        let tuple = PythonValue::Tuple(vec![PythonValue::Int(1), PythonValue::None]);
        check(json!({"$": "tuple", "v": [1, null]}), tuple);
        let dict = PythonValue::Dict(vec![(PythonValue::Int(7), PythonValue::Tensor("s.7".to_owned()))]);
        check(json!({"$": "dict", "v": [[7, {"$": "tensor", "v": "s.7"}]]}), dict);
    }

    #[test]
    fn values_of_one_rank_hold_their_tensors() {
        let state = json!({"$": "per-rank", "v": {
            "state": {"$": "tensor", "v": "state"}, "tensors": {"state": ["U8", [2], "AQI=", "torch"]}}});
        let inline = InlineTensor {
            dtype: Dtype::U8,
            shape: vec![2],
            bytes: vec![1, 2],
        };
        check(
            state,
            PythonValue::PerRank(BTreeMap::from([(3, PythonValue::Inline(inline))])),
        );
    }

    #[test]
    fn what_is_malformed_is_an_error_with_its_path() {
        for bad in [
            json!({"a": {"$": "scalar", "d": "<f4", "v": "AA=="}}),
            json!({"a": {"$": "new", "v": 1}}),
            json!({"a": {"$": "dict", "v": [[1]]}}),
            json!({"a": {"$": "int", "v": "1x"}}),
            json!({"a": {"$": "per-rank", "v": {"state": {"$": "tensor", "v": "t"}, "tensors": {"t": ["U8", [3], "AQI="]}}}}),
        ] {
            let problem = decode(&bad, 0).expect_err("malformed").to_string();
            assert!(problem.starts_with("state.a: "), "{problem}");
        }
    }
}
