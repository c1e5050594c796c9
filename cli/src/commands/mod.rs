//! One file a command: its words, what it does, and how it prints that.

pub(crate) mod agent;
pub(crate) mod bench;
pub(crate) mod cancel;
pub(crate) mod cases;
pub(crate) mod checkpoint;
pub(crate) mod classify;
pub(crate) mod config;
pub(crate) mod controller;
pub(crate) mod demo_rank;
pub(crate) mod diagnose;
pub(crate) mod explain;
pub(crate) mod gpu_calls;
pub(crate) mod history;
pub(crate) mod identity;
pub(crate) mod inject;
pub(crate) mod keep;
pub(crate) mod keep_arenas;
pub(crate) mod local;
pub(crate) mod node;
pub(crate) mod preflight;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod shell;
pub(crate) mod stack_calls;
pub(crate) mod status;
pub(crate) mod taxonomy;
