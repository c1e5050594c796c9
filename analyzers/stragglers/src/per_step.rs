//! Verdicts from one row a rank and step. Without operations there is no simulation; ranks are compared with the usual
//! rank of each step.
//!
//! In a synchronous job every rank's step lasts as long as the slowest one's, because the others wait in their
//! communication. A rank's own time must therefore be known: `compute_s`, or the step without `comm_s`.

use crate::operation::StepTiming;
use crate::problem::ProblemList;
use crate::rank_course::{FittedLine, RankCourse, spread};
use crate::report::{CauseKind, SlownessReport, StepTime};
use crate::statistics::{lower_median, mean};
use crate::step_causes::{communication, loading, outliers, own_causes};
use crate::step_table::{OwnTimeSource, StepTable, arrange, most};

/// Ratio of the second cause to the first from which the verdict is `mixed`.
const MIXED_FROM: f64 = 0.85;

/// Ratio between the medians of the earlier and the later steps from which the time of a step changed.
const CHANGED_FROM: f64 = 1.2;
/// Minimum number of steps in each part.
const PART: usize = 5;
/// Number of places at which the steps are divided; of a longer table some are left out.
const SPLITS: usize = 200;
/// Ratio of one rank's time in one step to the median of that step from which it is reported.
const SINGLE_FROM: f64 = 1.5;

/// Describes a lasting change of the step time: the split that leaves the least spread around the medians of both parts,
/// or a straight line if it leaves less.
fn changed(table: &StepTable<'_>) -> Option<String> {
    let times: Vec<f64> = table
        .steps
        .iter()
        .map(|(_, rows)| most(rows.iter().map(|row| row.duration)))
        .collect();
    let splits = PART..(times.len() + 1).saturating_sub(PART);
    let parts = splits.step_by((times.len() / SPLITS).max(1)).map(|at| {
        let before = lower_median(&mut times[..at].to_vec());
        let after = lower_median(&mut times[at..].to_vec());
        let ratio = before.max(after) / before.min(after).max(f64::MIN_POSITIVE);
        let rest = spread(&times[..at], before) + spread(&times[at..], after);
        (at, before, after, ratio, rest)
    });
    let (at, before, after, ratio, rest) = parts.min_by(|a, b| a.4.total_cmp(&b.4))?;
    let line = FittedLine::of(&times);
    let (first, last) = (line.first, line.at(times.len() - 1));
    if line.spread(&times) < rest && first.max(last) >= CHANGED_FROM * first.min(last) {
        let verb = if last > first { "rose" } else { "fell" };
        let (from, to) = (table.steps[0].0, table.steps[times.len() - 1].0);
        return Some(format!(
            "The time of a step {verb} steadily from {first:.4} s at step {from} to {last:.4} s at step {to} (fitted line)."
        ));
    }
    (ratio >= CHANGED_FROM).then(|| {
        format!(
            "The time of a step changed at step {}: from {before:.4} s to {after:.4} s (medians).",
            table.steps[at].0
        )
    })
}

/// Describes the only step in which a rank took much longer than the others.
fn single_step(table: &StepTable<'_>) -> Option<String> {
    let excess = table.steps.iter().filter_map(|(step, rows)| {
        let own = table.own(rows);
        let usual = lower_median(&mut own.clone());
        let (at, longest) = own.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let is_long = usual > 0.0 && longest >= SINGLE_FROM * usual;
        is_long.then_some((*step, table.ranks[at], longest, usual))
    });
    let excess: Vec<_> = excess.collect();
    let [(step, rank, longest, usual)] = excess[..] else {
        return None;
    };
    Some(format!(
        "In step {step} rank {rank} took {longest:.4} s and the usual rank {usual:.4} s; a single step shows no lasting cause."
    ))
}

