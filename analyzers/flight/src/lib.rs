//! NCCL flight-recorder dumps in, the ranks that a group waits for out.
