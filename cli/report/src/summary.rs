//! Summary tiles at the head of the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rankguard_console::display_text;
use rankguard_model::{Case, CaseId, CaseState, JobId};
use serde_json::Value;

use super::ReportInput;
use super::text::escape;

/// A number with its name and rating.
struct SummaryTile {
    name: &'static str,
    value: String,
    note: String,
    mood: &'static str,
}

pub(super) fn tiles(input: &ReportInput) -> String {
    let mut tiles = Vec::new();
    if let Some(facts) = &input.facts {
        tiles.extend(proofs(facts));
    }
    tiles.extend(counts(input));
    let mut html = String::from("<dl class=\"tiles\">");
    for SummaryTile {
        name,
        value,
        note,
        mood,
    } in tiles
    {
        let _ = write!(
            html,
            "<div class=\"tile {mood}\"><dt>{name}</dt><dd>{}<small>{}</small></dd></div>",
            escape(value),
            escape(note)
        );
    }
    html.push_str("</dl>");
    html
}

/// Tiles of the demo's measurements.
fn proofs(facts: &Value) -> Vec<SummaryTile> {
    let mut tiles = Vec::new();
    let mood = |good| if good { "good" } else { "bad" };
    if let Some(identical) = facts["parameters_identical"].as_bool() {
        let digest = facts["parameters"]["disturbed"].as_str().unwrap_or_default();
        tiles.push(SummaryTile {
            name: "final parameters",
            value: if identical { "bit-identical" } else { "different" }.to_owned(),
            note: format!("with an undisturbed run; BLAKE3 {}", digest.get(..12).unwrap_or(digest)),
            mood: mood(identical),
        });
    }
    if let Some(exact) = facts["ledger_exact"].as_bool() {
        let ledger = &facts["ledger"];
        let count = |name: &str| ledger[name].as_u64().unwrap_or_default();
        let epochs = ledger["epochs"].as_array().map_or(0, Vec::len);
        tiles.push(SummaryTile {
            name: "samples",
            value: if exact { "each once" } else { "not exact" }.to_owned(),
            note: format!(
                "an epoch; {epochs} epochs, {} twice, {} never",
                count("duplicates"),
                count("omissions")
            ),
            mood: mood(exact),
        });
    }
    let stall = &facts["checkpoint_stall_ms"];
    if let (Some(p50), Some(max)) = (stall["p50"].as_f64(), stall["max"].as_f64()) {
        let saves = facts["checkpoints_committed"].as_u64().unwrap_or_default();
        tiles.push(SummaryTile {
            name: "checkpoint stall",
            value: display_text::millis(p50),
            note: format!(
                "a rank, at the median; at most {}; {saves} checkpoints",
                display_text::millis(max)
            ),
            mood: "",
        });
    }
    tiles
}

