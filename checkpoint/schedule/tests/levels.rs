//! Patterns of several levels compared with a computed reference, brute force and simulated failures.

use proptest::prelude::*;
use rankguard_checkpoint_schedule::interval::{exact, overhead_over_work};
use rankguard_checkpoint_schedule::levels::{CheckpointLevel, LevelPattern, first_order, first_order_of, pattern};

fn level(cost_s: f64, rate: f64) -> CheckpointLevel {
    CheckpointLevel {
        cost_s,
        latency_s: cost_s,
        restart_s: 0.0,
        rate,
        shortest_s: 0.0,
    }
}

/// One failure an hour, split 75 / 22 / 3 percent over process, node and several nodes; 0.2, 2 and 120 s.
fn three() -> [CheckpointLevel; 3] {
    let rate = 1.0 / 3_600.0;
    [
        level(0.2, 0.75 * rate),
        level(2.0, 0.22 * rate),
        level(120.0, 0.03 * rate),
    ]
}

#[test]
fn the_computed_vector_of_three_levels() {
    let best = first_order(&three()).expect("three levels");
    assert!((best.work_s - 5_366.6).abs() < 0.05, "{}", best.work_s);
    for (got, want) in best.counts.iter().zip([122.47, 20.98, 1.0]) {
        assert!((got - want).abs() < 0.005, "{got} {want}");
    }
    assert!((best.overhead - 0.0695).abs() < 5e-5, "{}", best.overhead);
    let intervals: Vec<f64> = best.counts.iter().map(|count| best.work_s / count).collect();
    assert!(
        (intervals[0] - 43.8).abs() < 0.05
            && (intervals[1] - 256.0).abs() < 0.5
            && (intervals[2] / 60.0 - 89.0).abs() < 0.5
    );
    let only = first_order(&[level(120.0, 1.0 / 3_600.0)]).expect("one level");
    assert!((only.overhead - 0.258).abs() < 5e-4, "{}", only.overhead);
}

#[test]
fn rounding_to_whole_nested_counts_costs_next_to_nothing() {
    let levels = three();
    let (work, overhead) = first_order_of(&levels, &[126, 21, 1]);
    assert!((overhead - 0.0695).abs() < 2e-4, "{overhead}");
    let found = pattern(&levels).expect("a pattern");
    let chain = [found.counts[0] / found.counts[1], found.counts[1]];
    assert!(
        found.counts[0].is_multiple_of(found.counts[1]) && (5..=6).contains(&chain[0]),
        "{:?}",
        found.counts
    );
    let top = found.intervals_s[2].expect("the highest level stays");
    assert!((top / work - 1.0).abs() < 0.05, "{top} {work}");
}

#[test]
fn a_level_that_does_not_help_is_left_out_and_its_failures_move_up() {
    let rate = 1.0 / 3_600.0;
    // The middle level is hardly cheaper than the top, and hardly any failure needs it.
    let levels = [
        level(0.2, 0.9 * rate),
        level(110.0, 0.001 * rate),
        level(120.0, 0.099 * rate),
    ];
    let found = pattern(&levels).expect("a pattern");
    assert_eq!(found.intervals_s[1], None);
    assert_eq!(found.counts[1], 0);
    assert!((found.rates[2] - 0.1 * rate).abs() < 1e-15);
    // The highest level that any failure needs is used at any cost; a level above it that none needs is not.
    let found = pattern(&[level(1.0, rate), level(1e5, 1e-9), level(1.0, 0.0)]).expect("a pattern");
    assert!(found.intervals_s[1].is_some() && found.intervals_s[2].is_none());
    assert_eq!(pattern(&[level(1.0, 0.0)]), None);
    assert_eq!(pattern(&[]), None);
}

#[test]
fn a_single_level_is_the_exact_form_with_its_latency() {
    let rate = 1.0 / 6_480.0;
    let one = CheckpointLevel {
        latency_s: 600.0,
        restart_s: 120.0,
        shortest_s: 599.8,
        ..level(0.2, rate)
    };
    let found = pattern(&[one]).expect("a pattern");
    assert_eq!(found.intervals_s, [Some(599.8)]);
    let free = pattern(&[CheckpointLevel { shortest_s: 0.0, ..one }]).expect("a pattern");
    let interval = free.intervals_s[0].expect("used");
    assert!((interval / exact(0.2, 6_480.0) - 1.0).abs() < 1e-6);
    assert!((free.overhead - overhead_over_work(interval, 0.2, 600.0, 120.0, 6_480.0)).abs() < 1e-12);
}

