//! Tests of the tiers, in one program: each program of tests is linked and optimised anew.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../tests/common/mod.rs"]
mod common;
mod remote;
mod shaky;

mod bulk;
mod object_push;
mod object_restore;
mod object_retention;
mod object_shared;
mod object_stores;
mod object_verify;
mod parity;
mod placement;
