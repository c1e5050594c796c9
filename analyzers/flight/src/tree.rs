//! Plain values as they came out of a file: one flat table, each value named by its place in it.
//!
//! Sharing and even circles cost nothing and need no recursion, neither to build nor to drop: a value that is used a
//! million times is a million numbers. Whoever walks the tree goes only as deep as the shape it expects.

use std::borrow::Cow;

/// Place of a value in its [`Tree`].
pub(crate) type Id = u32;

/// Place of text in the input, or in the side buffer where it had to be unescaped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    start: u32,
    len: u32,
    aside: bool,
}

/// One value.
#[derive(Debug)]
pub(crate) enum Node {
    None,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 bits; no field of a dump is one.
    Huge,
    Float(f64),
    /// Text or bytes; dumps of Python 2 protocols do not tell them apart.
    Text(Span),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Set(Vec<Id>),
    /// Keys and values in turn; a later key wins, as in Python.
    Dict(Vec<Id>),
}

/// The values of one file.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    input: &'a [u8],
    aside: Vec<u8>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) root: Id,
}

/// The three values that every tree has once.
pub(crate) const NONE: Id = 0;
pub(crate) const FALSE: Id = 1;
pub(crate) const TRUE: Id = 2;

impl<'a> Tree<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        let nodes = vec![Node::None, Node::Bool(false), Node::Bool(true)];
        Tree {
            input,
            aside: Vec::new(),
            nodes,
            root: NONE,
        }
    }

    pub(crate) fn add(&mut self, node: Node) -> Id {
        let id = self.nodes.len() as Id;
        self.nodes.push(node);
        id
    }

    /// Text that stands in the input as it is.
    pub(crate) fn text_at(&mut self, start: usize, len: usize) -> Id {
        self.add(Node::Text(Span {
            start: start as u32,
            len: len as u32,
            aside: false,
        }))
    }

    /// Text that had to be unescaped.
    pub(crate) fn text_aside(&mut self, text: &[u8]) -> Id {
        let start = self.aside.len() as u32;
        self.aside.extend_from_slice(text);
        self.add(Node::Text(Span {
            start,
            len: text.len() as u32,
            aside: true,
        }))
    }

    pub(crate) fn node(&self, id: Id) -> &Node {
        self.nodes.get(id as usize).unwrap_or(&Node::None)
    }

    pub(crate) fn is_none(&self, id: Id) -> bool {
        matches!(self.node(id), Node::None)
    }

    pub(crate) fn bytes(&self, id: Id) -> Option<&[u8]> {
        let Node::Text(span) = self.node(id) else { return None };
        let from = if span.aside { &self.aside[..] } else { self.input };
        from.get(span.start as usize..(span.start as usize + span.len as usize))
    }

    /// The first `limit` bytes as text, with a replacement sign for what is no UTF-8.
    pub(crate) fn text(&self, id: Id, limit: usize) -> Option<Cow<'_, str>> {
        let bytes = self.bytes(id)?;
        Some(String::from_utf8_lossy(&bytes[..bytes.len().min(limit)]))
    }

    /// A whole number, also one written as text: the JSON form writes its statuses so.
    pub(crate) fn integer(&self, id: Id) -> Option<i64> {
        match self.node(id) {
            Node::Int(value) => Some(*value),
            Node::Bool(value) => Some(i64::from(*value)),
            Node::Float(value) if value.fract() == 0.0 && value.abs() < 9.0e15 => Some(*value as i64),
            Node::Text(span) if span.len <= 24 => self.text(id, 24)?.trim().parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn items(&self, id: Id) -> Option<&[Id]> {
        match self.node(id) {
            Node::List(items) | Node::Tuple(items) | Node::Set(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn pairs(&self, id: Id) -> Option<impl Iterator<Item = (Id, Id)>> {
        let Node::Dict(flat) = self.node(id) else { return None };
        Some(flat.chunks_exact(2).map(|pair| (pair[0], pair[1])))
    }
}
