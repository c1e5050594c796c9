//! Tests of the comparison, and of the readers on output of a real Slurm.

mod agreement;
mod parsers;
mod program;
