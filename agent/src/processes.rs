//! Processes of this node: finds the processes of a tree, and ends all of them.
//!
//! Every process id is used together with the start time of the process, and signals go through a pidfd that was
//! opened before the start time was compared, so that a reused id never hits a foreign process.

mod cgroup;
mod children;
mod ending;
mod fence_mark;
mod table;

pub(crate) use cgroup::{CgroupBase, ProcessCgroup, enter_own_cgroup};
pub(crate) use children::first_ended_child;
pub(crate) use ending::{EndedProcesses, end_processes, signal_process};
pub(crate) use fence_mark::{FENCE_VARIABLE, FenceMark, end_marked_processes};
pub(crate) use table::{ProcessEntry, ProcessTable};
