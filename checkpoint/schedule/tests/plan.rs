//! Checkpoint plans: published figures, budgets, bounds, refusals.

use proptest::prelude::*;
use rankguard_checkpoint_schedule::ettr;
use rankguard_checkpoint_schedule::governor::{IntervalBound, IntervalLimits};
use rankguard_checkpoint_schedule::interval::exact;
use rankguard_checkpoint_schedule::plan::{PlanError, PlanInputs, StorageTier};

fn tier(name: &str, blocking_s: f64, covers: f64) -> StorageTier {
    StorageTier {
        name: name.to_owned(),
        blocking_s,
        latency_s: blocking_s,
        covers,
        restore_s: 0.0,
    }
}

fn question(tiers: Vec<StorageTier>, rate: f64) -> PlanInputs {
    PlanInputs {
        tiers,
        rate,
        detect_s: 0.0,
        restart_s: 0.0,
        queue_s: 0.0,
        in_flight: 1,
        step_s: None,
        limits: IntervalLimits {
            max_s: f64::INFINITY,
            ..IntervalLimits::default()
        },
    }
}

fn three() -> PlanInputs {
    let tiers = vec![
        tier("arena", 0.2, 0.75),
        tier("peer", 2.0, 0.97),
        tier("disk", 120.0, 1.0),
    ];
    question(tiers, 1.0 / 3_600.0)
}

/// Published run of 16k GPUs: 0.7 with hourly and 0.93 with five-minute checkpoints, at 1.8 h between failures; the
/// reported restart overhead is 5 to 20 min, of which 5 fits.
#[test]
fn the_published_ratio_of_a_large_run() {
    let rate = 1.0 / (1.8 * 3_600.0);
    let at = |interval: f64| ettr::kokolis(0.0, interval, rate, 300.0);
    assert!((at(3_600.0) - 0.7).abs() < 0.03, "{}", at(3_600.0));
    assert!((at(300.0) - 0.93).abs() < 0.005, "{}", at(300.0));
    // The other first-order form agrees to second order of the waste.
    let other = ettr::first_order(0.0, 300.0, rate, 0.0, 300.0, 0.0);
    assert!((other - at(300.0)).abs() < 0.006);
    assert_eq!(ettr::wasted_per_failure(10.0, 1.0 / 60.0, 20.0), 60.0);
    assert_eq!(ettr::highest_frequency(4.0, 10.0), 0.1);
}

/// 16,384 GPUs, R = 120 s, C = 30 s: waste 10.98 percent, and 2.60 percent with C = 0.2 s.
#[test]
fn one_tier_gives_the_table_of_the_exact_form() {
    for (cost, percent) in [(30.0, 10.98), (0.2, 2.60), (2.0, 4.25)] {
        let question = PlanInputs {
            restart_s: 120.0,
            ..question(vec![tier("disk", cost, 1.0)], 1.0 / 6_480.0)
        };
        let plan = question.solve().expect("an answer");
        assert!(
            (100.0 * (1.0 - plan.ettr) - percent).abs() < 0.006,
            "{cost}: {}",
            100.0 * (1.0 - plan.ettr)
        );
        let interval = plan.tiers[0].interval_s.expect("used");
        assert!((interval / exact(cost, 6_480.0) - 1.0).abs() < 1e-6);
        // With one tier the plan equals the exact form alone; every other rule is no better.
        assert!((plan.alternatives[2].ettr - plan.ettr).abs() < 1e-12);
        assert!(plan.alternatives.iter().all(|other| other.ettr <= plan.ettr + 1e-12));
    }
}

#[test]
fn three_tiers_beat_the_last_alone_as_computed() {
    let plan = three().solve().expect("an answer");
    let [arena, peer, disk] = [0, 1, 2].map(|at: usize| plan.tiers[at].interval_s.expect("used"));
    assert!(
        (arena - 43.8).abs() < 2.0 && (peer - 256.0).abs() < 15.0 && (disk / 60.0 - 89.0).abs() < 3.0,
        "{arena} {peer} {disk}"
    );
    assert!((1.0 / plan.ettr - 1.0 - 0.0695).abs() < 0.002, "{}", plan.ettr);
    assert!(plan.ettr > plan.alternatives.iter().map(|other| other.ettr).fold(0.0, f64::max) + 0.1);
}

#[test]
fn the_budget_is_hard_and_bounds_hold() {
    let limited = PlanInputs {
        limits: IntervalLimits {
            budget: Some(0.01),
            ..three().limits
        },
        step_s: Some(7.0),
        ..three()
    };
    let plan = limited.solve().expect("an answer");
    assert_eq!(plan.bound, IntervalBound::Budget);
    assert!(plan.blocking <= 0.01 && plan.blocking > 0.009, "{}", plan.blocking);
    assert!(plan.ettr < three().solve().expect("an answer").ettr);
    let short = PlanInputs {
        limits: IntervalLimits {
            min_s: 600.0,
            ..three().limits
        },
        ..three()
    };
    let plan = short.solve().expect("an answer");
    assert_eq!(
        (plan.bound, plan.tiers[0].interval_s),
        (IntervalBound::Min, Some(600.0))
    );
    let long = PlanInputs {
        limits: IntervalLimits {
            max_s: 10.0,
            ..three().limits
        },
        ..three()
    };
    let plan = long.solve().expect("an answer");
    assert_eq!(plan.bound, IntervalBound::Max);
    assert!((plan.tiers[0].interval_s.expect("used") - 10.0).abs() < 1e-9);
}

