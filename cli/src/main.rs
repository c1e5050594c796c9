//! Rankguard's one binary.
fn main() {}
