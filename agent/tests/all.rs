//! Tests of the agent, in one program: each program of tests is compiled and linked anew.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

mod crash;
mod exactly_once;
mod fencing;
mod ranks;
mod session;
mod sight;
mod socket;
mod tiers;
mod windows;
