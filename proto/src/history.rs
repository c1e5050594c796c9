//! Conversion of spool epochs, journal marks and fences, the history in a join, between wire and model.

use rankguard_model::{Generation, JobFence, JobId, JournalMark, Sequence, SpoolEpoch};

use crate::WireError;
use crate::error::name;
use crate::v1;

impl From<&SpoolEpoch> for v1::SpoolEpoch {
    fn from(epoch: &SpoolEpoch) -> Self {
        Self {
            id: epoch.id,
            end: epoch.end.0,
        }
    }
}

impl TryFrom<v1::SpoolEpoch> for SpoolEpoch {
    type Error = WireError;

    fn try_from(epoch: v1::SpoolEpoch) -> Result<Self, WireError> {
        Ok(Self {
            id: random("id", epoch.id)?,
            end: Sequence(epoch.end),
        })
    }
}

impl From<&JournalMark> for v1::JournalMark {
    fn from(mark: &JournalMark) -> Self {
        Self {
            journal: mark.journal,
            life: mark.life,
            position: mark.position,
        }
    }
}

impl TryFrom<v1::JournalMark> for JournalMark {
    type Error = WireError;

    fn try_from(mark: v1::JournalMark) -> Result<Self, WireError> {
        Ok(Self {
            journal: random("journal", mark.journal)?,
            life: random("life", mark.life)?,
            position: mark.position,
        })
    }
}

impl From<&JobFence> for v1::JobFence {
    fn from(fence: &JobFence) -> Self {
        Self {
            job: fence.job.to_string(),
            generation: fence.generation.0,
            life: fence.life,
        }
    }
}

impl TryFrom<v1::JobFence> for JobFence {
    type Error = WireError;

    fn try_from(fence: v1::JobFence) -> Result<Self, WireError> {
        Ok(Self {
            job: JobId::from(name("job", fence.job)?),
            generation: Generation(fence.generation),
            life: fence.life,
        })
    }
}

/// Maximum entries of each list in a join. Agents send at most 64 fences and 32 epochs.
const ENTRIES_MAX: usize = 256;

/// Returns the list, or an error for `field` if it has more than [`ENTRIES_MAX`] entries.
pub(crate) fn at_most<T>(field: &str, values: Vec<T>) -> Result<Vec<T>, WireError> {
    if values.len() > ENTRIES_MAX {
        let count = values.len();
        return Err(WireError::new(
            field,
            format!("{count} entries, but {ENTRIES_MAX} are the most"),
        ));
    }
    Ok(values)
}

/// Returns a random id, or an error for `field` if it is 0, which a missing field decodes to.
fn random(field: &str, value: u64) -> Result<u64, WireError> {
    if value == 0 {
        return Err(WireError::new(field, "0, but such a number is random and never 0"));
    }
    Ok(value)
}