/// Overhead of a pattern under simulated failures: work returns to the newest image that survives.
fn simulate(levels: &[CheckpointLevel], found: &LevelPattern, seconds: f64, seed: u64) -> f64 {
    let mut seed = seed;
    let mut uniform = move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    };
    let total: f64 = levels.iter().map(|level| level.rate).sum();
    let base = found
        .intervals_s
        .iter()
        .flatten()
        .copied()
        .fold(f64::INFINITY, f64::min);
    let periods: Vec<Option<u64>> = found
        .intervals_s
        .iter()
        .map(|at| at.map(|at| (at / base).round() as u64))
        .collect();
    let mut clock = 0.0;
    let mut done = 0_u64;
    // Work segments covered by the newest image of each level.
    let mut saved = vec![0_u64; levels.len()];
    let mut failure = -uniform().ln() / total;
    while clock < seconds {
        let next = done + 1;
        let due: Vec<usize> = (0..levels.len())
            .filter(|at| periods[*at].is_some_and(|every| next.is_multiple_of(every)))
            .collect();
        let ends = clock + base + due.iter().map(|at| levels[*at].cost_s).sum::<f64>();
        if failure >= ends {
            (clock, done) = (ends, next);
            due.iter().for_each(|at| saved[*at] = next);
            continue;
        }
        let mut which = uniform() * total;
        let needs = levels
            .iter()
            .position(|level| {
                which -= level.rate;
                which < 0.0
            })
            .unwrap_or(levels.len() - 1);
        let from = (needs..levels.len())
            .filter(|at| periods[*at].is_some())
            .map(|at| saved[at])
            .max()
            .unwrap_or(0);
        let at = (needs..levels.len())
            .find(|at| periods[*at].is_some())
            .unwrap_or(levels.len() - 1);
        saved.iter_mut().for_each(|held| *held = (*held).min(from));
        (clock, done) = (failure + levels[at].restart_s, from);
        failure = clock - uniform().ln() / total;
    }
    clock / (done as f64 * base) - 1.0
}

#[test]
fn simulated_failures_cost_what_was_predicted() {
    let mut levels = three();
    levels
        .iter_mut()
        .zip([20.0, 60.0, 300.0])
        .for_each(|(level, restart)| level.restart_s = restart);
    let found = pattern(&levels).expect("a pattern");
    let runs: Vec<f64> = (1..=8).map(|seed| simulate(&levels, &found, 4e7, seed)).collect();
    let mean = runs.iter().sum::<f64>() / runs.len() as f64;
    assert!(
        (mean / found.overhead - 1.0).abs() < 0.06,
        "simulated {mean}, predicted {}",
        found.overhead
    );
}

proptest! {
    /// No nested pattern is better than the one found, within the rounding of a ratio.
    #[test]
    fn no_nested_pattern_of_two_levels_is_better(cheap in 0.01..5.0_f64, factor in 2.0..200.0_f64, share in 0.01..0.99_f64, mtbf in 3e3..1e6_f64) {
        let levels = [level(cheap, share / mtbf), level(cheap * factor, (1.0 - share) / mtbf)];
        let found = pattern(&levels).expect("a pattern");
        let mut best = levels[1].best_interval();
        best = CheckpointLevel { rate: 1.0 / mtbf, ..levels[1] }.overhead(best);
        for count in 1..60_u64 {
            for part in 1..80 {
                let work = levels[1].best_interval() * f64::from(part) * 0.025;
                best = best.min(levels[0].overhead(work / count as f64) + levels[1].overhead(work));
            }
        }
        prop_assert!(found.overhead <= best * 1.002, "{} {best}", found.overhead);
    }

    #[test]
    fn counts_divide_and_intervals_follow(costs in prop::collection::vec(0.01..100.0_f64, 1..6), rates in prop::collection::vec(1e-9..1e-4_f64, 6)) {
        let mut costs = costs;
        costs.sort_by(f64::total_cmp);
        let levels: Vec<CheckpointLevel> = costs.iter().zip(&rates).map(|(cost, rate)| level(*cost, *rate)).collect();
        let found = pattern(&levels).expect("a pattern");
        let used: Vec<u64> = found.counts.iter().copied().filter(|count| *count > 0).collect();
        prop_assert_eq!(used.last(), Some(&1));
        prop_assert!(used.windows(2).all(|pair| pair[0].is_multiple_of(pair[1])), "{:?}", used);
        prop_assert!((found.rates.iter().sum::<f64>() / levels.iter().map(|level| level.rate).sum::<f64>() - 1.0).abs() < 1e-9);
        let alone = CheckpointLevel { rate: levels.iter().map(|level| level.rate).sum(), ..levels[levels.len() - 1] };
        prop_assert!(found.overhead <= alone.overhead(alone.best_interval()) * (1.0 + 1e-9));
        let tight = found.stretched(&levels, 2.0);
        prop_assert!((tight.blocking(&levels) * 2.0 / found.blocking(&levels) - 1.0).abs() < 1e-9 && tight.overhead >= found.overhead * (1.0 - 1e-9));
    }
}
