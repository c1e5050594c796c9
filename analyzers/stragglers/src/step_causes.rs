//! Causes in per-step timings, each weighed by the time that the slowest rank of a step would save without it.

use crate::operation::StepTiming;
use crate::rank_course::RankCourse;
use crate::report::{CauseKind, CauseLocation, SlownessCause};
use crate::statistics::{CorrelationSums, lower_median, mean, median};
use crate::step_table::{StepTable, most};

/// Ratio to the usual rank from which a rank is slow; [`OUTLIER_FROM`] must hold too.
const SLOW_FROM: f64 = 1.05;
/// Robust z-score among all ranks from which a rank is slow (Iglewicz and Hoaglin: 3.5).
const OUTLIER_FROM: f64 = 3.5;
/// Minimum spread between ranks of a healthy job.
const SPREAD_LEAST: f64 = 0.005;
/// Correlation from which own time and tokens vary together.
const TOGETHER_FROM: f64 = 0.6;
/// Share of a step from which a cause is named: slow ranks and stages, data, communication. Unexplained variation
/// requires the larger share.
const NAMED_FROM: f64 = 0.03;
const NAMED_VAGUE_FROM: f64 = 0.06;

/// Returns the outlier ranks, worst first.
pub(crate) fn outliers(ratios: &[f64]) -> Vec<usize> {
    let middle = lower_median(&mut ratios.to_vec());
    let mut distances: Vec<f64> = ratios.iter().map(|ratio| (ratio - middle).abs()).collect();
    let spread = lower_median(&mut distances).max(SPREAD_LEAST);
    let stands_out = |rank: &usize| {
        let over = ratios[*rank] / middle.max(f64::MIN_POSITIVE);
        ratios.len() > 1 && over >= SLOW_FROM && 0.6745 * (ratios[*rank] - middle) / spread >= OUTLIER_FROM
    };
    let mut out: Vec<usize> = (0..ratios.len()).filter(stands_out).collect();
    out.sort_by(|a, b| ratios[*b].total_cmp(&ratios[*a]));
    out
}

/// Returns the causes visible in ranks' own time, each weighed by the time that the slowest rank of a step would save.
pub(crate) fn own_causes(
    table: &StepTable,
    courses: &[RankCourse],
    slow: &[usize],
    observed: f64,
) -> Vec<SlownessCause> {
    let saved = |even: &dyn Fn(usize, usize, f64) -> f64| {
        let each = table.steps.iter().enumerate().map(|(step, (_, rows))| {
            let own = table.own(rows);
            let less = own.iter().enumerate().map(|(rank, own)| even(step, rank, *own));
            most(own.iter().copied()) - most(less)
        });
        mean(&each.collect::<Vec<f64>>())
    };
    let mut causes = Vec::new();
    let mut name = |kind, places: Vec<CauseLocation>, saved_s: f64, bound: f64, why: String| {
        let mut places = places.into_iter();
        if saved_s >= bound * observed {
            let place = places.next().unwrap_or_default();
            causes.push(SlownessCause {
                kind,
                place,
                others: places.collect(),
                share: 0.0,
                saved_s,
                adds_s: saved_s,
                why,
            });
        }
    };
    if let Some(worst) = slow.first() {
        let places = slow.iter().map(|rank| {
            let stage = table.steps.first().and_then(|(_, rows)| rows[*rank].stage);
            CauseLocation {
                rank: Some(table.ranks[*rank]),
                stage,
                steps: slow_steps(table, &courses[*rank]),
                ..CauseLocation::default()
            }
        });
        let why = format!(
            "Its own time is {}; half of the ranks are within {:.3}.",
            course_words(table, &courses[*worst]),
            median(&mut courses.iter().map(RankCourse::largest).collect::<Vec<_>>())
        );
        let mut is_slow = vec![false; courses.len()];
        slow.iter().for_each(|rank| is_slow[*rank] = true);
        // A rank that was fast before its change is left as it is there.
        let won = saved(&|step, rank, own| {
            if is_slow[rank] {
                own / courses[rank].at(step).max(1.0)
            } else {
                own
            }
        });
        name(CauseKind::SlowWorker, places.collect(), won, NAMED_FROM, why);
    }
    if let Some((stage, ratio)) = table.largest_stage().filter(|(_, ratio)| *ratio >= SLOW_FROM) {
        let won = saved(&|step, rank, own| {
            if table.steps[step].1[rank].stage == Some(stage) {
                own / ratio
            } else {
                own
            }
        });
        let why = format!("Ranks of this stage compute {ratio:.3} times as long as those of the usual stage.");
        name(
            CauseKind::SlowStage,
            vec![CauseLocation {
                stage: Some(stage),
                ..CauseLocation::default()
            }],
            won,
            NAMED_FROM,
            why,
        );
    }
    // Tests whether the residual after each rank's usual ratio follows the tokens.
    let usual: Vec<f64> = table.steps.iter().map(|(_, rows)| table.usual(rows)).collect();
    let expected =
        |step: usize, rank: usize| usual[step] * table.stage_ratio(table.steps[step].1[rank]) * courses[rank].at(step);
    let tokens = |rows: &[&StepTiming]| mean(&rows.iter().filter_map(|row| row.tokens).collect::<Vec<_>>());
    let tokens: Vec<f64> = table.steps.iter().map(|(_, rows)| tokens(rows)).collect();
    let mut moments = CorrelationSums::default();
    for (step, (_, rows)) in table.steps.iter().enumerate() {
        for (rank, row) in rows.iter().enumerate() {
            if let Some(own_tokens) = row.tokens.filter(|_| expected(step, rank) > 0.0 && tokens[step] > 0.0) {
                moments.add(table.own.of(row) / expected(step, rank), own_tokens / tokens[step]);
            }
        }
    }
    let correlation = moments.correlation();
    if correlation >= TOGETHER_FROM {
        let won = saved(&|step, rank, own| {
            let own_tokens = table.steps[step].1[rank].tokens.filter(|own_tokens| *own_tokens > 0.0);
            own_tokens.map_or(own, |own_tokens| own * tokens[step] / own_tokens)
        });
        let why = format!(
            "A rank's own time follows its tokens (correlation {correlation:.3}): longer sequences, not slower hardware."
        );
        name(CauseKind::DataImbalance, Vec::new(), won, NAMED_FROM, why);
    } else {
        let won = saved(&|step, rank, own| own.min(expected(step, rank).max(usual[step])));
        let why = if table
            .steps
            .iter()
            .flat_map(|(_, rows)| rows)
            .all(|row| row.tokens.is_some())
        {
            format!(
                "Own time varies from rank to rank and step to step, and not with tokens (correlation {correlation:.3})."
            )
        } else {
            "Own time varies from rank to rank and step to step; with a column tokens it could be told whether the data is the reason.".to_owned()
        };
        name(CauseKind::Jitter, Vec::new(), won, NAMED_VAGUE_FROM, why);
    }
    causes
}

