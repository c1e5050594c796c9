//! x
mod alarm;
mod cache;
mod id;
mod limits;
mod marks;
mod mask;
mod miner;
mod names;
mod profile;
mod tree;
pub use id::*;
pub use limits::*;
pub use miner::*;
pub use profile::*;
