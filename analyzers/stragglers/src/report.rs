//! Report of the analysis, as JSON or as text lines.

use serde::Serialize;

use crate::problem::ProblemList;
use crate::whatif::WhatIf;

/// Cause of a slow job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// One worker computes more slowly than its peers in all its operations.
    SlowWorker,
    /// A pipeline stage has more to compute than the others, on all data-parallel ranks.
    SlowStage,
    /// Microbatches differ in length, so ranks wait for those with the long ones.
    DataImbalance,
    /// Transfers of a link or collective take longer than others of their kind.
    Communication,
    /// Idle time or a stalled pass: garbage collection, data loading, launches.
    Pauses,
    /// Passes vary without a cause that a trace could show.
    Jitter,
    /// Two causes of similar weight; `causes` lists them.
    Mixed,
    /// The job is slow and no single part explains it.
    Unknown,
    /// The slowdown is too small to report.
    None,
}

impl CauseKind {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            CauseKind::SlowWorker => "slow-worker",
            CauseKind::SlowStage => "slow-stage",
            CauseKind::DataImbalance => "data-imbalance",
            CauseKind::Communication => "communication",
            CauseKind::Pauses => "pauses",
            CauseKind::Jitter => "jitter",
            CauseKind::Mixed => "mixed",
            CauseKind::Unknown => "unknown",
            CauseKind::None => "none",
        }
    }
}

/// Location of a cause; numbers are those of the trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CauseLocation {
    /// Data-parallel rank; absent for all of them, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dp_rank: Option<i64>,
    /// Pipeline stage; absent for all of them, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<i64>,
    /// Rank, if the trace has ranks and a single one is blamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<i64>,
    /// Other end of a link between stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_stage: Option<i64>,
    /// Type of operation, if one stands out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<&'static str>,
    /// Steps, if only some are affected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<i64>,
}

impl std::fmt::Display for CauseLocation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = |name: &str, value: Option<i64>| value.map(|value| format!("{name} {value}"));
        let stage = match (self.stage, self.peer_stage) {
            (Some(stage), Some(peer)) => Some(format!("stage {stage} to {peer}")),
            (stage, _) => part("stage", stage),
        };
        let parts = [
            part("dp rank", self.dp_rank),
            stage,
            part("rank", self.rank),
            self.operation.map(str::to_owned),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            out.write_str("all ranks")
        } else {
            out.write_str(&parts.join(", "))
        }
    }
}

/// One cause with its weight.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlownessCause {
    pub kind: CauseKind,
    /// Location with the largest effect.
    #[serde(rename = "where")]
    pub place: CauseLocation,
    /// Further locations of the same kind, worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<CauseLocation>,
    /// Share of the time over an even job that the cause explains; shares of causes that hide each other
    /// overlap.
    pub share: f64,
    /// Seconds a step saved if only this cause is removed.
    pub saved_s: f64,
    /// Seconds a step that the cause adds to an otherwise even job.
    pub adds_s: f64,
    /// Evidence in numbers.
    pub why: String,
}

/// Mean step times in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StepTime {
    /// As recorded in the trace.
    pub observed: Option<f64>,
    /// Simulated with recorded durations.
    pub simulated: Option<f64>,
    /// Simulated with ordinary durations.
    pub ideal: Option<f64>,
}

/// Result of the analysis of one job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlownessReport {
    pub job: String,
    /// Number of analysed steps.
    pub steps: usize,
    /// Number of pipeline workers, or of ranks in per-step timings.
    pub workers: usize,
    /// Mean step times.
    pub step_time_s: StepTime,
    /// S: simulated over ideal step time; for per-step timings, the slowest over the usual rank.
    pub slowdown: Option<f64>,
    /// Published what-if figures, operation traces only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_if: Option<WhatIf>,
    /// Causes, largest weight first.
    pub causes: Vec<SlownessCause>,
    /// Verdict on the cause.
    pub cause: CauseKind,
    /// Location of the verdict's cause.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub place: Option<CauseLocation>,
    /// Confidence of the verdict, 0 to 1.
    pub confidence: f64,
    /// Reasoning for the verdict, one sentence each.
    pub reasoning: Vec<String>,
    /// Problems of the input.
    pub problems: Vec<String>,
}

impl SlownessReport {
    /// Returns a report without a verdict, with the reason.
    pub(crate) fn empty(job: &str, problems: &ProblemList, why: &str) -> SlownessReport {
        SlownessReport {
            job: job.to_owned(),
            steps: 0,
            workers: 0,
            step_time_s: StepTime::default(),
            slowdown: None,
            what_if: None,
            causes: Vec::new(),
            cause: CauseKind::Unknown,
            place: None,
            confidence: 0.0,
            reasoning: vec![why.to_owned()],
            problems: problems.lines(),
        }
    }

    /// Formats the report as text: verdict first, then numbers, then reasons.
    pub fn lines(&self) -> Vec<String> {
        let place = self.place.as_ref().map_or(String::new(), |place| format!(" ({place})"));
        let mut lines = vec![format!(
            "{}: {}{place}, confidence {:.0} %",
            self.job,
            self.cause.name(),
            self.confidence * 100.0
        )];
        let time = |time: Option<f64>| time.map_or("unknown".to_owned(), |time| format!("{time:.4} s"));
        lines.push(format!(
            "{} steps, {} workers; step time {} observed, {} simulated, {} ideal; slowdown {}",
            self.steps,
            self.workers,
            time(self.step_time_s.observed),
            time(self.step_time_s.simulated),
            time(self.step_time_s.ideal),
            self.slowdown
                .map_or("unknown".to_owned(), |slowdown| format!("{slowdown:.4}"))
        ));
        for cause in &self.causes {
            lines.push(format!(
                "  {} {:.0} % at {}: saves {:.4} s a step. {}",
                cause.kind.name(),
                cause.share * 100.0,
                cause.place,
                cause.saved_s,
                cause.why
            ));
        }
        lines.extend(self.reasoning.iter().map(|reason| format!("- {reason}")));
        lines.extend(self.problems.iter().map(|problem| format!("! {problem}")));
        lines
    }
}
