//! Tests of flight recorder analysis, in one program: each program of tests is compiled and linked anew.

#![allow(clippy::unwrap_used, reason = "tests")]

mod job;

mod reading;
mod scale;
mod scenarios;
mod shared_dumps;