/// Analyses per-step timings.
pub(crate) fn of_steps(name: &str, rows: &[StepTiming], mut problems: ProblemList) -> SlownessReport {
    let Some(table) = arrange(name, rows, &mut problems) else {
        return SlownessReport::empty(
            name,
            &problems,
            "No step has rows of all ranks, so ranks cannot be compared.",
        );
    };
    let observed = mean(
        &table
            .steps
            .iter()
            .map(|(_, rows)| most(rows.iter().map(|row| row.duration)))
            .collect::<Vec<_>>(),
    );
    let floor = observed.max(f64::MIN_POSITIVE);
    let courses = table.rank_courses();
    let outliers = outliers(&courses.iter().map(RankCourse::largest).collect::<Vec<_>>());
    let mut reasoning = vec![format!(
        "{} steps of {} ranks were compared by {}; a step takes {observed:.4} s on average.",
        table.steps.len(),
        table.ranks.len(),
        table.own.words()
    )];
    reasoning.extend(changed(&table));
    let single = single_step(&table);
    reasoning.extend(single.clone().filter(|_| outliers.is_empty()));
    let blind = table.own == OwnTimeSource::Duration && outliers.is_empty();
    let mut causes = if blind {
        Vec::new()
    } else {
        own_causes(&table, &courses, &outliers, floor)
    };
    causes.extend(communication(&table, floor));
    causes.extend(loading(&table, floor));
    causes.sort_by(|a, b| b.saved_s.total_cmp(&a.saved_s));
    let lost = if blind {
        0.0
    } else {
        mean(&table.per_step(|own| most(own.iter().copied()) - lower_median(&mut own.to_vec())))
    };
    let total = (lost
        + causes
            .iter()
            .filter(|cause| cause.kind >= CauseKind::Communication)
            .map(|c| c.saved_s)
            .sum::<f64>())
    .max(1e-9);
    causes.iter_mut().for_each(|cause| cause.share = cause.saved_s / total);
    let verdict = match causes.as_slice() {
        [] if blind || table.ranks.len() < 2 => CauseKind::Unknown,
        [] => CauseKind::None,
        [first, second, ..] if second.saved_s >= MIXED_FROM * first.saved_s => CauseKind::Mixed,
        [first, ..] => first.kind,
    };
    reasoning.extend(causes.iter().map(|cause| {
        format!(
            "{} at {}: without it a step would take about {:.4} s less ({:.1} %). {}",
            cause.kind.name(),
            cause.place,
            cause.saved_s,
            cause.saved_s / floor * 100.0,
            cause.why
        )
    }));
    if blind {
        let equal = if single.is_some() { "Otherwise all" } else { "All" };
        reasoning.push(format!(
            "{equal} ranks' steps last equally long, as in every synchronous job: the others wait for the slow one, so who \
             it is cannot be told. Record compute_s, or comm_s, for each rank and step."
        ));
    }
    if table.ranks.len() < 2 {
        reasoning.push("There is one rank, and nothing to compare it with.".to_owned());
    }
    let lead = match causes.as_slice() {
        [first, second, ..] => (1.0 - second.saved_s / first.saved_s).clamp(0.0, 1.0),
        _ => 1.0,
    };
    let few = if table.steps.len() < 5 { 0.7 } else { 1.0 };
    let sure = match (verdict, table.own) {
        (CauseKind::Unknown, _) => 0.0,
        (CauseKind::None, OwnTimeSource::Duration) => 0.4,
        (CauseKind::None, _) => 0.85,
        (CauseKind::Mixed, _) => 0.5,
        (_, OwnTimeSource::Compute) => 0.5 + 0.4 * lead,
        (..) => 0.4 + 0.3 * lead,
    };
    SlownessReport {
        job: name.to_owned(),
        steps: table.steps.len(),
        workers: table.ranks.len(),
        step_time_s: StepTime {
            observed: Some(observed),
            simulated: None,
            ideal: (!blind).then_some(observed - lost),
        },
        slowdown: (!blind && observed > lost).then(|| observed / (observed - lost)),
        what_if: None,
        cause: verdict,
        place: causes.first().map(|cause| cause.place.clone()),
        causes,
        confidence: sure * few,
        reasoning,
        problems: problems.lines(),
    }
}
