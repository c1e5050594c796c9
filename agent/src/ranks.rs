//! Ranks of this node: start, supervision, communication and end.

mod allowed_environment;
mod credentials;
mod environment;
mod exit_message;
mod last_output;
mod launch;
mod line;
mod pace;
mod place;
mod port;
mod rank_logs;
mod rank_users;
mod reports;
mod room;
mod roster;
mod session;
mod socket;
mod throttle;

pub(crate) use allowed_environment::DEFAULT_RANK_ENVIRONMENT;
pub(crate) use launch::{LaunchContext, spawn};
pub(crate) use pace::RankSilence;
pub(crate) use port::reserve;
pub(crate) use rank_logs::RankLogService;
pub(crate) use rank_users::RankUserRules;
pub(crate) use reports::RankReports;
pub(crate) use roster::RankRoster;
pub(crate) use socket::RankSocket;
