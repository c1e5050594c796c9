//! Cases of a journal that its evidence alone does not reproduce.
//!
//! Silent agents, commands of operators, comparisons of ranks and jobs are facts that the controller recorded itself.
//! `--into` sends the evidence of agents only, so a case that needs such a fact is missing in the controller that
//! receives the replay; evidence of its consequences may open others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rankguard_diagnosis::ConcludedDraft;
use rankguard_model::{Case, CaseState, EvidenceId, Role, Timestamp};
use serde::Serialize;

use super::engine::ReplayEngine;
use super::tally::NamedCounts;

/// Cases of one journal, and those that are missing after its evidence was sent.
#[derive(Debug, Clone, Serialize)]
pub(super) struct MissingCases {
    /// Path of the journal or of its state directory.
    journal: String,
    /// Number of concluded cases of the journal.
    cases: usize,
    /// Number of cases by class that the evidence alone does not reproduce: none of its cases has their first cause.
    missing: NamedCounts,
}

impl MissingCases {
    /// Replays a journal, and its evidence alone, and compares the cases. Returns `None` if the journal cannot be read; its
    /// evidence then is incomplete as well, which is reported elsewhere.
    pub(super) fn of_journal(path: &Path, engine: &ReplayEngine) -> Option<Self> {
        let replayed = rankguard_journal::cases(path, u64::MAX, None, |_| {}, |_| {}).ok()?;
        let alone = explained_evidence(path, engine.twin());
        let concluded = || replayed.cases.iter().filter(|case| case.state != CaseState::Open);
        let mut missing = BTreeMap::new();
        for case in concluded().filter(|case| !is_explained(case, &alone)) {
            *missing.entry(case.verdict.class.to_string()).or_default() += 1;
        }
        Some(Self {
            journal: path.display().to_string(),
            cases: concluded().count(),
            missing,
        })
    }

    /// Describes the missing cases, or returns `None` if there are none.
    pub(super) fn note(&self) -> Option<String> {
        if self.missing.is_empty() {
            return None;
        }
        let classes: Vec<String> = self
            .missing
            .iter()
            .map(|(class, count)| format!("{class} {count}"))
            .collect();
        Some(format!(
            "{}: {} of its {} cases need facts of its controller ({}), such as a silent agent, a command or a job; only the \
             evidence of agents is sent, so the controller has no such cases, and evidence of their consequences may open \
             others; `rankguard replay {}` shows all of the journal",
            self.journal,
            self.missing.values().sum::<u64>(),
            self.cases,
            classes.join(", "),
            self.journal
        ))
    }
}

/// Returns the evidence that cases contain which follow from the evidence of a journal alone.
fn explained_evidence(path: &Path, mut engine: ReplayEngine) -> BTreeSet<EvidenceId> {
    let mut explained = BTreeSet::new();
    let mut collect = |concluded: &ConcludedDraft, _: Timestamp| {
        let findings = concluded.findings.iter().filter(|finding| finding.role != Role::Noise);
        explained.extend(findings.map(|finding| finding.evidence.clone()));
    };
    let mut now = Timestamp(i64::MIN);
    // Errors of reading are reported where the evidence is sent.
    let _ = rankguard_journal::evidence(path, |entry| {
        if let Ok(mut evidence) = entry {
            now = now.max(evidence.at);
            evidence.at = now;
            engine.observe(&evidence, &mut collect);
        }
        true
    });
    engine.finish_with(&mut collect);
    explained
}

fn is_explained(case: &Case, explained: &BTreeSet<EvidenceId>) -> bool {
    let first = case.verdict.first_cause.as_ref();
    first.is_some_and(|first| explained.contains(first))
}
