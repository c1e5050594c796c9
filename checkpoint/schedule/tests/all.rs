//! Tests of the schedule, in one program: each program of tests is compiled and linked anew.

mod agreement;
mod interval;
mod lanes;
mod levels;
mod plan;
mod survival;
