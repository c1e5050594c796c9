//! Tests of the program, in one program of tests: each one is compiled and linked anew.

#![allow(clippy::unwrap_used, reason = "tests")]

mod dataset;
mod into;
mod own;
mod replay_and_simulate;
mod study;
