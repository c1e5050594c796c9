//! The brain: step(state, event) -> actions. No clock, no randomness, no IO, no async.
