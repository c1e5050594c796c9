//! Result of a demo: the same facts for people and machines.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rankguard_model::{Case, CaseDelays, ClassId, JobView, RecommendedMitigation, SharedValue, StatusView};
use rankguard_trainer::ledger::LedgerReport;
use serde::Serialize;

/// Result of a demo.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DemoOutcome {
    /// True if the parameters after all failures equal those of the undisturbed run, byte for byte.
    pub(super) parameters_identical: bool,
    /// BLAKE3 digests of the parameters of both runs.
    pub(super) parameters: ParameterDigests,
    /// True if every sample was consumed exactly once in every epoch.
    pub(super) ledger_exact: bool,
    pub(super) ledger: LedgerReport,
    pub(super) cases: Vec<CaseFacts>,
    /// Optimizer steps that had to be repeated, over all cases.
    pub(super) steps_lost: u64,
    pub(super) checkpoint_stall_ms: StallTimes,
    pub(super) checkpoints_committed: usize,
    /// Reason for the end of the job with the bug; `None` with `--chaos`.
    pub(super) user_bug: Option<String>,
    /// Processes killed with `--chaos`; empty without it.
    pub(super) chaos: Vec<String>,
    /// Paths of `report.html` and `report.json`.
    pub(super) report: ReportPaths,
    pub(super) undisturbed_run_s: f64,
    pub(super) took_s: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct ParameterDigests {
    pub(super) disturbed: String,
    pub(super) undisturbed: String,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct ReportPaths {
    pub(super) html: PathBuf,
    pub(super) json: PathBuf,
}

/// One case, as the demo prints it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CaseFacts {
    pub(super) id: u64,
    pub(super) job: String,
    pub(super) class: ClassId,
    pub(super) layer: String,
    pub(super) blamed: String,
    pub(super) confidence: f64,
    pub(super) taxonomies: SharedValue<BTreeMap<String, Vec<String>>>,
    pub(super) mitigation: SharedValue<RecommendedMitigation>,
    pub(super) delays_ms: CaseDelays,
    pub(super) plan: Option<String>,
    /// Checkpoint that the new ranks loaded, and its source.
    pub(super) restored: Option<String>,
    pub(super) steps_lost: Option<u64>,
    pub(super) outcome: Option<String>,
}

impl CaseFacts {
    pub(super) fn of(case: &Case) -> Self {
        // A case records its actions as sentences; they are found by their first word.
        let action = |begin: &str| {
            let told = case.actions.iter().find_map(|action| action.text.strip_prefix(begin));
            told.map(str::to_owned)
        };
        Self {
            id: case.id.0,
            job: case.job.as_ref().map(ToString::to_string).unwrap_or_default(),
            class: case.verdict.class.clone(),
            layer: case.verdict.layer.clone(),
            blamed: case.verdict.blamed.to_string(),
            confidence: case.verdict.confidence,
            taxonomies: case.verdict.taxonomies.clone(),
            mitigation: case.verdict.mitigation.clone(),
            delays_ms: case.delays,
            plan: action("plan "),
            restored: action("restored "),
            steps_lost: case.steps_lost,
            outcome: case.outcome.clone(),
        }
    }
}

/// Wait of ranks for their checkpoints, in milliseconds per save and rank.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct StallTimes {
    pub(super) saves: usize,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) max: f64,
}

impl StallTimes {
    /// Computes the stalls over all committed checkpoints of a job.
    pub(super) fn of(job: &JobView) -> Self {
        let stalls = job
            .checkpoints
            .iter()
            .flat_map(|checkpoint| checkpoint.stall_ms.iter().map(|(_, stall)| *stall));
        let mut stalls: Vec<f64> = stalls.collect();
        stalls.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (stalls.len().saturating_sub(1) as f64 * share).round() as usize;
            stalls.get(place).copied().unwrap_or_default()
        };
        Self {
            saves: stalls.len(),
            p50: at(0.5),
            p95: at(0.95),
            max: at(1.0),
        }
    }
}

/// Checks and text form of the result.
impl DemoOutcome {
    pub(super) fn is_sound(&self) -> bool {
        self.parameters_identical && self.ledger_exact
    }

