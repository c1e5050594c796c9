//! What a checkpoint holds.
