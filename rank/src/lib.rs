//! The trainer's side: one socket to the agent, step marks, checkpoint and restore.
