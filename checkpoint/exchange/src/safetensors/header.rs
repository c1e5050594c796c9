//! Parser and writer of the header of a safetensors file.

use std::collections::BTreeMap;
use std::fmt;

use rankguard_checkpoint::format::{Dtype, MAX_DIMS, TensorBox};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};

/// Maximum header size in bytes that readers of the format accept.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

const METADATA: &str = "__metadata__";

/// Element types of the format that a checkpoint cannot hold, with their width in bits.
const FOREIGN: [(&str, u64); 3] = [("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6)];

/// Entry of a tensor in the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderTensor {
    pub name: String,
    /// Element type, or its name in the file if a checkpoint cannot hold it.
    pub dtype: Result<Dtype, String>,
    pub shape: Vec<u64>,
    /// Offset of the first byte, from the end of the header.
    pub start: u64,
    /// Offset past the last byte, from the end of the header.
    pub end: u64,
}

/// Header of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SafetensorsHeader {
    /// Free text entries of `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    /// Tensors in the order of their bytes.
    pub tensors: Vec<HeaderTensor>,
}

/// Error of parsing a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum HeaderError {
    #[error("its header is no JSON of the right shape: {0}")]
    Json(String),
    #[error("tensor {name}: lies at bytes {start} to {end}, and {expected} was expected to be its beginning")]
    Hole {
        name: String,
        start: u64,
        end: u64,
        expected: u64,
    },
    #[error("tensor {name}: has {found} bytes where its shape and type need {needed}")]
    Size { name: String, found: u64, needed: String },
    #[error("its tensors end at byte {tensors} of {bytes} after the header")]
    Length { tensors: u64, bytes: u64 },
}

impl SafetensorsHeader {
    /// Parses the header's JSON. `data` is the number of bytes after the header: tensors must cover them without hole,
    /// overlap or rest, as the format requires.
    pub fn parse(json: &[u8], data: u64) -> Result<Self, HeaderError> {
        let mut header: Self = serde_json::from_slice(json).map_err(|error| HeaderError::Json(error.to_string()))?;
        header
            .tensors
            .sort_by(|a, b| (a.start, a.end, &a.name).cmp(&(b.start, b.end, &b.name)));
        let mut expected = 0;
        for tensor in &header.tensors {
            if tensor.start != expected || tensor.end < tensor.start {
                return Err(HeaderError::Hole {
                    name: shown(&tensor.name),
                    start: tensor.start,
                    end: tensor.end,
                    expected,
                });
            }
            tensor.check_size()?;
            expected = tensor.end;
        }
        if expected != data {
            return Err(HeaderError::Length {
                tensors: expected,
                bytes: data,
            });
        }
        Ok(header)
    }

    /// Serialises the header: length, JSON, spaces up to a multiple of eight.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut map = serde_json::Map::new();
        if !self.metadata.is_empty() {
            map.insert(METADATA.to_owned(), serde_json::json!(self.metadata));
        }
        for tensor in &self.tensors {
            let dtype = tensor.dtype.as_ref().map_or_else(String::as_str, |dtype| dtype.name());
            map.insert(
                tensor.name.clone(),
                serde_json::json!({
                    "dtype": dtype,
                    "shape": tensor.shape,
                    "data_offsets": [tensor.start, tensor.end],
                }),
            );
        }
        let mut json = serde_json::Value::Object(map).to_string().into_bytes();
        json.resize(json.len().next_multiple_of(8), b' ');
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.append(&mut json);
        bytes
    }
}

impl HeaderTensor {
    fn check_size(&self) -> Result<(), HeaderError> {
        let found = self.end - self.start;
        let width = match &self.dtype {
            Ok(dtype) => Some(dtype.bytes() * 8),
            Err(name) => FOREIGN.iter().find(|(known, _)| known == name).map(|(_, bits)| *bits),
        };
        // A tensor of an unknown type is left out later; its size cannot be checked.
        let Some(width) = width else { return Ok(()) };
        let needed = if self.shape.contains(&0) {
            Some(0)
        } else {
            self.shape.iter().copied().try_fold(width, u64::checked_mul)
        };
        if needed.is_some_and(|bits| bits.is_multiple_of(8) && bits / 8 == found) {
            return Ok(());
        }
        Err(HeaderError::Size {
            name: shown(&self.name),
            found,
            needed: needed.map_or_else(
                || "more than 64 bits can count".to_owned(),
                |bits| bits.div_ceil(8).to_string(),
            ),
        })
    }

    /// Returns the tensor as a box; the error is the reason why a checkpoint cannot hold it.
    pub(crate) fn boxed(&self) -> Result<TensorBox, String> {
        let dtype = self
            .dtype
            .clone()
            .map_err(|name| format!("its element type {name} cannot be kept"))?;
        if self.shape.len() > MAX_DIMS {
            return Err(format!("has {} dimensions, more than {MAX_DIMS}", self.shape.len()));
        }
        let boxed = TensorBox::whole(&self.name, dtype, self.shape.clone());
        boxed.check().map_err(|error| error.to_string())?;
        Ok(boxed)
    }
}