    /// Renders the result for people.
    pub(super) fn lines(&self, status: &StatusView) -> Vec<String> {
        let millis = |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
        let mut lines = vec![String::new()];
        lines.push(format!("{:<30}milliseconds after the fault to", ""));
        lines.push("case  class                   evidence    case    plan  fenced  first step  blamed".to_owned());
        for case in &self.cases {
            let delays = &case.delays_ms;
            lines.push(format!(
                "{:>4}  {:<22}  {:>8}  {:>6}  {:>6}  {:>6}  {:>10}  {}",
                case.id,
                case.class,
                millis(delays.evidence_ms),
                millis(delays.case_ms),
                millis(delays.plan_ms),
                millis(delays.fenced_ms),
                millis(delays.first_step_ms),
                case.blamed,
            ));
        }
        lines.push(String::new());
        for case in &self.cases {
            lines.push(format!("case {}: {} ({})", case.id, case.class, case.layer));
            for (taxonomy, categories) in case.taxonomies.iter() {
                lines.push(format!("        {taxonomy:<20} {}", categories.join(", ")));
            }
            let sources = match case.mitigation.recommended_by.as_slice() {
                [] => "inferred by Rankguard".to_owned(),
                sources => format!("recommended by {}", sources.join(", ")),
            };
            lines.push(format!("        action: {} ({sources})", case.mitigation.advice));
            if let Some(plan) = &case.plan {
                lines.push(format!("        plan {plan}"));
            }
            if let Some(restored) = &case.restored {
                lines.push(format!("        restored {restored}"));
            }
        }
        lines.push(String::new());
        let epochs: Vec<String> = self
            .ledger
            .epochs
            .iter()
            .map(|epoch| epoch.consumed.to_string())
            .collect();
        lines.push(format!(
            "ledger      {} epochs, samples consumed in each: {}; {} duplicates, {} omissions",
            self.ledger.epochs.len(),
            epochs.join(" "),
            self.ledger.duplicates,
            self.ledger.omissions
        ));
        lines.push(format!(
            "checkpoints {} committed; a rank waited {:.2} ms at the median, {:.2} ms at p95, {:.2} ms at most",
            self.checkpoints_committed,
            self.checkpoint_stall_ms.p50,
            self.checkpoint_stall_ms.p95,
            self.checkpoint_stall_ms.max
        ));
        lines.push(format!(
            "repeated    {} over all failures",
            crate::display_text::count(usize::try_from(self.steps_lost).unwrap_or(usize::MAX), "step")
        ));
        if let Some(reason) = &self.user_bug {
            lines.push(format!("user bug    {reason}"));
        }
        let cordoned = status
            .nodes
            .iter()
            .filter_map(|node| Some((node, node.reason.as_ref()?)));
        lines.extend(cordoned.map(|(node, reason)| format!("out of use  {}: {reason}", node.node)));
        lines.push(format!(
            "parameters  {}: {} after the failures, {} undisturbed",
            if self.parameters_identical {
                "bit-identical"
            } else {
                "DIFFERENT"
            },
            short(&self.parameters.disturbed),
            short(&self.parameters.undisturbed)
        ));
        lines.push(format!("report      {}", self.report.html.display()));
        lines.push(format!("took        {:.1} s", self.took_s));
        lines
    }
}

fn short(digest: &str) -> &str {
    digest.get(..16).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_with_other_parameters_or_an_inexact_ledger_is_not_sound() {
        let ledger = LedgerReport {
            exact: true,
            duplicates: 0,
            omissions: 0,
            epochs: Vec::new(),
        };
        let sound = DemoOutcome {
            parameters_identical: true,
            parameters: ParameterDigests {
                disturbed: "a".into(),
                undisturbed: "a".into(),
            },
            ledger_exact: true,
            ledger,
            cases: Vec::new(),
            steps_lost: 0,
            checkpoint_stall_ms: StallTimes::default(),
            checkpoints_committed: 0,
            user_bug: None,
            chaos: Vec::new(),
            report: ReportPaths {
                html: PathBuf::new(),
                json: PathBuf::new(),
            },
            undisturbed_run_s: 0.0,
            took_s: 0.0,
        };
        assert!(sound.is_sound());
        assert!(
            !DemoOutcome {
                parameters_identical: false,
                ..sound.clone()
            }
            .is_sound()
        );
        assert!(
            !DemoOutcome {
                ledger_exact: false,
                ..sound
            }
            .is_sound()
        );
    }
}
