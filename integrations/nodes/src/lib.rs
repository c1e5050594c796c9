//! Shared parts of the programs that compare node states with a scheduler (Slurm, Kubernetes): which node of one side is
//! which of the other ([`NameMap`]), how many nodes may be taken out of use ([`NodeLimit`], RG-6), and foreign text as
//! plain text ([`plain_text`]).
//!
//! The crate is pure. It does not know what a scheduler calls a node that is out of use.

mod name_map;
mod node_limit;
mod plain_text;

pub use name_map::{NameMap, NameMapError, NamePairs};
pub use node_limit::NodeLimit;
pub use plain_text::plain_text;
