//! The live brain over recorded evidence: its clock is that of the log.

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
    /// Of this catalogue.
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

    /// Another brain of the same catalogue that has seen nothing; it shares the matcher.
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

    /// One item that this brain's catalogue marks.
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

    /// Takes evidence in, after everything that was due before it.
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

    /// Concludes what is due up to a moment, each at its own.
    fn until(&mut self, moment: Timestamp, each: &mut impl FnMut(&Concluded, Timestamp)) {
        while let Some(due) = self.diagnosis.due().filter(|due| *due <= moment) {
            self.now = self.now.max(due);
            for concluded in self.diagnosis.conclude(self.now, &self.catalogue) {
                each(&concluded, self.now);
            }
        }
    }

    /// The log is over; what is open is concluded when its time comes.
    pub(super) fn finish(&mut self, which: usize, tally: &mut Tally) {
        self.until(Timestamp(i64::MAX), &mut |concluded, now| {
            tally.conclude(which, concluded, now)
        });
    }

    /// The same for whoever only counts.
    pub(crate) fn finish_with(&mut self, mut each: impl FnMut(&Concluded, Timestamp)) {
        self.until(Timestamp(i64::MAX), &mut each);
    }
}

/// The node that a made-up line comes from.
pub(crate) fn node(number: u64) -> NodeId {
    NodeId::from(format!("node-{number}"))
}
