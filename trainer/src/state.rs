//! Small (non-tensor) state of a checkpoint.

use rankguard_model::Rank;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::FailureCause;
use crate::ledger::SampleLedger;
use crate::schedule::SampleSchedule;

/// State that a rank saves in addition to its tensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrainerState {
    /// Epoch of the next step.
    pub(crate) epoch: u64,
    /// Number of completed steps.
    pub(crate) step: u64,
    /// Hash of the settings that determine the trained bits: a checkpoint of other settings must not be continued.
    pub(crate) settings: u64,
    /// Samples that this rank consumed; rank 0 includes those of earlier generations.
    pub(crate) ledger: SampleLedger,
}

impl TrainerState {
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("numbers and lists of them are JSON")
    }

    /// Checks that the states of all shards belong to one step of this run; returns their merged ledgers.
    pub(crate) fn merge(
        states: Vec<(Rank, Value)>,
        step: u64,
        settings: u64,
        schedule: &SampleSchedule,
    ) -> Result<SampleLedger, FailureCause> {
        let refuse = |problem: String| FailureCause::State { step, problem };
        let mut merged = SampleLedger::default();
        for (rank, value) in states {
            let state: Self =
                serde_json::from_value(value).map_err(|e| refuse(format!("the state of rank {rank} is none: {e}")))?;
            if state.step != step {
                return Err(refuse(format!("the state of rank {rank} is of step {}", state.step)));
            }
            if state.settings != settings {
                return Err(refuse(format!(
                    "rank {rank} was saved by a run with other settings; start afresh or give the same"
                )));
            }
            merged.merge(&state.ledger);
        }
        let due = schedule.consumed_after(step);
        if merged.total() != due {
            let has = merged.total();
            return Err(refuse(format!(
                "the ledgers tell of {has} samples consumed, want {due}"
            )));
        }
        Ok(merged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEDULE: SampleSchedule = SampleSchedule {
        samples: 10,
        batch: 4,
        epochs: 2,
        virtual_ranks: 2,
    };

    fn check(change: impl FnOnce(&mut TrainerState), expect: Option<&str>) {
        let mut ledger = SampleLedger::default();
        ledger.add(0, 0..8);
        let mut state = TrainerState {
            epoch: 0,
            step: 2,
            settings: 7,
            ledger,
        };
        change(&mut state);
        let merged = TrainerState::merge(vec![(Rank(0), state.to_value())], 2, 7, &SCHEDULE);
        match expect {
            None => assert_eq!(merged.expect("accepted").total(), 8),
            Some(text) => {
                let error = merged.expect_err("refused").to_string();
                assert!(error.contains(text), "{error}");
            }
        }
    }

    #[test]
    fn rg2_states_of_another_step_run_or_ledger_are_refused() {
        check(|_| {}, None);
        check(|s| s.step = 3, Some("of step 3"));
        check(|s| s.settings = 8, Some("other settings"));
        check(|s| s.ledger.add(0, 8..9), Some("9 samples consumed, want 8"));
    }
}
