//! The ranks of this node: started, watched, spoken with, ended.

mod environment;
mod launch;
mod line;
mod pace;
mod port;
mod roster;
mod session;
mod socket;

pub(crate) use launch::{Surroundings, spawn};
pub(crate) use pace::Silence;
pub(crate) use port::reserve;
pub(crate) use roster::Roster;
pub(crate) use socket::RankSocket;
