//! A seeded world around the brain: scripts with golden transcripts.
