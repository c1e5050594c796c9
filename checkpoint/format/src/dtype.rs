//! Element types of tensors. Names and meanings are those of safetensors, so that tensors can be exchanged with other
//! programs. Types of less than one byte are not supported.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Element type of a tensor. Tensor bytes are never interpreted; the type gives the element size. Serialized as the
/// safetensors name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[allow(missing_docs, reason = "the name says all: kind and width in bits")]
pub enum Dtype {
    Bool,
    U8,
    I8,
    F8E4M3,
    F8E5M2,
    U16,
    I16,
    F16,
    Bf16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
    C64,
    F8E4M3Fnuz,
    F8E5M2Fnuz,
    F8E8M0,
    C128,
}

/// Error: the name is not that of a supported element type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no element type; known are {}", known())]
pub struct UnknownDtype {
    /// Rejected name, cut to 32 characters.
    pub name: String,
}

fn known() -> String {
    TABLE.map(|(_, name, _)| name).join(", ")
}

/// Type, safetensors name and bytes per element, in the order of the enum: [`Dtype`] is the index.
const TABLE: [(Dtype, &str, u64); 20] = [
    (Dtype::Bool, "BOOL", 1),
    (Dtype::U8, "U8", 1),
    (Dtype::I8, "I8", 1),
    (Dtype::F8E4M3, "F8_E4M3", 1),
    (Dtype::F8E5M2, "F8_E5M2", 1),
    (Dtype::U16, "U16", 2),
    (Dtype::I16, "I16", 2),
    (Dtype::F16, "F16", 2),
    (Dtype::Bf16, "BF16", 2),
    (Dtype::U32, "U32", 4),
    (Dtype::I32, "I32", 4),
    (Dtype::F32, "F32", 4),
    (Dtype::U64, "U64", 8),
    (Dtype::I64, "I64", 8),
    (Dtype::F64, "F64", 8),
    (Dtype::C64, "C64", 8),
    (Dtype::F8E4M3Fnuz, "F8_E4M3FNUZ", 1),
    (Dtype::F8E5M2Fnuz, "F8_E5M2FNUZ", 1),
    (Dtype::F8E8M0, "F8_E8M0", 1),
    (Dtype::C128, "C128", 16),
];

impl Dtype {
    /// Returns the size of one element in bytes.
    pub fn bytes(self) -> u64 {
        TABLE[self as usize].2
    }

    /// Returns the safetensors name, such as `BF16`.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    /// Parses a safetensors name; upper and lower case differ.
    fn from_str(name: &str) -> Result<Self, UnknownDtype> {
        let found = TABLE.iter().find(|(_, known, _)| *known == name);
        found.map(|(dtype, ..)| *dtype).ok_or_else(|| UnknownDtype {
            name: name.chars().take(32).collect(),
        })
    }
}

impl TryFrom<String> for Dtype {
    type Error = UnknownDtype;

    fn try_from(name: String) -> Result<Self, UnknownDtype> {
        name.parse()
    }
}

impl From<Dtype> for String {
    fn from(dtype: Dtype) -> Self {
        dtype.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (at, (dtype, name, _)) in TABLE.into_iter().enumerate() {
            assert_eq!(dtype as usize, at);
            assert_eq!(name.parse(), Ok(dtype));
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "float32".parse::<Dtype>().expect_err("not a safetensors name");
        assert!(error.to_string().contains("F32"), "{error}");
    }
}
