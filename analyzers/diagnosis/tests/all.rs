//! Tests of diagnosis, in one program: each program of tests is compiled and linked anew.

#![allow(clippy::unwrap_used, reason = "tests")]

mod world;

mod causes;
mod elsewhere;
mod ends;
mod flight;
mod lasting;
mod machine_causes;
mod order;
mod storage;
mod stories;
mod struck;
mod survivors;
mod unordered;
mod unrelated;
