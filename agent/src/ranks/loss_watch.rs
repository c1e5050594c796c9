//! Watch for losses that are NaN or infinite.
//!
//! Progress reports are thinned, and the journal has no NaN. So the first step with such a loss is evidence of its own.

use std::time::{Duration, Instant};

use rankguard_faults::classes;
use rankguard_model::{Classification, EvidenceBody, Rank, Role, Step};

use crate::pending_evidence::mark;

/// Signature of the report; its fields are `step` and `loss`.
const SIGNATURE: &str = "ranks.loss";
/// Minimum time between two reports of one rank.
const PAUSE: Duration = Duration::from_secs(10);

/// Losses of one rank: reports the first step of each sequence of steps without a finite loss.
#[derive(Debug, Default)]
pub(super) struct LossWatch {
    /// True while the newest known loss is not finite and was reported.
    is_reported: bool,
    reported_at: Option<Instant>,
}

impl LossWatch {
    /// Takes the loss of a step, and returns the evidence if it is the first that is not finite. Steps without a loss
    /// change nothing.
    pub(super) fn observe(
        &mut self,
        rank: Rank,
        step: Step,
        loss: Option<f64>,
        now: Instant,
    ) -> Option<(EvidenceBody, Classification)> {
        let loss = loss?;
        if loss.is_finite() {
            self.is_reported = false;
            return None;
        }
        let is_early = self
            .reported_at
            .is_some_and(|at| now.saturating_duration_since(at) < PAUSE);
        if self.is_reported || is_early {
            return None;
        }
        self.is_reported = true;
        self.reported_at = Some(now);
        let loss = if loss.is_nan() {
            "nan"
        } else if loss > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        let body = EvidenceBody::Line {
            text: format!("rank {rank} reported the loss {loss} at step {step}"),
            context: Vec::new(),
            repeats: 1,
        };
        let mut found = mark(classes::LOSS_NAN, Role::Root, 0.9, SIGNATURE);
        found.fields = [("step", step.to_string()), ("loss", loss.to_owned())].into();
        Some((body, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_loss_of_a_sequence_that_is_not_finite_is_reported() {
        let mut watch = LossWatch::default();
        let start = Instant::now();
        let mut observe = |step: u64, loss: Option<f64>, seconds: u64| {
            let seen = watch.observe(Rank(3), Step(step), loss, start + Duration::from_secs(seconds));
            seen.map(|(body, found)| {
                let EvidenceBody::Line { text, .. } = body else {
                    return String::new();
                };
                assert_eq!(found.fields.get("step"), Some(step.to_string().as_str()));
                text
            })
        };
        assert_eq!(observe(1, Some(0.5), 0), None);
        assert_eq!(observe(2, None, 0), None);
        let nan = observe(3, Some(f64::NAN), 0);
        assert_eq!(nan.as_deref(), Some("rank 3 reported the loss nan at step 3"));
        assert_eq!(observe(4, Some(f64::NAN), 60), None);
        // A step without a loss ends nothing.
        assert_eq!(observe(5, None, 60), None);
        assert_eq!(observe(6, Some(f64::INFINITY), 60), None);
        assert_eq!(observe(7, Some(0.5), 60), None);
        let infinite = observe(8, Some(f64::NEG_INFINITY), 60);
        assert_eq!(infinite.as_deref(), Some("rank 3 reported the loss -inf at step 8"));
        // Losses that change from step to step are reported at intervals, with the step at that time.
        assert_eq!(observe(9, Some(0.5), 61), None);
        assert_eq!(observe(10, Some(f64::NAN), 62), None);
        assert!(observe(11, Some(f64::NAN), 71).is_some());
    }
}
