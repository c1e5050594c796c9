//! Tests of the pure part: which messages are due, and which alarms hold.

#![allow(clippy::unwrap_used, reason = "tests")]

mod alarms;
mod common;
mod planner;
