//! Facts that the loop reports when they change.

use std::collections::{BTreeMap, BTreeSet};

use rankguard_kubernetes::SyncPlan;
use tracing::{error, info};

use super::super::scheduler_sides::{ReportedExceptions, report_silence};
use super::pairs::{held_back, overruled_text};

/// Facts as they were last reported.
#[derive(Debug, Default)]
pub(super) struct ReportedFacts {
    kubernetes_problem: Option<String>,
    controller_problem: Option<String>,
    lease_problem: Option<String>,
    lease_holder: Option<String>,
    exceptions: ReportedExceptions,
    overruled: Vec<String>,
    /// Actions of a shadow run.
    would_have: BTreeSet<String>,
    /// Number of actions of a shadow run by rule.
    counts: BTreeMap<&'static str, u64>,
}

impl ReportedFacts {
    /// Reports the begin and the end of a silence of Kubernetes.
    pub(super) fn kubernetes(&mut self, problem: Option<&String>) {
        report_silence("Kubernetes", &mut self.kubernetes_problem, problem);
    }

    /// Reports the begin and the end of a silence of the controller.
    pub(super) fn controller(&mut self, problem: Option<&String>) {
        report_silence("the controller", &mut self.controller_problem, problem);
    }

    /// Reports problems with the lease.
    pub(super) fn lease(&mut self, problem: Option<&String>) {
        report_silence("the lease", &mut self.lease_problem, problem);
    }

    /// Reports another holder of the lease, or that this program has it.
    pub(super) fn holder(&mut self, holder: &str, is_own: bool) {
        if self.lease_holder.as_deref() == Some(holder) {
            return;
        }
        if is_own {
            info!(holder, "this program holds the lease and acts");
        } else {
            info!(holder, "another program holds the lease; this one waits");
        }
        self.lease_holder = Some(holder.to_owned());
    }

    /// Reports nodes of one side only, nodes beyond the limit and overruled nodes.
    pub(super) fn plan(&mut self, unpaired: BTreeSet<String>, plan: &SyncPlan) {
        self.exceptions.report(unpaired, &held_back(plan));
        if !plan.overruled.is_empty() && plan.overruled != self.overruled {
            error!("{}", overruled_text(&plan.overruled));
        }
        self.overruled.clone_from(&plan.overruled);
    }

    /// Reports and counts actions that a shadow run does not carry out, each once until it is due no more.
    pub(super) fn shadow(&mut self, due: Vec<(&'static str, String)>) {
        let texts: BTreeSet<String> = due.iter().map(|(_, text)| text.clone()).collect();
        for (rule, text) in due {
            if !self.would_have.contains(&text) {
                *self.counts.entry(rule).or_default() += 1;
                info!(rule, "would have: {text}");
            }
        }
        self.would_have = texts;
    }

    /// Number of actions of a shadow run by rule.
    pub(super) fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }
}