#[test]
fn a_latency_that_is_longer_than_the_interval_stretches_it() {
    let mut question = question(vec![tier("disk", 0.5, 1.0)], 1.0 / 6_480.0);
    question.tiers[0].latency_s = 400.0;
    assert_eq!(question.solve().expect("an answer").tiers[0].interval_s, Some(399.5));
    question.in_flight = 2;
    assert_eq!(question.solve().expect("an answer").tiers[0].interval_s, Some(199.5));
    // Neither a longest interval nor whole steps make the tier faster than it is.
    question.limits.max_s = 60.0;
    question.step_s = Some(7.0);
    assert_eq!(question.solve().expect("an answer").tiers[0].every_steps, Some(29));
}

#[test]
fn refusals_name_the_figure() {
    let says = |question: PlanInputs| question.solve().expect_err("refused").to_string();
    assert_eq!(says(question(Vec::new(), 1.0)), "name one to 8 tiers; there are 0");
    assert!(says(question(vec![tier("disk", 1.0, 0.9)], 1.0)).contains("tier disk is the last and covers 0.9"));
    assert!(says(question(vec![tier("a", 1.0, 1.0), tier("b", 1.0, 0.5)], 1.0)).contains("order them"));
    assert!(says(question(vec![tier("disk", 0.0, 1.0)], 1.0)).contains("blocking time of tier disk is 0"));
    assert!(says(question(vec![tier("disk", 1.0, 1.0)], 0.0)).contains("the failure rate is 0"));
    assert!(
        says(PlanInputs {
            detect_s: f64::NAN,
            ..three()
        })
        .contains("detection is NaN")
    );
    assert!(
        says(PlanInputs {
            step_s: Some(0.0),
            ..three()
        })
        .contains("length of a step")
    );
    assert!(matches!(
        PlanInputs {
            limits: IntervalLimits {
                budget: Some(-1.0),
                ..IntervalLimits::default()
            },
            ..three()
        }
        .solve(),
        Err(PlanError::Figure { .. })
    ));
}

proptest! {
    /// Whole steps, nested, within the budget, and no worse than the last tier alone.
    #[test]
    fn every_answer_keeps_its_promises(
        blocking in prop::collection::vec(0.01..60.0_f64, 1..4), mtbf in 600.0..1e6_f64, step in 0.05..30.0_f64, budget in prop::option::of(0.001..0.3_f64),
    ) {
        let mut blocking = blocking;
        blocking.sort_by(f64::total_cmp);
        let last = blocking.len();
        let tiers = blocking.iter().enumerate().map(|(at, cost)| tier(&at.to_string(), *cost, (at + 1) as f64 / last as f64)).collect();
        let asked = PlanInputs { step_s: Some(step), limits: IntervalLimits { budget, max_s: f64::INFINITY, min_s: 0.0 }, ..question(tiers, 1.0 / mtbf) };
        let plan = asked.solve().expect("an answer");
        prop_assert!(budget.is_none_or(|budget| plan.blocking <= budget * (1.0 + 1e-6)), "{} {budget:?}", plan.blocking);
        let every: Vec<u64> = plan.tiers.iter().filter_map(|tier| tier.every_steps).collect();
        prop_assert!(every.windows(2).all(|pair| pair[1].is_multiple_of(pair[0])), "{every:?}");
        prop_assert!(plan.ettr > 0.0 && plan.ettr < 1.0);
        let sum: f64 = plan.tiers.iter().map(|tier| tier.rate).sum();
        prop_assert!((sum * mtbf - 1.0).abs() < 1e-9);
        // A higher failure rate never improves the result.
        let worse = PlanInputs { rate: 2.0 / mtbf, ..asked };
        prop_assert!(worse.solve().expect("an answer").ettr <= plan.ettr + 1e-3);
    }
}

/// Copies in peer memory have survived every failure so far. A plan that assumes they always will never saves to the
/// store, and the first failure of a whole room loses all work.
#[test]
fn the_last_tier_is_saved_to_even_where_a_cheaper_one_is_said_to_survive_everything() {
    let asked = |covers: f64, tiers: usize| {
        let mut all = vec![
            tier("arena", 0.2, 0.75),
            tier("peer", 2.0, covers),
            tier("store", 120.0, 1.0),
        ];
        all.drain(..3 - tiers);
        question(all, 1.0 / 3_600.0).solve().expect("an answer")
    };
    for tiers in [2, 3] {
        let plan = asked(1.0, tiers);
        let store = plan.tiers.last().expect("the store");
        let interval = store.interval_s.expect("the store is saved to");
        // Interval for one failure in a thousand: sqrt(2 * 120 s * 3,600,000 s) is 8.2 h.
        assert!((interval / 29_394.0 - 1.0).abs() < 0.15, "{interval}");
        assert!(store.rate > 0.0 && plan.tiers[tiers - 2].interval_s.is_some());
        // Higher coverage of the other tiers is capped; lower coverage is used as given.
        assert_eq!(asked(0.999_999, tiers), plan);
        assert!(asked(0.97, tiers).tiers[tiers - 1].interval_s < Some(interval));
    }
    // Two middle tiers with equal coverage are still an error.
    let twice = question(
        vec![tier("a", 0.2, 1.0), tier("b", 2.0, 1.0), tier("c", 3.0, 1.0)],
        1e-3,
    );
    assert!(matches!(twice.solve(), Err(PlanError::Order { .. })));
}
