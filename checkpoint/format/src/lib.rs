//! Layout, manifest, digests and reshard planner of a checkpoint.
