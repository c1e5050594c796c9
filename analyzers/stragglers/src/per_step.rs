//! Verdicts from one row a rank and step. Nothing can be simulated; ranks are compared with the usual rank of each step.
//!
//! In a synchronous job every rank's step lasts as long as the slowest one's, for the others wait inside their
//! communication. So a rank's own time has to be known: `compute_s`, or the step without `comm_s`.

use std::collections::BTreeMap;

use crate::operation::StepTiming;
use crate::problem::Problems;
use crate::report::{Cause, CauseKind, Place, Report, StepTime};
use crate::statistics::{Moments, lower_median, mean, median};

/// A rank is slow from this ratio to the usual rank ...
const SLOW_FROM: f64 = 1.05;
/// ... and this robust z-score among all ranks (Iglewicz and Hoaglin: 3.5).
const OUTLIER_FROM: f64 = 3.5;
/// Ranks of a healthy job differ by this much at least.
const SPREAD_LEAST: f64 = 0.005;
/// Own time and tokens vary together from this correlation on.
const TOGETHER_FROM: f64 = 0.6;
/// Part of a step from which a cause is named: slow ranks and stages, data, communication; what only varies needs more.
const NAMED_FROM: f64 = 0.03;
const NAMED_VAGUE_FROM: f64 = 0.06;
/// A second cause this close to the first makes the verdict `mixed`.
const MIXED_FROM: f64 = 0.85;

/// What a rank's own time is taken from.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Own {
    Compute,
    WithoutCommunication,
    Duration,
}

/// Rows by step, each with the same ranks in the same order.
struct Table<'a> {
    ranks: Vec<i64>,
    steps: Vec<(i64, Vec<&'a StepTiming>)>,
    own: Own,
}

