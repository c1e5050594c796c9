//! Tests of straggler analysis, in one program: each program of tests is compiled and linked anew.

mod support;

mod hostile;
mod per_step;
mod planted;
mod published;
mod reading;
