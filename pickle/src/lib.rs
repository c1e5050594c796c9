//! Python pickles as plain values: nothing is imported, called or built.
//!
//! A pickle is a program for a small stack machine. This one runs the part of the language that makes plain values
//! (protocols 0 to 5) and nothing else. What asks to import a name, call it or build an object is, as the caller
//! chooses, refused by name and place ([`Objects::Refuse`]) or written down as what it asks for
//! ([`Objects::Describe`]): the caller then reads "class `torch.Size`, arguments `((2, 3),)`" as a value among others,
//! and nothing has happened. What refers to things outside of the file is refused always.
//!
//! Invariants: pure. Arbitrary bytes give values or an error with the place, never a panic (RG-11); each opcode makes a
//! bounded number of values, so memory is linear in the bytes, whatever is shared; values lie in one flat table, so depth
//! and circles need no recursion to build or to drop. Whoever walks a [`Tree`] bounds its own steps.
//!
//! Absent on purpose: writing, out-of-band buffers, the extension registry.
//!
//! Source of the opcodes: Python's `pickletools.py`.

mod error;
mod machine;
mod memo;
mod number;
mod object;
mod opcode;
#[cfg(test)]
mod tests;
mod tree;

pub use error::{Error, Limits};
pub use machine::{Objects, Unpickled, read};
pub use tree::{FALSE, Id, NONE, Node, Span, TRUE, Tree};
