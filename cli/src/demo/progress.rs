//! Progress messages of the demo, on standard error: standard output contains only the result.

use std::time::Instant;

use rankguard_model::Case;

use crate::{display_text, out};

/// Printer of progress messages with the elapsed time.
pub(super) struct ProgressPrinter {
    started: Instant,
    quiet: bool,
}

impl ProgressPrinter {
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            started: Instant::now(),
            quiet,
        }
    }

    /// Seconds since the start of the demo.
    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Prints one line, unless `--quiet` is set.
    pub(super) fn report(&self, text: &str) {
        if !self.quiet {
            out::note(&format!("{:6.1} s  {text}", self.seconds()));
        }
    }

    /// Prints the verdict and the delays of a case.
    pub(super) fn case(&self, case: &Case) {
        let millis = |value: Option<i64>| value.map_or("-".to_owned(), |value| format!("{value} ms"));
        self.report(&format!(
            "   case {}: {}, blamed: {}",
            case.id,
            case.verdict.class,
            case.blamed_text()
        ));
        self.report(&format!(
            "   fault to evidence {}, to case {}, to plan {}, to first new step {}; {} repeated",
            millis(case.delays.evidence_ms),
            millis(case.delays.case_ms),
            millis(case.delays.plan_ms),
            millis(case.delays.first_step_ms),
            display_text::count(
                usize::try_from(case.steps_lost.unwrap_or(0)).unwrap_or(usize::MAX),
                "step"
            ),
        ));
    }
}
