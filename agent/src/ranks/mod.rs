//! The ranks of this node: who runs, how they are started and ended, and what they say.

mod environment;
mod launcher;
mod port;
mod process;
mod roster;
pub(crate) mod socket;

pub(crate) use environment::{RankFiles, rank_files};
pub(crate) use launcher::{Launcher, LauncherParts};
pub(crate) use port::reserve;
pub(crate) use roster::{Roster, Started};
