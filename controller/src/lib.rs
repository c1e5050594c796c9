//! The shell around the brain: event loop, journal, rpc, executors.
