//! Tests of data sets, in one program: each program of tests is compiled and linked anew.

mod common;

mod damage;
mod hostile;
mod imports;
mod journal;
mod published;
mod published_logs;
mod traps;
