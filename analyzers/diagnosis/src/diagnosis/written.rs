//! Serialised form of a diagnosis, without indexes that can be rebuilt.

use std::collections::BTreeMap;

use rankguard_model::{Generation, JobId, Shared};
use serde::{Deserialize, Serialize};

use super::Diagnosis;
use crate::attribution::Clearings;
use crate::draft::Draft;
use crate::drafts::Drafts;
use crate::flight::Dumps;
use crate::glimpse::Glimpse;
use crate::memory::Memory;
use crate::steps::Steps;
use crate::{Policy, Sign};

#[derive(Serialize, Deserialize)]
pub(super) struct Written {
    policy: Policy,
    opened: u64,
    /// Drafts, oldest first.
    drafts: Vec<Draft>,
    /// Remembered signs, in order of arrival.
    memory: Vec<Shared<Sign>>,
    progress: Steps,
    #[serde(default)]
    flight: Dumps,
    #[serde(default)]
    made_up: BTreeMap<JobId, Generation>,
    #[serde(default)]
    clearings: Clearings,
    #[serde(default)]
    has_case_ends: bool,
}

impl From<Diagnosis> for Written {
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
        }
    }
}

impl From<Written> for Diagnosis {
    fn from(written: Written) -> Self {
        let mut memory = Memory::default();
        for sign in &written.memory {
            memory.hold(&Glimpse::of(sign), &written.policy);
        }
        Self {
            drafts: Drafts::of(written.drafts, &written.policy),
            policy: written.policy,
            opened: written.opened,
            memory,
            steps: written.progress,
            flight: written.flight,
            made_up: written.made_up,
            clearings: written.clearings,
            has_case_ends: written.has_case_ends,
        }
    }
}
