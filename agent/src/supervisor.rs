//! Supervision of ranks: each generation of a job has a small process of its own between the agent and its ranks.
//!
//! The supervisor starts the ranks, is the subreaper of all processes below it and holds a lease that the agent
//! renews. When the agent is gone, or stopped for longer than the lease, the supervisor ends every process below it,
//! itself last (RG-3). When the supervisor is gone, its orphans are reparented to the agent, which is a subreaper too
//! and ends them. So a process cannot leave a generation by a double fork, a session of its own or an empty
//! environment.
//!
//! Standby processes of a job wait below a supervisor of their own, which becomes that of the next generation: for
//! lease, rights and end they are like ranks. The process of a rank that has left its generation waits below its
//! supervisor in the same way.
//!
//! Absent: processes that another daemon starts for a rank (`systemd-run`, a container runtime).

mod generation;
mod group;
mod handle;
mod messages;
mod orphans;
mod rank_user;
mod report;
mod rights;
mod service;
mod standby;
mod standby_board;
mod standby_status;
mod start;
mod supervisors;

pub(crate) use messages::{RankStart, StandbyStart, StartStage};
pub(crate) use orphans::{adopt_orphans, forget_helper, spawn_helper};
pub use rank_user::check_rank_user;
pub(crate) use report::{RankEnd, RankEvents, RankProcess, StartError, SupervisorLoss};
pub use rights::restrict_process;
pub(crate) use rights::{has_set_user_capability, rank_umask};
pub use service::supervise_ranks;
pub(crate) use standby::standby_recipe;
pub(crate) use standby_board::StandbyBoard;
pub(crate) use standby_status::StandbyStatus;
pub(crate) use supervisors::{KeptProcesses, RankSupervisors};
