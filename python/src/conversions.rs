//! Conversions between Python and Rust values that the sessions with an agent and with a local store share.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rankguard_checkpoint_format::TensorBox;
use rankguard_model::{Rank, Step};
use rankguard_rank::{BackPressure, RestoreSummary, SaveCounts, SaveNotes, SaveOutcome, SaveReport, TensorPart};
use serde_json::Value;

use crate::entry::{TensorInput, TensorTuple, entries};

/// Longest duration that a setting may name; sums of a few such durations and an instant do not overflow.
const MAX_DURATION: Duration = Duration::from_secs(1_000_000_000);

/// Success, seconds that the trainer waited, and the reason if there is no image.
pub(crate) type SaveTuple = (bool, Option<&'static str>);

/// Reason of saves that are skipped in a job without a store.
const NO_STORE: &str =
    "the job has no checkpoint store; submit it with `rankguard run --checkpoint-dir DIR --checkpoint-every STEPS`";
/// Reason of saves that are skipped because no slot is free.
const NO_SLOT: &str = "earlier images are not durable yet";

/// Step; the state of every rank as JSON text; tensors that the ranks saved with different content, each with the
/// difference; names of all tensors, if the states have no schema that lists them.
pub(crate) type RestoreTuple = (u64, Vec<(u32, String)>, Vec<(String, String)>, Vec<String>);

/// Locks a mutex; a poisoned one is used, because its content is consistent after every operation.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Converts seconds from Python. Fails outside of 0 to 1e9.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok();
    duration
        .filter(|duration| *duration <= MAX_DURATION)
        .ok_or_else(|| PyValueError::new_err(format!("{seconds} is no number of seconds to wait (0 to 1e9)")))
}

/// Parses the behaviour of a save when no slot is free; `wait_s` applies to `wait` only.
pub(crate) fn policy(when_full: &str, wait_s: f64) -> PyResult<BackPressure> {
    match when_full {
        "wait" => Ok(BackPressure::Wait(duration(wait_s)?)),
        "replace-oldest" => Ok(BackPressure::ReplaceOldest),
        "skip" => Ok(BackPressure::Skip),
        other => {
            let text = format!("when_full is {other:?}; it can be wait, replace-oldest or skip");
            Err(PyValueError::new_err(text))
        }
    }
}

/// Converts the report of a save.
pub(crate) fn outcome(saved: SaveReport) -> SaveTuple {
    let reason = match saved.outcome {
        SaveOutcome::Sealed => None,
        SaveOutcome::SkippedNoFreeSlot => Some(NO_SLOT),
        SaveOutcome::SkippedNoStore => Some(NO_STORE),
    };
    (reason.is_none(), reason)
}

/// Converts the summary of a restore.
pub(crate) fn given(restored: RestoreSummary) -> RestoreTuple {
    let text = |(rank, state): (Rank, Value)| (rank.0, state.to_string());
    let states = restored.states.into_iter().map(text).collect();
    (restored.step.0, states, restored.differing, restored.names)
}

/// Returns the counts of saves by the name of their outcome.
pub(crate) fn counted(counts: SaveCounts) -> Vec<(&'static str, u64)> {
    vec![
        ("sealed", counts.sealed),
        ("skipped", counts.skipped),
        ("waited", counts.waited),
        ("replaced", counts.replaced),
    ]
}

/// Parses the non-tensor state, which Python sends as JSON text.
pub(crate) fn state(text: &str) -> PyResult<Value> {
    serde_json::from_str(text).map_err(|problem| PyValueError::new_err(format!("the state is no JSON: {problem}")))
}

/// Returns the tensors for a save, borrowed.
pub(crate) fn borrowed(entries: &[TensorInput]) -> Vec<(TensorBox, &[u8])> {
    entries
        .iter()
        .map(|entry| (entry.boxed.clone(), entry.data.as_ref()))
        .collect()
}

/// Returns the buffers for a restore, borrowed mutably.
pub(crate) fn places(entries: &mut [TensorInput]) -> Vec<(TensorBox, &mut [u8])> {
    entries
        .iter_mut()
        .map(|entry| (entry.boxed.clone(), entry.data.as_mut()))
        .collect()
}

/// Returns the notes that a save records: the schema of its state, and the replica number of each tensor part.
pub(crate) fn notes(entries: &[TensorInput], schema: &str) -> SaveNotes {
    SaveNotes {
        schema: schema.to_owned(),
        replicas: entries.iter().map(|entry| entry.replica).collect(),
        ledger: None,
    }
}

/// Returns the tensors for a save in the background, with shared ownership of their memory.
pub(crate) fn parts(told: Vec<TensorTuple>, schema: &str) -> PyResult<(Vec<TensorPart>, SaveNotes)> {
    let entries = entries(told)?;
    let notes = notes(&entries, schema);
    let part = |entry: TensorInput| TensorPart {
        boxed: entry.boxed,
        data: Arc::new(entry.data),
    };
    Ok((entries.into_iter().map(part).collect(), notes))
}

pub(crate) fn step(step: u64) -> Step {
    Step(step)
}