fn shown(name: &str) -> String {
    name.chars().take(128).collect()
}

/// JSON entry of a tensor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorJson {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for SafetensorsHeader {
    /// Deserialises a map and refuses repeated names, which JSON itself permits.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = SafetensorsHeader;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a map of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SafetensorsHeader, A::Error> {
                let mut header = SafetensorsHeader::default();
                let mut seen = std::collections::BTreeSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        header.metadata = map.next_value_seed(TextsSeed)?;
                    } else {
                        let info: TensorJson = map.next_value()?;
                        header.tensors.push(HeaderTensor {
                            name: name.clone(),
                            dtype: info.dtype.parse().map_err(|_| info.dtype),
                            shape: info.shape,
                            start: info.data_offsets.0,
                            end: info.data_offsets.1,
                        });
                    }
                    if let Some(twice) = seen.replace(name) {
                        return Err(A::Error::custom(format!("{} comes twice", shown(&twice))));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

/// Deserialiser of a map of text to text; `null` counts as an empty map, as some writers use it.
struct TextsSeed;

impl<'de> DeserializeSeed<'de> for TextsSeed {
    type Value = BTreeMap<String, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(json: &str, data: u64) -> Result<SafetensorsHeader, HeaderError> {
        SafetensorsHeader::parse(json.as_bytes(), data)
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = SafetensorsHeader {
            metadata: BTreeMap::from([("format".to_owned(), "pt".to_owned())]),
            tensors: vec![
                HeaderTensor {
                    name: "a".to_owned(),
                    dtype: Ok(Dtype::Bf16),
                    shape: vec![2, 3],
                    start: 0,
                    end: 12,
                },
                HeaderTensor {
                    name: "é \"x\"".to_owned(),
                    dtype: Err("F4".to_owned()),
                    shape: vec![2],
                    start: 12,
                    end: 13,
                },
            ],
        };
        let bytes = header.to_bytes();
        assert!(bytes.len().is_multiple_of(8));
        assert_eq!(
            u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")),
            bytes.len() as u64 - 8
        );
        assert_eq!(SafetensorsHeader::parse(&bytes[8..], 13), Ok(header));
    }

    #[test]
    fn holes_overlaps_doubles_and_wrong_sizes_are_refused() {
        let one = |start: u64, end: u64| format!(r#"{{"dtype":"U8","shape":[4],"data_offsets":[{start},{end}]}}"#);
        assert!(parse(&format!(r#"{{"a":{}}}"#, one(0, 4)), 4).is_ok());
        let refused = |json: String, data| parse(&json, data).expect_err("refused");
        assert!(matches!(
            refused(format!(r#"{{"a":{}}}"#, one(1, 5)), 5),
            HeaderError::Hole { .. }
        ));
        let overlap = format!(r#"{{"a":{},"b":{}}}"#, one(0, 4), one(2, 6));
        assert!(matches!(refused(overlap, 6), HeaderError::Hole { .. }));
        assert!(matches!(
            refused(format!(r#"{{"a":{}}}"#, one(0, 5)), 5),
            HeaderError::Size { .. }
        ));
        assert!(matches!(
            refused(format!(r#"{{"a":{}}}"#, one(0, 4)), 5),
            HeaderError::Length { .. }
        ));
        let double = format!(r#"{{"a":{},"a":{}}}"#, one(0, 4), one(4, 8));
        assert!(matches!(refused(double, 8), HeaderError::Json(what) if what.contains("twice")));
        let huge = r#"{"a":{"dtype":"F64","shape":[18446744073709551615,2],"data_offsets":[0,16]}}"#;
        assert!(matches!(parse(huge, 16), Err(HeaderError::Size { .. })));
        assert!(matches!(
            parse(r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}"#, 1),
            Err(HeaderError::Json(_))
        ));
        assert!(matches!(parse("[]", 0), Err(HeaderError::Json(_))));
    }

    #[test]
    fn types_that_cannot_be_kept_are_named() {
        let header = parse(r#"{"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}}"#, 3).expect("legal");
        assert!(header.tensors[0].boxed().expect_err("not whole bytes").contains("F4"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(json: Vec<u8>, data: u64) {
            let _ = SafetensorsHeader::parse(&json, data);
        }

        #[test]
        fn absurd_numbers_never_panic(shape: Vec<u64>, start: u64, end: u64, data: u64, dtype in "[A-Z]{1,2}[0-9]{1,2}") {
            let json = serde_json::json!({"a": {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}}).to_string();
            if let Ok(header) = SafetensorsHeader::parse(json.as_bytes(), data) {
                let _ = header.tensors[0].boxed();
            }
        }
    }
}
