//! Matcher and diagnosis of the live system over recorded evidence, with the clock of the log.

use std::sync::Arc;

use rankguard_diagnosis::{Change, Concluded, Context, Diagnosis, Policy};
use rankguard_faults::{Catalogue, Matcher};
use rankguard_model::{Evidence, EvidenceId, Mark, NodeId, Sequence, Source, Timestamp};

use super::item::Item;
use super::tally::Tally;

/// Matcher and diagnosis of one catalogue.
pub(crate) struct Brain {
    catalogue: Catalogue,
    matcher: Arc<Matcher>,
    diagnosis: Diagnosis,
    context: Context,
    now: Timestamp,
    taken: u64,
}

impl Brain {
    /// Creates matcher and diagnosis for a catalogue.
    pub(crate) fn new(catalogue: &Catalogue) -> Self {
        Self {
            catalogue: catalogue.clone(),
            matcher: Arc::new(Matcher::new(catalogue)),
            diagnosis: Diagnosis::new(Policy::default()),
            context: Context::default(),
            now: Timestamp(i64::MIN),
            taken: 0,
        }
    }

    /// Creates another instance of the same catalogue without state; it shares the matcher.
    pub(super) fn twin(&self) -> Self {
        Self {
            catalogue: self.catalogue.clone(),
            matcher: Arc::clone(&self.matcher),
            diagnosis: Diagnosis::new(Policy::default()),
            context: Context::default(),
            now: Timestamp(i64::MIN),
            taken: 0,
        }
    }

    pub(super) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    pub(crate) fn matcher(&self) -> Arc<Matcher> {
        Arc::clone(&self.matcher)
    }

    pub(super) fn marks(&self, source: Source, text: &str) -> Vec<Mark> {
        self.matcher.marks(source, text)
    }

    /// Processes one item that this catalogue classifies.
    pub(super) fn take(&mut self, item: &Item, which: usize, tally: &mut Tally) {
        let id = EvidenceId {
            node: item.node.clone(),
            seq: Sequence(self.taken + 1),
        };
        let Some(evidence) = item.evidence(which, id) else {
            return;
        };
        if which == 0 {
            tally.evidence += 1;
        }
        self.observe(&evidence, |concluded, now| tally.conclude(which, concluded, now));
    }

    /// Processes evidence, after everything that is due before it.
    pub(crate) fn observe(&mut self, evidence: &Evidence, mut each: impl FnMut(&Concluded, Timestamp)) {
        self.taken += 1;
        self.until(evidence.at, &mut each);
        self.now = self.now.max(evidence.at);
        let changes = self
            .diagnosis
            .observe(self.now, evidence, &self.context, &self.catalogue);
        for change in changes {
            if let Change::Revised(concluded) = change {
                each(&concluded, self.now);
            }
        }
    }

    /// Concludes cases that are due up to a moment, each at its own time.
    fn until(&mut self, moment: Timestamp, each: &mut impl FnMut(&Concluded, Timestamp)) {
        while let Some(due) = self.diagnosis.due().filter(|due| *due <= moment) {
            self.now = self.now.max(due);
            for concluded in self.diagnosis.conclude(self.now, &self.catalogue) {
                each(&concluded, self.now);
            }
        }
    }

    /// Concludes all open cases at the end of the log, each at its own time.
    pub(super) fn finish(&mut self, which: usize, tally: &mut Tally) {
        self.until(Timestamp(i64::MAX), &mut |concluded, now| {
            tally.conclude(which, concluded, now)
        });
    }

    /// Concludes all open cases and passes each to `each`.
    pub(crate) fn finish_with(&mut self, mut each: impl FnMut(&Concluded, Timestamp)) {
        self.until(Timestamp(i64::MAX), &mut each);
    }
}

/// Returns the node of a generated line.
pub(crate) fn node(number: u64) -> NodeId {
    NodeId::from(format!("node-{number}"))
}
