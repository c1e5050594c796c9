//! Tests of diagnosis, in one program: each program of tests is compiled and linked anew.

#![allow(clippy::unwrap_used, reason = "tests")]

mod world;

mod causes;
mod drills;
mod elsewhere;
mod ends;
mod flight;
mod job_ends;
mod lasting;
mod machine_causes;
mod named_processes;
mod order;
mod separate_faults;
mod storage;
mod stories;
mod struck;
mod survivors;
mod unordered;
mod unrelated;
mod whole_logs;
