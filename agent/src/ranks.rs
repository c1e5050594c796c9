//! Ranks of this node: start, supervision, communication and end.

mod credentials;
mod environment;
mod exit_message;
mod last_output;
mod launch;
mod loss_watch;
mod place;
mod port_range;
mod rank_logs;
mod rank_users;
mod rendezvous;
mod reports;
mod room;
mod session;
mod socket;
mod standby_pool;
mod throttle;

pub(crate) use launch::{LaunchContext, prepared_start, spawn};
pub(crate) use rank_logs::RankLogService;
pub(crate) use rank_users::RankUserRules;
pub(crate) use rendezvous::RendezvousPorts;
pub(crate) use reports::RankReports;
pub(crate) use socket::RankSocket;
pub(crate) use standby_pool::{PreparationReport, StandbyPool};
