//! Tests of the checkpoint store, in one program: each program of tests is compiled and linked anew.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "../../tests/support/guard.rs"]
mod guard;

mod arena;
mod crash;
mod damage;
mod delta;
mod faults;
mod repair;
mod store;
