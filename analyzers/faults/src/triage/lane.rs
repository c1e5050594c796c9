//! A lane: what one rank, or one kernel, is in the middle of saying.

use std::collections::VecDeque;

use rankguard_model::Timestamp;

use super::{IDLE, oom, traceback};

/// Unremarkable lines kept before a remarkable one.
const RECENT: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) traceback: traceback::Tracker,
    pub(super) oom: oom::Tracker,
    /// A GPU that a driver message has begun to speak of: line number and PCI address.
    pub(super) gpu: Option<(u64, String)>,
    recent: VecDeque<String>,
    last: Timestamp,
}

impl Lane {
    pub(super) fn touch(&mut self, now: Timestamp) {
        self.last = now;
    }

    pub(super) fn last_at(&self) -> Timestamp {
        self.last
    }

    pub(super) fn remember(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(text[..text.floor_char_boundary(1024)].to_owned());
    }

    pub(super) fn recent(&self) -> Vec<String> {
        self.recent.iter().cloned().collect()
    }

    /// When the open unit, if there is one, has been quiet for long enough.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let open = self.traceback.is_open() || self.oom.is_open();
        open.then(|| self.last.after(IDLE))
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}