/// Analyses per-step timings.
pub(crate) fn of_steps(name: &str, rows: &[StepTiming], mut problems: Problems) -> Report {
    let Some(table) = arrange(name, rows, &mut problems) else {
        return Report::empty(
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
    let ratios = table.rank_ratios();
    let outliers = outliers(&ratios);
    let mut reasoning = vec![format!(
        "{} steps of {} ranks were compared by {}; a step takes {observed:.4} s.",
        table.steps.len(),
        table.ranks.len(),
        table.own.words()
    )];
    let blind = table.own == Own::Duration && outliers.is_empty();
    let mut causes = if blind {
        Vec::new()
    } else {
        own_causes(&table, &ratios, &outliers, floor)
    };
    causes.extend(communication(&table, floor));
    causes.extend(loading(&table, floor));
    causes.sort_by(|a, b| b.saved_s.total_cmp(&a.saved_s));
    let lost = match blind {
        true => 0.0,
        false => mean(&table.per_step(|own| most(own.iter().copied()) - lower_median(&mut own.to_vec()))),
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
        reasoning.push(
            "All ranks' steps last equally long, as in every synchronous job: the others wait for the slow one, so who it is \
             cannot be told. Record compute_s, or comm_s, for each rank and step."
                .to_owned(),
        );
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
        (CauseKind::None, Own::Duration) => 0.4,
        (CauseKind::None, _) => 0.85,
        (CauseKind::Mixed, _) => 0.5,
        (_, Own::Compute) => 0.5 + 0.4 * lead,
        (..) => 0.4 + 0.3 * lead,
    };
    Report {
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

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

fn arrange<'a>(name: &str, rows: &'a [StepTiming], problems: &mut Problems) -> Option<Table<'a>> {
    let mut steps: BTreeMap<i64, BTreeMap<i64, &StepTiming>> = BTreeMap::new();
    let mut repeated = 0_usize;
    for row in rows {
        let slot = steps.entry(row.step).or_default().entry(row.rank);
        slot.and_modify(|known| {
            repeated += 1;
            // Which row came first must not matter.
            if row.duration > known.duration {
                *known = row;
            }
        })
        .or_insert(row);
    }
    if repeated > 0 {
        problems.note(
            name,
            format!("{repeated} rows repeat a rank and step; the longest of each was kept"),
        );
    }
    let mut ranks: Vec<i64> = rows.iter().map(|row| row.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let before = steps.len();
    steps.retain(|_, rows| rows.len() == ranks.len());
    if steps.len() < before {
        let what = format!(
            "{} of {before} steps lack rows of some ranks and are left out",
            before - steps.len()
        );
        problems.note(name, what);
    }
    let used = || steps.values().flat_map(BTreeMap::values);
    let own = match () {
        () if used().all(|row| row.compute.is_some()) => Own::Compute,
        () if used().all(|row| row.communication.is_some()) => Own::WithoutCommunication,
        () => Own::Duration,
    };
    let steps: Vec<_> = steps
        .into_iter()
        .map(|(step, rows)| (step, rows.into_values().collect()))
        .collect();
    (!steps.is_empty()).then_some(Table { ranks, steps, own })
}

impl Own {
    fn words(self) -> &'static str {
        match self {
            Own::Compute => "compute_s",
            Own::WithoutCommunication => "duration_s without comm_s and data_s",
            Own::Duration => "duration_s alone",
        }
    }

    fn of(self, row: &StepTiming) -> f64 {
        match self {
            Own::Compute => row.compute.unwrap_or(0.0),
            Own::WithoutCommunication => {
                (row.duration - row.communication.unwrap_or(0.0) - row.data.unwrap_or(0.0)).max(0.0)
            }
            Own::Duration => row.duration,
        }
    }
}

impl Table<'_> {
    fn own(&self, rows: &[&StepTiming]) -> Vec<f64> {
        rows.iter().map(|row| self.own.of(row)).collect()
    }

    fn per_step(&self, measure: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        self.steps.iter().map(|(_, rows)| measure(&self.own(rows))).collect()
    }

    /// Each rank's own time over that of the usual rank of its stage, median over steps.
    fn rank_ratios(&self) -> Vec<f64> {
        let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); self.ranks.len()];
        for (_, rows) in &self.steps {
            let mut stages: BTreeMap<Option<i64>, Vec<f64>> = BTreeMap::new();
            rows.iter()
                .for_each(|row| stages.entry(row.stage).or_default().push(self.own.of(row)));
            let usual: BTreeMap<_, f64> = stages
                .into_iter()
                .map(|(s, mut own)| (s, lower_median(&mut own)))
                .collect();
            for (rank, row) in rows.iter().enumerate() {
                ratios[rank].push(self.own.of(row) / usual[&row.stage].max(f64::MIN_POSITIVE));
            }
        }
        ratios
            .into_iter()
            .map(|mut ratios| median(&mut ratios).min(1e6))
            .collect()
    }
}

