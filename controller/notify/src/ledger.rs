//! Ledger of a receiver: what was delivered, in a file, so that a restarted controller repeats nothing and misses
//! nothing.
//!
//! The file is replaced atomically after each delivery. A controller that is killed between a delivery and that write
//! delivers the message once more, with the same key.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use rankguard_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::incident::{Incident, IncidentKey};

/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
const FILE_MODE: u32 = 0o600;

/// Message that is due.
#[derive(Debug, Clone, PartialEq)]
pub struct DueMessage {
    /// Name of the event in the message.
    pub event: &'static str,
    pub incident: Incident,
    /// Suppressed messages that it counts.
    pub summarizes: u64,
}

/// Deliveries to one receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeliveryLedger {
    /// Incidents by key.
    pub(crate) entries: BTreeMap<String, LedgerEntry>,
    /// Messages that the rate limit suppressed since the last summary.
    #[serde(default)]
    pub(crate) suppressed: u64,
    /// Time of the first of them.
    #[serde(default)]
    pub(crate) suppressed_since: Option<Timestamp>,
    /// True before the first plan of a receiver that is new: incidents that have ended are not reported.
    #[serde(skip)]
    pub(crate) is_new: bool,
}

/// Last known message of an incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LedgerEntry {
    /// Beginning of the incident. Another beginning of the same case number is another case.
    pub(crate) opened_at: Timestamp,
    /// [`Incident::mark`] of the message.
    pub(crate) mark: String,
    /// True if the receiver has a message of the incident.
    pub(crate) is_sent: bool,
    /// Incident as it was sent; absent if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) active: Option<Box<Incident>>,
}

impl DeliveryLedger {
    /// Returns the ledger of a receiver without deliveries.
    pub fn new() -> Self {
        Self {
            is_new: true,
            ..Self::default()
        }
    }

    /// Reads a ledger; a missing file is a new receiver.
    pub fn read(path: &Path) -> io::Result<Self> {
        match rankguard_files::read_text(path, FILE_BYTES_MAX) {
            Ok(text) => serde_json::from_str(&text).map_err(io::Error::from),
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(Self::new()),
            Err(problem) => Err(problem),
        }
    }

    /// Replaces the file.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        rankguard_files::private::replace_file(path, &text, FILE_MODE)
    }

    /// Records a message that the receiver took.
    pub fn delivered(&mut self, message: &DueMessage) {
        if message.summarizes > 0 {
            self.summarize(message.summarizes);
        } else {
            self.record(&message.incident, true);
        }
    }

    /// Records a message that the receiver refused, so that it is not sent again.
    pub fn refused(&mut self, message: &DueMessage) {
        if message.summarizes > 0 {
            self.summarize(message.summarizes);
        } else {
            self.record(&message.incident, false);
        }
    }

    /// Records a message; `is_sent` is false if it was suppressed or refused.
    pub(crate) fn record(&mut self, incident: &Incident, is_sent: bool) {
        let key = incident.key.to_string();
        let known = self.entries.get(&key).filter(|entry| entry.is_of(incident));
        let was_sent = known.is_some_and(|entry| entry.is_sent);
        let entry = LedgerEntry {
            opened_at: incident.opened_at,
            mark: incident.mark(),
            is_sent: is_sent || was_sent,
            active: (!incident.stage.is_end() && !incident.is_report()).then(|| Box::new(incident.clone())),
        };
        self.entries.insert(key, entry);
    }

    /// Records that a summary counted suppressed messages.
    fn summarize(&mut self, count: u64) {
        self.suppressed = self.suppressed.saturating_sub(count);
        self.suppressed_since = self.suppressed_since.filter(|_| self.suppressed > 0);
    }

    /// Counts a message that the rate limit suppressed.
    pub(crate) fn suppress(&mut self, incident: &Incident, now: Timestamp) {
        self.record(incident, false);
        self.suppressed += 1;
        self.suppressed_since.get_or_insert(now);
    }
}

impl LedgerEntry {
    /// Returns true if the entry is of this incident: a case number is used again after the loss of a journal, and each period has
    /// a report.
    pub(crate) fn is_of(&self, incident: &Incident) -> bool {
        let is_numbered = matches!(incident.key, IncidentKey::Case(_)) || incident.is_report();
        !is_numbered || self.opened_at == incident.opened_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::NoticeKind;

    #[test]
    fn a_ledger_comes_back_from_its_file_and_a_missing_file_is_a_new_receiver() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("notify-hook.json");
        assert!(DeliveryLedger::read(&path).expect("no file").is_new);
        let mut ledger = DeliveryLedger::default();
        let incident = Incident::notice(NoticeKind::Test, "text".to_owned(), Vec::new(), Timestamp(7));
        ledger.suppress(&incident, Timestamp(9));
        ledger.write(&path).expect("a writable folder");
        assert_eq!(DeliveryLedger::read(&path).expect("the file just written"), ledger);
        std::fs::write(&path, "{").expect("a writable folder");
        assert!(DeliveryLedger::read(&path).is_err());
    }
}
