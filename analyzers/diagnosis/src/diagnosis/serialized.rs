//! Serialised form of a diagnosis, without indexes that can be rebuilt.

use std::collections::BTreeMap;

use rankguard_model::{Generation, JobId, SharedValue};
use serde::{Deserialize, Serialize};

use super::Diagnosis;
use crate::attribution::NodeClearings;
use crate::draft::Draft;
use crate::drafts::DraftTable;
use crate::flight::JobDumps;
use crate::memory::SignalMemory;
use crate::signal_ref::SignalRef;
use crate::steps::StepTimes;
use crate::{DraftPolicy, Signal};

#[derive(Serialize, Deserialize)]
pub(super) struct SerializedState {
    policy: DraftPolicy,
    opened: u64,
    /// Drafts, oldest first.
    drafts: Vec<Draft>,
    /// Remembered signs, in order of arrival.
    memory: Vec<SharedValue<Signal>>,
    progress: StepTimes,
    #[serde(default)]
    flight: JobDumps,
    #[serde(default)]
    made_up: BTreeMap<JobId, Generation>,
    #[serde(default)]
    clearings: NodeClearings,
    #[serde(default)]
    has_case_ends: bool,
    #[serde(default)]
    has_cause_limits: bool,
    #[serde(default)]
    has_fault_limits: bool,
}

impl From<Diagnosis> for SerializedState {
    fn from(diagnosis: Diagnosis) -> Self {
        Self {
            policy: diagnosis.policy,
            opened: diagnosis.opened,
            drafts: diagnosis.drafts.into_all(),
            memory: diagnosis.memory.into_signs(),
            progress: diagnosis.steps,
            flight: diagnosis.flight,
            made_up: diagnosis.made_up,
            clearings: diagnosis.clearings,
            has_case_ends: diagnosis.has_case_ends,
            has_cause_limits: diagnosis.has_cause_limits,
            has_fault_limits: diagnosis.has_fault_limits,
        }
    }
}

impl From<SerializedState> for Diagnosis {
    fn from(written: SerializedState) -> Self {
        let mut memory = SignalMemory::default();
        for sign in &written.memory {
            memory.insert_signal(&SignalRef::of(sign), &written.policy);
        }
        Self {
            drafts: DraftTable::of(written.drafts, &written.policy),
            policy: written.policy,
            opened: written.opened,
            memory,
            steps: written.progress,
            flight: written.flight,
            made_up: written.made_up,
            clearings: written.clearings,
            has_case_ends: written.has_case_ends,
            has_cause_limits: written.has_cause_limits,
            has_fault_limits: written.has_fault_limits,
            has_fault_ends: true,
            has_local_causes: true,
        }
    }
}
