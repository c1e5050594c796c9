//! Storage of the trainer's state: the agent of the node, none, or a test's memory.

use rankguard_checkpoint_format::TensorBox;
use rankguard_model::Step;
use rankguard_rank::{ClientError, RankClient, RestoredTensors, SaveOutcome, SaveReport};
use serde_json::Value;

/// Storage that the trainer requires.
pub trait CheckpointBackend {
    /// Returns true if a checkpoint is due at the end of this step.
    fn due(&mut self, step: Step) -> bool;
    /// Returns exactly these boxes of the checkpoint to start from; `None` for a fresh start.
    fn restore(&mut self, wanted: &[TensorBox]) -> Result<Option<RestoredTensors>, ClientError>;
    /// Records a completed step.
    fn step(&mut self, step: Step, loss: f64, step_ms: f64);
    /// Saves the tensors; they may be changed when it returns.
    fn save(&mut self, step: Step, tensors: &[(TensorBox, &[u8])], state: &Value) -> Result<SaveReport, ClientError>;
    /// Reports that all work is done.
    fn done(&mut self) -> Result<(), ClientError>;
}

impl CheckpointBackend for RankClient {
    fn due(&mut self, step: Step) -> bool {
        Self::due(self, step)
    }

    fn restore(&mut self, wanted: &[TensorBox]) -> Result<Option<RestoredTensors>, ClientError> {
        // Without checkpoints there is none to start from, and no arena is needed.
        if self.checkpoint_every() == 0 {
            return Ok(None);
        }
        Self::restore(self, wanted)
    }

    fn step(&mut self, step: Step, loss: f64, step_ms: f64) {
        Self::step(self, step, Some(loss), step_ms);
    }

    fn save(&mut self, step: Step, tensors: &[(TensorBox, &[u8])], state: &Value) -> Result<SaveReport, ClientError> {
        self.checkpoint(step, tensors, state)
    }

    fn done(&mut self) -> Result<(), ClientError> {
        Self::done(self)
    }
}

/// Training without an agent: nothing is saved.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCheckpoints;

impl CheckpointBackend for NoCheckpoints {
    fn due(&mut self, _: Step) -> bool {
        false
    }

    fn restore(&mut self, _: &[TensorBox]) -> Result<Option<RestoredTensors>, ClientError> {
        Ok(None)
    }

    fn step(&mut self, _: Step, _: f64, _: f64) {}

    fn save(&mut self, _: Step, _: &[(TensorBox, &[u8])], _: &Value) -> Result<SaveReport, ClientError> {
        Ok(SaveReport {
            stall: std::time::Duration::ZERO,
            outcome: SaveOutcome::SkippedNoFreeSlot,
        })
    }

    fn done(&mut self) -> Result<(), ClientError> {
        Ok(())
    }
}