/// Ranks that stand out, worst first.
fn outliers(ratios: &[f64]) -> Vec<usize> {
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

/// Causes that show in ranks' own time: each is what the slowest rank of a step would win without it.
fn own_causes(table: &Table, ratios: &[f64], slow: &[usize], observed: f64) -> Vec<Cause> {
    let saved = |even: &dyn Fn(usize, usize, f64) -> f64| {
        let each = table.steps.iter().enumerate().map(|(step, (_, rows))| {
            let own = table.own(rows);
            let less = own.iter().enumerate().map(|(rank, own)| even(step, rank, *own));
            most(own.iter().copied()) - most(less)
        });
        mean(&each.collect::<Vec<f64>>())
    };
    let mut causes = Vec::new();
    let mut name = |kind, places: Vec<Place>, saved_s: f64, bound: f64, why: String| {
        let mut places = places.into_iter();
        if saved_s >= bound * observed {
            let place = places.next().unwrap_or_default();
            causes.push(Cause {
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
            Place {
                rank: Some(table.ranks[*rank]),
                stage,
                ..Place::default()
            }
        });
        let why = format!(
            "Its own time is {:.3} times that of the usual rank, median over {} steps; half of the ranks are within {:.3}.",
            ratios[*worst],
            table.steps.len(),
            median(&mut ratios.to_vec())
        );
        let won = saved(&|_, rank, own| if slow.contains(&rank) { own / ratios[rank] } else { own });
        name(CauseKind::SlowWorker, places.collect(), won, NAMED_FROM, why);
    }
    if let Some((stage, ratio)) = slow_stage(table) {
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
            vec![Place {
                stage: Some(stage),
                ..Place::default()
            }],
            won,
            NAMED_FROM,
            why,
        );
    }
    // What is left once each rank has its usual ratio: does it follow the tokens, or nothing?
    let mut moments = Moments::default();
    for (_, rows) in &table.steps {
        let own = table.own(rows);
        let (usual, tokens) = (
            mean(&own),
            mean(&rows.iter().filter_map(|row| row.tokens).collect::<Vec<_>>()),
        );
        for (rank, row) in rows.iter().enumerate() {
            if let Some(own_tokens) = row.tokens.filter(|_| usual > 0.0 && tokens > 0.0) {
                moments.add(
                    own[rank] / usual / ratios[rank].max(f64::MIN_POSITIVE),
                    own_tokens / tokens,
                );
            }
        }
    }
    let correlation = moments.correlation();
    let spread = |rank: usize, own: f64, step: usize| {
        let usual = lower_median(&mut table.own(&table.steps[step].1));
        own.min(usual * ratios[rank].max(1.0))
    };
    if correlation >= TOGETHER_FROM {
        let won = saved(&|step, rank, own| {
            let rows = &table.steps[step].1;
            let tokens = mean(&rows.iter().filter_map(|row| row.tokens).collect::<Vec<_>>());
            rows[rank]
                .tokens
                .filter(|t| *t > 0.0)
                .map_or(own, |own_tokens| own * tokens / own_tokens)
        });
        let why = format!(
            "A rank's own time follows its tokens (correlation {correlation:.3}): longer sequences, not slower hardware."
        );
        name(CauseKind::DataImbalance, Vec::new(), won, NAMED_FROM, why);
    } else {
        let won = saved(&|step, rank, own| spread(rank, own, step));
        let why = match table.steps.iter().flat_map(|(_, rows)| rows).all(|row| row.tokens.is_some()) {
            true => format!("Own time varies from rank to rank and step to step, and not with tokens (correlation {correlation:.3})."),
            false => "Own time varies from rank to rank and step to step; with a column tokens it could be told whether the data is the reason.".to_owned(),
        };
        name(CauseKind::Jitter, Vec::new(), won, NAMED_VAGUE_FROM, why);
    }
    causes
}

fn slow_stage(table: &Table) -> Option<(i64, f64)> {
    let mut stages: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for row in table.steps.iter().flat_map(|(_, rows)| rows) {
        stages.entry(row.stage?).or_default().push(table.own.of(row));
    }
    let levels: Vec<(i64, f64)> = stages
        .into_iter()
        .map(|(stage, mut own)| (stage, median(&mut own)))
        .collect();
    let usual = lower_median(&mut levels.iter().map(|(_, level)| *level).collect::<Vec<_>>());
    let (stage, level) = levels.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a })?;
    (levels.len() > 1 && usual > 0.0 && level / usual >= SLOW_FROM).then(|| (stage, level / usual))
}

/// The rank that comes last waits for nobody, so the least time in communication of a step is the transfer itself.
fn communication(table: &Table, observed: f64) -> Option<Cause> {
    let least = |rows: &Vec<&StepTiming>| rows.iter().map(|row| row.communication).collect::<Option<Vec<f64>>>();
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
    (saved_s >= NAMED_FROM * observed).then(|| Cause {
        kind: CauseKind::Communication,
        place: Place { steps: slow.iter().map(|step| table.steps[*step].0).collect(), ..Place::default() },
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

/// Time in the data loader holds up everybody.
fn loading(table: &Table, observed: f64) -> Option<Cause> {
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
    (saved_s >= 0.05 * observed).then(|| Cause {
        kind: CauseKind::Pauses,
        place: Place {
            rank: one.then(|| table.ranks[worst]),
            operation: Some("data-loading"),
            ..Place::default()
        },
        others: Vec::new(),
        share: 0.0,
        saved_s,
        adds_s: saved_s,
        why: format!("A step waits {saved_s:.4} s for the data loader of its slowest rank."),
    })
}
