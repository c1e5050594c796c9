//! Replay of a controller's journal through the whole decision core, with the recorded jobs, nodes and
//! timers.

use std::path::Path;

use rankguard_console::error::CliError;
use rankguard_model::{CaseState, EvidenceBody, Role};

use super::engine::ReplayEngine;
use super::recorded::{STILL_WRITTEN, marks};
use super::tally::ReplayTally;

/// Replays a journal with every catalogue. `given` is true if the first one is not the built-in one.
pub(super) fn replay(
    path: &Path,
    engines: &[ReplayEngine],
    given: bool,
    tally: &mut ReplayTally,
) -> Result<(), CliError> {
    if rankguard_journal::in_use(path) {
        tally.problem(format!("{}: {STILL_WRITTEN}", path.display()));
    }
    // Entries written meanwhile are ignored, so that all catalogues read the same ones.
    let mut most = u64::MAX;
    for (which, engine) in engines.iter().enumerate() {
        let changed = given || which > 0;
        // The core's state needs a static reference, and a replay has only one or two catalogues, so the
        // leak is bounded.
        let catalogue = changed.then(|| &*Box::leak(Box::new(engine.catalogue().clone())));
        let matcher = engine.matcher();
        let first = engines[0].matcher();
        let mut evidence = 0_u64;
        let mut problems = Vec::new();
        let mut differ = Vec::new();
        let played = rankguard_journal::cases(
            path,
            most,
            catalogue,
            |piece| {
                evidence += 1;
                let now = marks(piece, &matcher, changed);
                if which > 0
                    && let EvidenceBody::Line { text, .. } = &piece.body
                {
                    let before = marks(piece, &first, given);
                    let top = |marks: &[rankguard_model::Classification]| {
                        let classification = marks.iter().find(|mark| mark.role != Role::Noise);
                        classification.map_or("none".to_owned(), |mark| mark.class.to_string())
                    };
                    let before = top(&before);
                    let after = top(&now);
                    if before != after {
                        differ.push((before, after, text.chars().take(160).collect::<String>()));
                    }
                }
                piece.marks = now;
            },
            |problem| problems.push(problem.to_string()),
        );
        let played = played.map_err(|problem| {
            CliError::failure(
                format!("cannot replay the journal {}", path.display()),
                "check that it is a complete journal.redb of a controller's state directory",
            )
            .because(problem)
        })?;
        most = most.min(played.entries);
        let cases = played.cases;
        for (before, after, example) in differ {
            tally.differ_in(before, after, &example);
        }
        if which == 0 {
            tally.evidence += evidence;
            tally.lines += evidence;
            problems.into_iter().for_each(|problem| tally.problem(problem));
        }
        let open = cases.iter().filter(|case| case.state == CaseState::Open).count();
        if open > 0 && which == 0 {
            tally.problem(format!(
                "{open} cases without a conclusion at the end of the journal are omitted"
            ));
        }
        for case in cases.iter().filter(|case| case.state != CaseState::Open) {
            tally.settled(which, case);
        }
    }
    Ok(())
}
