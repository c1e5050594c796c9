//! Evidence in, cases out.
