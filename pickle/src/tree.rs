//! Plain values as they came out of a file: one flat table, each value named by its place in it.
//!
//! Sharing and even circles cost nothing and need no recursion, neither to build nor to drop: a value that is used a
//! million times is a million numbers. Whoever walks the tree goes only as deep as the shape it expects.

use std::borrow::Cow;

/// Place of a value in its [`Tree`].
pub type Id = u32;

/// Place of text in the input, or in the side buffer where it had to be unescaped.
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

/// One value.
#[derive(Debug)]
pub enum Node {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number beyond 64 bits with a sign; which one is not kept.
    Huge,
    /// A floating-point number.
    Float(f64),
    /// Text. Protocols before 3 write bytes as text too.
    Text(Span),
    /// Bytes.
    Bytes(Span),
    /// A list.
    List(Vec<Id>),
    /// A tuple.
    Tuple(Vec<Id>),
    /// A set, frozen or not.
    Set(Vec<Id>),
    /// Keys and values in turn; a later key wins, as in Python.
    Dict(Vec<Id>),
    /// A name that the pickle wanted imported: module and name, both text.
    Global {
        /// `torch._utils`
        module: Id,
        /// `_rebuild_tensor_v2`
        name: Id,
    },
    /// An object that the pickle wanted made. What it has not got is [`NONE`].
    Object {
        /// What was to be called or whose instance was to be made: for honest writers a [`Node::Global`].
        class: Id,
        /// Its arguments: for honest writers a tuple.
        args: Id,
        /// What was to be given to `__setstate__`, or to become its fields.
        state: Id,
        /// What was to be appended to it or added.
        items: Id,
        /// The dictionary of what was to be set in it.
        pairs: Id,
        /// Whether an instance was wanted, and not the answer of a call.
        is_new: bool,
    },
    /// Something that only the program that wrote the pickle can find; the value that names it.
    Persistent(Id),
}

/// The values of one file.
#[derive(Debug)]
pub struct Tree<'a> {
    input: &'a [u8],
    aside: Vec<u8>,
    pub(crate) nodes: Vec<Node>,
    /// The value that the file is about.
    pub root: Id,
}

/// `None`. It and the truth values stand once in every tree.
pub const NONE: Id = 0;
/// `False`.
pub const FALSE: Id = 1;
/// `True`.
pub const TRUE: Id = 2;

impl<'a> Tree<'a> {
    /// A tree of nothing but `None`, over text that stands in `input`.
    pub fn new(input: &'a [u8]) -> Self {
        let nodes = vec![Node::None, Node::Bool(false), Node::Bool(true)];
        Tree {
            input,
            aside: Vec::new(),
            nodes,
            root: NONE,
        }
    }

    /// Adds a value.
    pub fn add(&mut self, node: Node) -> Id {
        let id = self.nodes.len() as Id;
        self.nodes.push(node);
        id
    }

    /// Text that stands in the input as it is.
    pub(crate) fn text_at(&mut self, start: usize, len: usize) -> Id {
        self.add(Node::Text(Span::of(start, len)))
    }

    /// Bytes that stand in the input.
    pub(crate) fn bytes_at(&mut self, start: usize, len: usize) -> Id {
        self.add(Node::Bytes(Span::of(start, len)))
    }

    /// Text that had to be unescaped.
    pub fn text_aside(&mut self, text: &[u8]) -> Id {
        let start = self.aside.len() as u32;
        self.aside.extend_from_slice(text);
        self.add(Node::Text(Span {
            start,
            len: text.len() as u32,
            aside: true,
        }))
    }

    /// Number of values in the table, also those that nothing uses any more.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// A value; `None` for an id of another tree.
    pub fn node(&self, id: Id) -> &Node {
        self.nodes.get(id as usize).unwrap_or(&Node::None)
    }

    /// Whether it is `None`.
    pub fn is_none(&self, id: Id) -> bool {
        matches!(self.node(id), Node::None)
    }

    /// The bytes of text or of bytes.
    pub fn bytes(&self, id: Id) -> Option<&[u8]> {
        let (Node::Text(span) | Node::Bytes(span)) = self.node(id) else {
            return None;
        };
        let from = if span.aside { &self.aside[..] } else { self.input };
        from.get(span.start as usize..(span.start as usize + span.len as usize))
    }

    /// The first `limit` bytes as text, with a replacement sign for what is no UTF-8.
    pub fn text(&self, id: Id, limit: usize) -> Option<Cow<'_, str>> {
        let bytes = self.bytes(id)?;
        Some(String::from_utf8_lossy(&bytes[..bytes.len().min(limit)]))
    }

    /// A whole number, also one written as text.
    pub fn integer(&self, id: Id) -> Option<i64> {
        match self.node(id) {
            Node::Int(value) => Some(*value),
            Node::Bool(value) => Some(i64::from(*value)),
            Node::Float(value) if value.fract() == 0.0 && value.abs() < 9.0e15 => Some(*value as i64),
            Node::Text(span) | Node::Bytes(span) if span.len <= 24 => self.text(id, 24)?.trim().parse().ok(),
            _ => None,
        }
    }

    /// What a list, tuple or set holds.
    pub fn items(&self, id: Id) -> Option<&[Id]> {
        match self.node(id) {
            Node::List(items) | Node::Tuple(items) | Node::Set(items) => Some(items),
            _ => None,
        }
    }

    /// Keys and values of a dictionary.
    pub fn pairs(&self, id: Id) -> Option<impl Iterator<Item = (Id, Id)>> {
        let Node::Dict(flat) = self.node(id) else { return None };
        Some(flat.chunks_exact(2).map(|pair| (pair[0], pair[1])))
    }
}
