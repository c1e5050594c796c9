//! Python values of a checkpoint state: plain values, containers and references to tensors.

mod decode;
mod merge;
mod select;

use std::collections::BTreeMap;

use rankguard_checkpoint::format::Dtype;

pub(crate) use decode::{DecodeError, decode, from_json};
pub(crate) use merge::merge;
pub(crate) use select::select;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PythonValue {
    None,
    Bool(bool),
    Int(i64),
    /// Little-endian two's complement of an integer beyond 64 bits.
    BigInt(Vec<u8>),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<PythonValue>),
    Tuple(Vec<PythonValue>),
    /// Pairs in insertion order; keys are hashable.
    Dict(Vec<(PythonValue, PythonValue)>),
    /// Tensor of the checkpoint, by name.
    Tensor(String),
    /// Tensor stored inside the state, as in `PerRank` values.
    Inline(InlineTensor),
    /// One value for each rank; exported as a dict by rank.
    PerRank(BTreeMap<u32, PythonValue>),
}

/// Small tensor with its bytes inside the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InlineTensor {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

impl PythonValue {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Returns the text of a dictionary key in a dotted name, as Python's `str` gives it.
    pub(crate) fn key_text(&self) -> String {
        match self {
            Self::None => "None".to_owned(),
            Self::Bool(true) => "True".to_owned(),
            Self::Bool(false) => "False".to_owned(),
            Self::Int(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            other => format!("{other:?}"),
        }
    }

    /// Calls `visit` with the name of every tensor of the checkpoint in this value.
    pub(crate) fn visit_tensors<'v>(&'v self, visit: &mut dyn FnMut(&'v str)) {
        match self {
            Self::Tensor(name) => visit(name),
            Self::List(items) | Self::Tuple(items) => items.iter().for_each(|item| item.visit_tensors(visit)),
            Self::Dict(pairs) => pairs.iter().for_each(|(_, item)| item.visit_tensors(visit)),
            _ => {}
        }
    }
}
