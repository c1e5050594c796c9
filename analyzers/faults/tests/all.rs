//! Tests of the catalogue, in one program: each program of tests is compiled and linked anew.

#![allow(clippy::unwrap_used, reason = "tests")]

mod blocks;
mod catalogue;
mod classes;
mod hostile;
mod messages;
mod negations;
mod shared_data;
mod stamps;
mod user_files;
