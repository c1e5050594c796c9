//! Arena, tiers, commit, restore and verification of sharded checkpoints.
