//! Plain values of a pickle: one flat table, each value identified by its index.
//!
//! Shared values and cycles cost nothing and require no recursion, neither to build nor to drop: a value that is used
//! a million times is a million indices. Code that traverses the tree descends only as deep as the shape it expects.

use std::borrow::Cow;

/// Index of a value in its [`PickleTree`].
pub type ValueId = u32;

/// Position of text in the input, or in the side buffer if it was unescaped.
#[derive(Debug, Clone, Copy)]
pub struct TextSpan {
    start: u32,
    len: u32,
    aside: bool,
}

impl TextSpan {
    fn of(start: usize, len: usize) -> Self {
        TextSpan {
            start: start as u32,
            len: len as u32,
            aside: false,
        }
    }
}

/// Python value; containers refer to their items by index.
#[derive(Debug)]
pub enum PickledValue {
    None,
    Bool(bool),
    Int(i64),
    /// Integer that does not fit into 64 signed bits; its value is not retained.
    Huge,
    Float(f64),
    /// Text. Protocols before 3 write bytes as text, too.
    Text(TextSpan),
    Bytes(TextSpan),
    List(Vec<ValueId>),
    Tuple(Vec<ValueId>),
    /// Set or frozenset.
    Set(Vec<ValueId>),
    /// Keys and values alternately; a later key overrides an earlier one, as in Python.
    Dict(Vec<ValueId>),
    /// Name that the pickle asks to import: module and name, both text.
    Global {
        /// Module, for example `torch._utils`.
        module: ValueId,
        /// Name, for example `_rebuild_tensor_v2`.
        name: ValueId,
    },
    /// Object that the pickle asks to build. Absent parts are [`NONE`].
    Object {
        /// Callable or class: for honest writers a [`PickledValue::Global`].
        class: ValueId,
        /// Arguments: for honest writers a tuple.
        args: ValueId,
        /// Argument of `__setstate__`, or the fields of the object.
        state: ValueId,
        /// Items to append or add.
        items: ValueId,
        /// Dictionary of items to set.
        pairs: ValueId,
        /// True for an instance of the class, false for the result of a call.
        is_new: bool,
    },
    /// Reference that only the writing program can resolve; the value is its id.
    Persistent(ValueId),
}

/// Values of one pickle.
#[derive(Debug)]
pub struct PickleTree<'a> {
    input: &'a [u8],
    aside: Vec<u8>,
    pub(crate) nodes: Vec<PickledValue>,
    /// Value that the pickle represents.
    pub root: ValueId,
}

/// Index of `None`. It and the booleans are in every tree once.
pub const NONE: ValueId = 0;
/// Index of `False`.
pub const FALSE: ValueId = 1;
/// Index of `True`.
pub const TRUE: ValueId = 2;

impl<'a> PickleTree<'a> {
    /// Creates a tree with the value `None`, over text in `input`.
    pub fn new(input: &'a [u8]) -> Self {
        let nodes = vec![PickledValue::None, PickledValue::Bool(false), PickledValue::Bool(true)];
        PickleTree {
            input,
            aside: Vec::new(),
            nodes,
            root: NONE,
        }
    }

    /// Adds a value and returns its index.
    pub fn add(&mut self, node: PickledValue) -> ValueId {
        let id = self.nodes.len() as ValueId;
        self.nodes.push(node);
        id
    }

    /// Adds text that is in the input without escapes.
    pub(crate) fn text_at(&mut self, start: usize, len: usize) -> ValueId {
        self.add(PickledValue::Text(TextSpan::of(start, len)))
    }

    /// Adds bytes that are in the input.
    pub(crate) fn bytes_at(&mut self, start: usize, len: usize) -> ValueId {
        self.add(PickledValue::Bytes(TextSpan::of(start, len)))
    }

    /// Adds text that was unescaped.
    pub fn text_aside(&mut self, text: &[u8]) -> ValueId {
        let start = self.aside.len() as u32;
        self.aside.extend_from_slice(text);
        self.add(PickledValue::Text(TextSpan {
            start,
            len: text.len() as u32,
            aside: true,
        }))
    }

    /// Returns the number of values in the table, unused ones included.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns a value; `None` for the index of another tree.
    pub fn node(&self, id: ValueId) -> &PickledValue {
        self.nodes.get(id as usize).unwrap_or(&PickledValue::None)
    }

    /// Returns true for `None`.
    pub fn is_none(&self, id: ValueId) -> bool {
        matches!(self.node(id), PickledValue::None)
    }

    /// Returns the bytes of a text or bytes value.
    pub fn bytes(&self, id: ValueId) -> Option<&[u8]> {
        let (PickledValue::Text(span) | PickledValue::Bytes(span)) = self.node(id) else {
            return None;
        };
        let from = if span.aside { &self.aside[..] } else { self.input };
        from.get(span.start as usize..(span.start as usize + span.len as usize))
    }

    /// Returns the first `limit` bytes of a text, with replacement characters for invalid UTF-8.
    pub fn text(&self, id: ValueId, limit: usize) -> Option<Cow<'_, str>> {
        let bytes = self.bytes(id)?;
        Some(String::from_utf8_lossy(&bytes[..bytes.len().min(limit)]))
    }

    /// Returns an integer, even if it is written as text.
    pub fn integer(&self, id: ValueId) -> Option<i64> {
        match self.node(id) {
            PickledValue::Int(value) => Some(*value),
            PickledValue::Bool(value) => Some(i64::from(*value)),
            PickledValue::Float(value) if value.fract() == 0.0 && value.abs() < 9.0e15 => Some(*value as i64),
            PickledValue::Text(span) | PickledValue::Bytes(span) if span.len <= 24 => {
                self.text(id, 24)?.trim().parse().ok()
            }
            _ => None,
        }
    }

    /// Returns the items of a list, tuple or set.
    pub fn items(&self, id: ValueId) -> Option<&[ValueId]> {
        match self.node(id) {
            PickledValue::List(items) | PickledValue::Tuple(items) | PickledValue::Set(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the keys and values of a dictionary.
    pub fn pairs(&self, id: ValueId) -> Option<impl Iterator<Item = (ValueId, ValueId)>> {
        let PickledValue::Dict(flat) = self.node(id) else {
            return None;
        };
        Some(flat.chunks_exact(2).map(|pair| (pair[0], pair[1])))
    }
}
