//! The demo's job: a small network trained data-parallel with a sharded optimizer, bit-identical at every world size.
