//! Stacked bar of the stages of a recovery, from the first evidence to the first new step.

use std::fmt::Write as _;

use rankguard_model::CaseDelays;

use rankguard_console::display_text;

/// Stage of a recovery.
struct RecoveryStage {
    /// Name in the legend.
    name: &'static str,
    /// CSS class.
    class: &'static str,
    /// End of the stage, milliseconds after the time of the first evidence.
    until: f64,
}

/// Renders the bar with its legend as HTML; `None` if fewer than two stages were measured, or all ended at once. A
/// stage that ended before the previous one has no width.
pub(super) fn bar(delays: &CaseDelays) -> Option<String> {
    let stages: Vec<RecoveryStage> = [
        ("fault seen", "stage-1", delays.evidence_ms),
        ("case opened", "stage-2", delays.case_ms),
        ("plan made", "stage-3", delays.plan_ms),
        ("old ranks fenced", "stage-4", delays.fenced_ms),
        ("new ranks launched", "stage-5", delays.launched_ms),
        ("first new step", "stage-6", delays.first_step_ms),
    ]
    .into_iter()
    .filter_map(|(name, class, ms)| {
        Some(RecoveryStage {
            name,
            class,
            until: ms?.max(0) as f64,
        })
    })
    .collect();
    let total = stages.iter().map(|stage| stage.until).fold(0.0, f64::max);
    if stages.len() < 2 || total <= 0.0 {
        return None;
    }
    let mut rects = String::new();
    let mut entries = String::new();
    let mut from = 0.0;
    for stage in &stages {
        let width = (stage.until - from).max(0.0);
        let _ = write!(
            rects,
            "<rect class=\"{}\" x=\"{:.2}\" y=\"0\" width=\"{:.2}\" height=\"10\"/>",
            stage.class,
            from / total * 100.0,
            width / total * 100.0
        );
        let _ = write!(
            entries,
            "<li><span class=\"key {}\"></span> {} <b>{}</b></li>",
            stage.class,
            stage.name,
            display_text::millis(stage.until)
        );
        from = from.max(stage.until);
    }
    Some(format!(
        "<div class=\"delays\"><svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"Stages of the recovery, end to end; the list below has the numbers\">{rects}</svg>\
         <ol>{entries}</ol><p class=\"quiet\">Each time is counted from the first evidence&#39;s own time.</p></div>"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_that_were_not_measured_are_left_out_and_none_runs_backwards() {
        assert_eq!(bar(&CaseDelays::default()), None);
        let delays = CaseDelays {
            evidence_ms: Some(40),
            case_ms: Some(30),
            first_step_ms: Some(400),
            ..CaseDelays::default()
        };
        let svg = bar(&delays).expect("three stages");
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(!svg.contains("width=\"-"), "{svg}");
    }
}
