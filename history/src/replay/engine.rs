//! Matcher and diagnosis of the live system over recorded evidence, with the clock of the log.

use std::sync::Arc;

use rankguard_diagnosis::{ConcludedDraft, Diagnosis, DraftChange, DraftPolicy, PlacementIndex};
use rankguard_faults::{Catalogue, SignatureMatcher};
use rankguard_model::{Classification, Evidence, EvidenceId, EvidenceSource, NodeId, Sequence, Timestamp};

use super::item::ReplayItem;
use super::tally::ReplayTally;

/// Matcher and diagnosis of one catalogue.
pub(crate) struct ReplayEngine {
    catalogue: Catalogue,
    matcher: Arc<SignatureMatcher>,
    diagnosis: Diagnosis,
    context: PlacementIndex,
    now: Timestamp,
    taken: u64,
}

impl ReplayEngine {
    /// Creates matcher and diagnosis for a catalogue.
    pub(crate) fn new(catalogue: &Catalogue) -> Self {
        Self {
            catalogue: catalogue.clone(),
            matcher: Arc::new(SignatureMatcher::new(catalogue)),
            diagnosis: Diagnosis::new(DraftPolicy::default()),
            context: PlacementIndex::default(),
            now: Timestamp(i64::MIN),
            taken: 0,
        }
    }

    /// Creates another instance of the same catalogue without state; it shares the matcher.
    pub(super) fn twin(&self) -> Self {
        Self {
            catalogue: self.catalogue.clone(),
            matcher: Arc::clone(&self.matcher),
            diagnosis: Diagnosis::new(DraftPolicy::default()),
            context: PlacementIndex::default(),
            now: Timestamp(i64::MIN),
            taken: 0,
        }
    }

    pub(super) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    pub(crate) fn matcher(&self) -> Arc<SignatureMatcher> {
        Arc::clone(&self.matcher)
    }

    pub(super) fn marks(&self, source: EvidenceSource, text: &str) -> Vec<Classification> {
        self.matcher.marks(source, text)
    }

    /// Processes one item that this catalogue classifies.
    pub(super) fn take(&mut self, item: &ReplayItem, which: usize, tally: &mut ReplayTally) {
        let id = EvidenceId {
            node: item.node.clone(),
            seq: Sequence(self.taken + 1),
        };
        let Some(evidence) = item.evidence(which, id) else {
            return;
        };
        if which == 0 {
            tally.evidence += 1;
            tally.sources.insert(item.source);
        }
        self.observe(&evidence, |concluded, now| tally.conclude(which, concluded, now));
    }

    /// Processes evidence, after everything that is due before it.
    pub(crate) fn observe(&mut self, evidence: &Evidence, mut each: impl FnMut(&ConcludedDraft, Timestamp)) {
        self.taken += 1;
        self.until(evidence.at, &mut each);
        self.now = self.now.max(evidence.at);
        let changes = self
            .diagnosis
            .observe(self.now, evidence, &self.context, &self.catalogue);
        for change in changes {
            if let DraftChange::Revised(concluded) = change {
                each(&concluded, self.now);
            }
        }
    }

    /// Concludes cases that are due up to a moment, each at its own time.
    fn until(&mut self, moment: Timestamp, each: &mut impl FnMut(&ConcludedDraft, Timestamp)) {
        while let Some(due) = self.diagnosis.due().filter(|due| *due <= moment) {
            self.now = self.now.max(due);
            for concluded in self.diagnosis.conclude(self.now, &self.catalogue) {
                each(&concluded, self.now);
            }
        }
    }

    /// Concludes all open cases at the end of the log, each at its own time.
    pub(super) fn finish(&mut self, which: usize, tally: &mut ReplayTally) {
        self.until(Timestamp(i64::MAX), &mut |concluded, now| {
            tally.conclude(which, concluded, now)
        });
    }

    /// Concludes all open cases and passes each to `each`.
    pub(crate) fn finish_with(&mut self, mut each: impl FnMut(&ConcludedDraft, Timestamp)) {
        self.until(Timestamp(i64::MAX), &mut each);
    }
}

/// Returns the node of a generated line.
pub(crate) fn node(number: u64) -> NodeId {
    NodeId::from(format!("node-{number}"))
}
