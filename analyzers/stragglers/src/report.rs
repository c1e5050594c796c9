//! What is said in the end: for machines as JSON, for people as lines.

use serde::Serialize;

use crate::problem::Problems;
use crate::whatif::WhatIf;

/// What slows a job down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// One worker computes more slowly than its peers in all its operations.
    SlowWorker,
    /// A pipeline stage has more to compute than the others, on all data-parallel ranks.
    SlowStage,
    /// Microbatches differ in length, so ranks wait for whoever drew the long ones.
    DataImbalance,
    /// Transfers of some link or collective take longer than those of their kind.
    Communication,
    /// Time in which nothing ran or one pass stood still: garbage collection, data loading, launches.
    Pauses,
    /// Passes vary for no reason that a trace could show.
    Jitter,
    /// Two causes of about the same weight; `causes` lists them.
    Mixed,
    /// The job is slowed down and no part alone says why.
    Unknown,
    /// Nothing worth a person's time.
    None,
}

impl CauseKind {
    /// The name in reports.
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

/// Who or what; the numbers are those of the trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Data-parallel rank; absent: all of them, or not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dp_rank: Option<i64>,
    /// Pipeline stage; absent: all of them, or not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<i64>,
    /// Rank, where the trace has ranks and one is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<i64>,
    /// The other end of a link between stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_stage: Option<i64>,
    /// Type of operation, where one stands out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<&'static str>,
    /// Steps, where only some are touched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<i64>,
}

impl std::fmt::Display for Place {
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
pub struct Cause {
    /// What it is.
    pub kind: CauseKind,
    /// Where it sits.
    #[serde(rename = "where")]
    pub place: Place,
    /// More places of the same kind, worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Place>,
    /// Part of the time over an even job that it explains; shares of causes that hide each other overlap.
    pub share: f64,
    /// Seconds a step that are won if only this goes away.
    pub saved_s: f64,
    /// Seconds a step that it costs an otherwise even job.
    pub adds_s: f64,
    /// What was seen, in numbers.
    pub why: String,
}

/// Mean step times, seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StepTime {
    /// As seen.
    pub observed: Option<f64>,
    /// Simulated with recorded durations.
    pub simulated: Option<f64>,
    /// Simulated with ordinary durations.
    pub ideal: Option<f64>,
}

/// What is known of one job's slowness.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Name of the job.
    pub job: String,
    /// Steps that were looked at.
    pub steps: usize,
    /// Pipeline workers, or ranks of per-step timings.
    pub workers: usize,
    /// Mean step times.
    pub step_time_s: StepTime,
    /// S: simulated over ideal step time; of per-step timings, that of the slowest over the usual rank.
    pub slowdown: Option<f64>,
    /// Published what-if figures, operation traces only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_if: Option<WhatIf>,
    /// Causes, weightiest first.
    pub causes: Vec<Cause>,
    /// The verdict.
    pub cause: CauseKind,
    /// Where the verdict's cause sits.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Trust in the verdict, 0 to 1.
    pub confidence: f64,
    /// How the verdict came about, a sentence each.
    pub reasoning: Vec<String>,
    /// What was wrong with the input.
    pub problems: Vec<String>,
}

impl Report {
    /// A report that says only what was wrong.
    pub(crate) fn empty(job: &str, problems: &Problems, why: &str) -> Report {
        Report {
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

    /// The report for a person: verdict first, then numbers, then reasons.
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