/// Returns the median of sorted values: of an even number, the mean of the two in the middle.
fn median(sorted: &[i64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    let lower = if sorted.len().is_multiple_of(2) {
        *sorted.get(middle - 1)?
    } else {
        upper
    };
    Some((lower as f64 + upper as f64) / 2.0)
}

fn counts(input: &ReportInput) -> Vec<SummaryTile> {
    let open = input.cases.iter().filter(|case| case.is_open()).count();
    let recovered = input
        .cases
        .iter()
        .filter(|case| case.state == CaseState::Recovered)
        .count();
    let mut first_steps: Vec<i64> = input
        .cases
        .iter()
        .filter_map(|case| case.delays.first_step_ms)
        .collect();
    first_steps.sort_unstable();
    // Steps of a job that was stopped before its next step are lost, and not repeated. A failed restart repeats none: the
    // next one repeats what was lost before.
    let made_steps = |case: &&Case| case.delays.first_step_ms.is_some();
    let mut newest: BTreeMap<&JobId, CaseId> = BTreeMap::new();
    for case in input.cases.iter().filter(made_steps) {
        if let Some(job) = &case.job {
            let known = newest.entry(job).or_insert(case.id);
            *known = (*known).max(case.id);
        }
    }
    let is_followed = |case: &&Case| {
        let last = case.job.as_ref().and_then(|job| newest.get(job));
        case.plan.is_some() && last.is_some_and(|last| case.id <= *last)
    };
    let restarted = || input.cases.iter().filter(|case| made_steps(case) || is_followed(case));
    let lost: u64 = restarted().filter_map(|case| case.steps_lost).sum();
    let unknown = restarted().filter(|case| case.steps_lost.is_none()).count();
    // Restarts that failed count as well; one that is under way may still make a step.
    let has_no_step = |case: &&Case| {
        let was_restarted = case.delays.launched_ms.is_some() && !case.is_open();
        was_restarted && !made_steps(case) && !is_followed(case)
    };
    let without_steps = input.cases.iter().filter(has_no_step).count();
    let mut tiles = vec![SummaryTile {
        name: "cases",
        value: input.cases.len().to_string(),
        note: format!("{recovered} recovered, {open} open"),
        mood: if open > 0 { "warn" } else { "" },
    }];
    if let (Some(median), Some(longest)) = (median(&first_steps), first_steps.last()) {
        tiles.push(SummaryTile {
            name: "first evidence to first new step",
            value: display_text::millis(median),
            note: format!("at the median; at most {}", display_text::millis(*longest as f64)),
            mood: "",
        });
    }
    tiles.push(SummaryTile {
        name: "steps repeated",
        value: match (lost, unknown) {
            (0, 1..) => "unknown".to_owned(),
            _ => lost.to_string(),
        },
        note: repeated_note(restarted().count(), unknown, without_steps),
        mood: "",
    });
    tiles
}

/// Returns what the number of repeated steps covers: failures after which a job made a step again.
fn repeated_note(restarts: usize, unknown: usize, without_steps: usize) -> String {
    let mut note = format!(
        "after {} that new steps followed",
        display_text::count(restarts, "failure")
    );
    if unknown > 0 {
        let _ = write!(note, "; unknown for {unknown} of them");
    }
    if without_steps > 0 {
        let restarts = display_text::count(without_steps, "restart");
        let _ = write!(note, "; {restarts} without a step not counted");
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_of_the_repeated_steps_counts_what_they_cover() {
        assert_eq!(repeated_note(1, 0, 0), "after 1 failure that new steps followed");
        let note =
            "after 16 failures that new steps followed; unknown for 1 of them; 17 restarts without a step not counted";
        assert_eq!(repeated_note(16, 1, 17), note);
    }

    /// The first restart failed, and the second one made steps.
    #[test]
    fn steps_before_a_failed_restart_are_repeated_by_the_next_one() {
        let (status, cases) = crate::sample::cluster();
        let restarted = cases.iter().find(|case| case.plan.is_some() && case.job.is_some());
        let restarted = restarted.expect("the sample has restarts");
        let case = |id: u64, lost: u64, first_step_ms: Option<i64>| {
            let mut case = restarted.clone();
            case.id = CaseId(id);
            case.steps_lost = Some(lost);
            case.delays.first_step_ms = first_step_ms;
            case
        };
        let cases = vec![case(1, 7, None), case(2, 5, Some(900)), case(3, 100, None)];
        let html = tiles(&ReportInput::new("Steps", status, cases, None));
        let repeated = html.split("steps repeated").nth(1).expect("the tile is there");
        assert!(
            repeated.contains(">12<") && repeated.contains("after 2 failures that new steps followed"),
            "{repeated}"
        );
    }

    /// Ranks that went on without a restart made no step after one.
    #[test]
    fn ranks_that_went_on_are_no_restart_without_a_step() {
        let (status, cases) = crate::sample::cluster();
        let restarted = cases.iter().find(|case| case.delays.launched_ms.is_some());
        let restarted = restarted.expect("the sample has restarts");
        let case = |id: u64, launched_ms: Option<i64>| {
            let mut case = restarted.clone();
            case.id = CaseId(id);
            case.state = CaseState::Recovered;
            case.delays.first_step_ms = None;
            case.delays.launched_ms = launched_ms;
            case
        };
        let cases = vec![case(1, Some(200)), case(2, None)];
        let html = tiles(&ReportInput::new("Steps", status, cases, None));
        assert!(html.contains("; 1 restart without a step not counted"), "{html}");
    }

    /// The restart of case 1 failed, that of case 2 ended the job, and that of case 3 is under way.
    #[test]
    fn failed_restarts_are_restarts_without_a_step() {
        let (status, cases) = crate::sample::cluster();
        let restarted = cases.iter().find(|case| case.plan.is_some() && case.job.is_some());
        let restarted = restarted.expect("the sample has restarts");
        let case = |id: u64, state: CaseState| {
            let mut case = restarted.clone();
            case.id = CaseId(id);
            case.state = state;
            case.delays.first_step_ms = None;
            case.delays.launched_ms = Some(200);
            case
        };
        let cases = vec![
            case(1, CaseState::Closed),
            case(2, CaseState::Closed),
            case(3, CaseState::Recovering),
        ];
        let html = tiles(&ReportInput::new("Steps", status, cases, None));
        assert!(html.contains("; 2 restarts without a step not counted"), "{html}");
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let delays = [
            1_340, 1_470, 1_860, 1_870, 1_960, 1_990, 2_510, 2_780, 4_750, 6_810, 7_570, 25_720,
        ];
        assert_eq!(median(&delays), Some(2_250.0));
        assert_eq!(median(&delays[..11]), Some(1_990.0));
        assert_eq!(median(&[]), None);
    }
}
