//! Python pickles as plain values: nothing is imported, called or built.
//!
//! A pickle is a program for a small stack machine. This one runs the subset that makes plain values (protocols 0 to
//! 5). An opcode that asks to import a name, call it or build an object is either refused with name and offset
//! ([`ObjectPolicy::Refuse`]) or recorded as a description ([`ObjectPolicy::Describe`]): the caller then reads "class
//! `torch.Size`, arguments `((2, 3),)`" as a value among others, and nothing was executed. References to objects
//! outside of the file are always refused.
//!
//! Invariants: pure. Arbitrary bytes give values or an error with the offset, never a panic (RG-11); each opcode makes
//! a bounded number of values, so memory is linear in the bytes, even with sharing; values are in one flat table, so
//! depth and cycles require no recursion to build or to drop. Code that traverses a [`PickleTree`] must bound its own steps.
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

pub use error::{Error, ParseLimits};
pub use machine::{ObjectPolicy, UnpickledValues, read};
pub use tree::{FALSE, NONE, PickleTree, PickledValue, TRUE, TextSpan, ValueId};
