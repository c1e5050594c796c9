//! Plain values of a pickle: one flat table, each value identified by its index.
//!
//! Shared values and cycles cost nothing and require no recursion, neither to build nor to drop: a value that is used
//! a million times is a million indices. Code that traverses the tree descends only as deep as the shape it expects.

use std::borrow::Cow;

/// Index of a value in its [`Tree`].
pub type Id = u32;

/// Position of text in the input, or in the side buffer if it was unescaped.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    start: u32,
    len: u32,
    aside: bool,
}

impl Span {
    fn of(start: usize, len: usize) -> Self {
        Span {
            start: start as u32,
            len: len as u32,
            aside: false,
        }
    }
}

/// Python value; containers refer to their items by index.
#[derive(Debug)]
pub enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// Integer that does not fit into 64 signed bits; its value is not retained.
    Huge,
    Float(f64),
    /// Text. Protocols before 3 write bytes as text, too.
    Text(Span),
    Bytes(Span),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    /// Set or frozenset.
    Set(Vec<Id>),
    /// Keys and values alternately; a later key overrides an earlier one, as in Python.
    Dict(Vec<Id>),
    /// Name that the pickle asks to import: module and name, both text.
    Global {
        /// Module, for example `torch._utils`.
        module: Id,
        /// Name, for example `_rebuild_tensor_v2`.
        name: Id,
    },
    /// Object that the pickle asks to build. Absent parts are [`NONE`].
    Object {
        /// Callable or class: for honest writers a [`Node::Global`].
        class: Id,
        /// Arguments: for honest writers a tuple.
        args: Id,
        /// Argument of `__setstate__`, or the fields of the object.
        state: Id,
        /// Items to append or add.
        items: Id,
        /// Dictionary of items to set.
        pairs: Id,
        /// True for an instance of the class, false for the result of a call.
        is_new: bool,
    },
    /// Reference that only the writing program can resolve; the value is its id.
    Persistent(Id),
}

/// Values of one pickle.
#[derive(Debug)]
pub struct Tree<'a> {
    input: &'a [u8],
    aside: Vec<u8>,
    pub(crate) nodes: Vec<Node>,
    /// Value that the pickle represents.
    pub root: Id,
}

/// Index of `None`. It and the booleans are in every tree once.
pub const NONE: Id = 0;
/// Index of `False`.
pub const FALSE: Id = 1;
/// Index of `True`.
pub const TRUE: Id = 2;

impl<'a> Tree<'a> {
    /// Creates a tree with the value `None`, over text in `input`.
    pub fn new(input: &'a [u8]) -> Self {
        let nodes = vec![Node::None, Node::Bool(false), Node::Bool(true)];
        Tree {
            input,
            aside: Vec::new(),
            nodes,
            root: NONE,
        }
    }

    /// Adds a value and returns its index.
    pub fn add(&mut self, node: Node) -> Id {
        let id = self.nodes.len() as Id;
        self.nodes.push(node);
        id
    }

    /// Adds text that is in the input without escapes.
    pub(crate) fn text_at(&mut self, start: usize, len: usize) -> Id {
        self.add(Node::Text(Span::of(start, len)))
    }

    /// Adds bytes that are in the input.
    pub(crate) fn bytes_at(&mut self, start: usize, len: usize) -> Id {
        self.add(Node::Bytes(Span::of(start, len)))
    }

    /// Adds text that was unescaped.
    pub fn text_aside(&mut self, text: &[u8]) -> Id {
        let start = self.aside.len() as u32;
        self.aside.extend_from_slice(text);
        self.add(Node::Text(Span {
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
    pub fn node(&self, id: Id) -> &Node {
        self.nodes.get(id as usize).unwrap_or(&Node::None)
    }

    /// Returns true for `None`.
    pub fn is_none(&self, id: Id) -> bool {
        matches!(self.node(id), Node::None)
    }

    /// Returns the bytes of a text or bytes value.
    pub fn bytes(&self, id: Id) -> Option<&[u8]> {
        let (Node::Text(span) | Node::Bytes(span)) = self.node(id) else {
            return None;
        };
        let from = if span.aside { &self.aside[..] } else { self.input };
        from.get(span.start as usize..(span.start as usize + span.len as usize))
    }

    /// Returns the first `limit` bytes of a text, with replacement characters for invalid UTF-8.
    pub fn text(&self, id: Id, limit: usize) -> Option<Cow<'_, str>> {
        let bytes = self.bytes(id)?;
        Some(String::from_utf8_lossy(&bytes[..bytes.len().min(limit)]))
    }

    /// Returns an integer, even if it is written as text.
    pub fn integer(&self, id: Id) -> Option<i64> {
        match self.node(id) {
            Node::Int(value) => Some(*value),
            Node::Bool(value) => Some(i64::from(*value)),
            Node::Float(value) if value.fract() == 0.0 && value.abs() < 9.0e15 => Some(*value as i64),
            Node::Text(span) | Node::Bytes(span) if span.len <= 24 => self.text(id, 24)?.trim().parse().ok(),
            _ => None,
        }
    }

    /// Returns the items of a list, tuple or set.
    pub fn items(&self, id: Id) -> Option<&[Id]> {
        match self.node(id) {
            Node::List(items) | Node::Tuple(items) | Node::Set(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the keys and values of a dictionary.
    pub fn pairs(&self, id: Id) -> Option<impl Iterator<Item = (Id, Id)>> {
        let Node::Dict(flat) = self.node(id) else { return None };
        Some(flat.chunks_exact(2).map(|pair| (pair[0], pair[1])))
    }
}
