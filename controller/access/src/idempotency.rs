//! Idempotency keys: a request that is repeated with its key is not carried out twice.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rankguard_model::Timestamp;

use crate::audit::{AuditEntry, AuditOutcome};

/// Most keys that are remembered, and the time for which they are.
const KEYS_MAX: usize = 4_096;
const RETENTION: Duration = Duration::from_secs(86_400);

/// State of the request with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// No request had the key: the caller carries the request out and reports its result.
    New,
    /// The same request with the key was carried out; the number of its record in the audit log.
    Done(u64),
    /// The same request is being carried out, or its result is not known.
    Unsettled,
    /// Another request had the key.
    Mismatch,
}

#[derive(Debug, Clone)]
struct KeyedRequest {
    fingerprint: String,
    at: Timestamp,
    done: Option<u64>,
}

/// Table of the keys of each caller.
#[derive(Debug, Default)]
pub struct IdempotencyTable {
    requests: Mutex<BTreeMap<(String, String), KeyedRequest>>,
}

impl IdempotencyTable {
    /// Creates the table from the records of earlier starts, oldest first.
    pub fn from_entries<'e>(entries: impl IntoIterator<Item = &'e AuditEntry>) -> Self {
        let table = Self::default();
        for entry in entries {
            let Some(key) = &entry.key else { continue };
            let Some((key, fingerprint)) = key.split_once(' ') else {
                continue;
            };
            if table.begin(&entry.actor, key, fingerprint, entry.at) == KeyState::New {
                match entry.outcome {
                    AuditOutcome::Done => table.settle(&entry.actor, key, Some(entry.seq)),
                    AuditOutcome::Refused => table.settle(&entry.actor, key, None),
                    AuditOutcome::Unknown => {}
                }
            }
        }
        table
    }

    /// Begins a request with a key. `fingerprint` identifies its content.
    pub fn begin(&self, actor: &str, key: &str, fingerprint: &str, now: Timestamp) -> KeyState {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (actor.to_owned(), key.to_owned());
        match requests.get(&id).filter(|request| now.since(request.at) < RETENTION) {
            Some(known) if known.fingerprint != fingerprint => return KeyState::Mismatch,
            Some(known) => return known.done.map_or(KeyState::Unsettled, KeyState::Done),
            None => {}
        }
        if requests.len() >= KEYS_MAX {
            requests.retain(|_, request| now.since(request.at) < RETENTION);
            if requests.len() >= KEYS_MAX {
                remove_oldest(&mut requests);
            }
        }
        let fingerprint = fingerprint.to_owned();
        requests.insert(
            id,
            KeyedRequest {
                fingerprint,
                at: now,
                done: None,
            },
        );
        KeyState::New
    }

    /// Records the result of a request: the number of its record, or `None` if it was refused and may be repeated. A
    /// request with an unknown result is not settled.
    pub fn settle(&self, actor: &str, key: &str, done: Option<u64>) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (actor.to_owned(), key.to_owned());
        match (requests.get_mut(&id), done) {
            (Some(request), Some(_)) => request.done = done,
            (Some(_), None) => drop(requests.remove(&id)),
            (None, _) => {}
        }
    }
}

/// Removes the oldest key of the caller with the most keys, so that no caller displaces the keys of another with fewer.
fn remove_oldest(requests: &mut BTreeMap<(String, String), KeyedRequest>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (actor, _) in requests.keys() {
        *counts.entry(actor).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    let Some(most) = most.map(|(actor, _)| actor.to_owned()) else {
        return;
    };
    let of_caller = requests.iter().filter(|((actor, _), _)| *actor == most);
    let oldest = of_caller.min_by_key(|(_, request)| request.at);
    if let Some(id) = oldest.map(|(id, _)| id.clone()) {
        requests.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_is_not_carried_out_again() {
        let table = IdempotencyTable::default();
        let begin = |actor: &str, print: &str| table.begin(actor, "k", print, Timestamp(5));
        assert_eq!(begin("a", "x"), KeyState::New);
        assert_eq!(begin("a", "x"), KeyState::Unsettled);
        assert_eq!(begin("b", "x"), KeyState::New, "keys belong to a caller");
        table.settle("a", "k", Some(7));
        assert_eq!(begin("a", "x"), KeyState::Done(7));
        assert_eq!(begin("a", "y"), KeyState::Mismatch);
        table.settle("b", "k", None);
        assert_eq!(begin("b", "y"), KeyState::New, "a refused request may be repeated");
        let next_day = Timestamp(5).after(RETENTION);
        assert_eq!(table.begin("a", "k", "y", next_day), KeyState::New);
    }

    #[test]
    fn the_table_is_bounded() {
        let table = IdempotencyTable::default();
        for number in 0..2 * KEYS_MAX {
            let at = Timestamp(i64::try_from(number).expect("small"));
            assert_eq!(table.begin("a", &number.to_string(), "x", at), KeyState::New);
        }
        assert_eq!(table.requests.lock().expect("sound").len(), KEYS_MAX);
    }

    #[test]
    fn a_caller_with_many_keys_displaces_no_key_of_another() {
        let table = IdempotencyTable::default();
        assert_eq!(table.begin("b", "k", "x", Timestamp(0)), KeyState::New);
        table.settle("b", "k", Some(7));
        for number in 0..2 * KEYS_MAX {
            let at = Timestamp(1 + i64::try_from(number).expect("small"));
            assert_eq!(table.begin("a", &number.to_string(), "x", at), KeyState::New);
        }
        assert_eq!(table.begin("b", "k", "x", Timestamp(9)), KeyState::Done(7));
    }
}
