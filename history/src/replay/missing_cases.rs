//! Cases of a journal that its evidence alone does not reproduce.
//!
//! A silent agent, a command of an operator or a comparison of ranks is a fact that the controller recorded itself, with
//! sequence number 0 in place of that of an agent's spool. `--into` sends the evidence of agents only, so a case that
//! begins with such a fact is missing in the controller that receives the replay; evidence of its consequences may open others.

use std::collections::BTreeMap;
use std::path::Path;

use rankguard_model::{Case, CaseState, Sequence};
use serde::Serialize;

use super::tally::NamedCounts;

/// Cases of one journal, and those that are missing after its evidence was sent.
#[derive(Debug, Clone, Serialize)]
pub(super) struct MissingCases {
    /// Path of the journal or of its state directory.
    journal: String,
    /// Number of concluded cases of the journal.
    cases: usize,
    /// Number of cases that begin with a fact of the controller, by class.
    missing: NamedCounts,
}

impl MissingCases {
    /// Replays a journal and counts its cases. Returns `None` if the journal cannot be read; its evidence then is
    /// incomplete as well, which is reported elsewhere.
    pub(super) fn of_journal(path: &Path) -> Option<Self> {
        let replayed = rankguard_journal::cases(path, u64::MAX, None, |_| {}, |_| {}).ok()?;
        let concluded = || replayed.cases.iter().filter(|case| case.state != CaseState::Open);
        let mut missing = BTreeMap::new();
        for case in concluded().filter(|case| is_of_controller(case)) {
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
            "{}: {} of its {} cases begin with a fact of its controller ({}), such as a silent agent or a command; only \
             the evidence of agents is sent, so the controller has no such cases, and evidence of their consequences may \
             open others; `rankguard replay {}` shows all of the journal",
            self.journal,
            self.missing.values().sum::<u64>(),
            self.cases,
            classes.join(", "),
            self.journal
        ))
    }
}

fn is_of_controller(case: &Case) -> bool {
    let first = case.verdict.first_cause.as_ref();
    first.is_none_or(|first| first.seq == Sequence(0))
}
