//! Checkpoints in the formats of others.