/// Describes the course of a slow rank.
fn course_words(table: &StepTable, course: &RankCourse) -> String {
    match *course {
        RankCourse::Steady(ratio) => format!(
            "{ratio:.3} times that of the usual rank, median over {}",
            steps(table.steps.len())
        ),
        RankCourse::Changed { at, before, after } => format!(
            "{before:.3} times that of the usual rank before step {} and {after:.3} times from it on, medians over {} and {}",
            table.steps[at].0,
            at,
            steps(table.steps.len() - at)
        ),
        RankCourse::Drift { first, last, .. } => {
            let verb = if last > first { "rising" } else { "falling" };
            format!(
                "{verb} steadily from {first:.3} to {last:.3} times that of the usual rank, fitted over {}",
                steps(table.steps.len())
            )
        }
    }
}

fn steps(count: usize) -> String {
    format!("{count} step{}", if count == 1 { "" } else { "s" })
}

/// Returns the steps in which a rank of this course is slow; empty if it is slow in all of them.
fn slow_steps(table: &StepTable, course: &RankCourse) -> Vec<i64> {
    let is_slow =
        |(index, (step, _)): (usize, &(i64, Vec<&StepTiming>))| (course.at(index) >= SLOW_FROM).then_some(*step);
    let slow: Vec<i64> = table.steps.iter().enumerate().filter_map(is_slow).collect();
    if slow.len() == table.steps.len() {
        Vec::new()
    } else {
        slow
    }
}

/// Weighs slow communication. The last rank waits for no other, so a step's least communication time is the transfer
/// itself.
pub(crate) fn communication(table: &StepTable, observed: f64) -> Option<SlownessCause> {
    let least = |rows: &[&StepTiming]| rows.iter().map(|row| row.communication).collect::<Option<Vec<f64>>>();
    let transfers: Vec<f64> = table
        .steps
        .iter()
        .map(|(_, rows)| Some(least(rows)?.into_iter().fold(f64::INFINITY, f64::min)))
        .collect::<Option<_>>()?;
    let usual = lower_median(&mut transfers.clone());
    let slow: Vec<usize> = (0..transfers.len())
        .filter(|step| transfers[*step] > 1.25 * usual)
        .collect();
    let saved_s = slow.iter().map(|step| transfers[*step] - usual).sum::<f64>() / transfers.len() as f64;
    (saved_s >= NAMED_FROM * observed).then(|| SlownessCause {
        kind: CauseKind::Communication,
        place: CauseLocation { steps: slow.iter().map(|step| table.steps[*step].0).collect(), ..CauseLocation::default() },
        others: Vec::new(),
        share: 0.0,
        saved_s,
        adds_s: saved_s,
        why: format!(
            "In {} of {} steps even the rank that waits least is over 1.25 times its usual {usual:.4} s in communication.",
            slow.len(),
            transfers.len()
        ),
    })
}

/// Weighs data loading: time in the data loader delays every rank.
pub(crate) fn loading(table: &StepTable, observed: f64) -> Option<SlownessCause> {
    let mut sums = vec![0.0; table.ranks.len()];
    let mut waits = Vec::new();
    for (_, rows) in &table.steps {
        let data: Vec<f64> = rows.iter().map(|row| row.data).collect::<Option<_>>()?;
        data.iter().enumerate().for_each(|(rank, data)| sums[rank] += data);
        waits.push(most(data.into_iter()));
    }
    let saved_s = mean(&waits);
    let worst = (0..sums.len()).reduce(|a, b| if sums[b] > sums[a] { b } else { a })?;
    let usual = lower_median(&mut sums.clone());
    let one = sums.len() > 1 && sums[worst] > 2.0 * usual;
    (saved_s >= 0.05 * observed).then(|| SlownessCause {
        kind: CauseKind::Pauses,
        place: CauseLocation {
            rank: one.then(|| table.ranks[worst]),
            operation: Some("data-loading"),
            ..CauseLocation::default()
        },
        others: Vec::new(),
        share: 0.0,
        saved_s,
        adds_s: saved_s,
        why: format!("A step waits {saved_s:.4} s for the data loader of its slowest rank."),
    })
}
