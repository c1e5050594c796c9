//! Invariants of every run, and agreement with theory.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rankguard_checkpoint_schedule::interval;
use rankguard_checkpoint_schedule::rates::{FailureExtent, FailureRates, RateBelief};
use rankguard_policies::compare::{PolicyExperiment, ScheduleSource};
use rankguard_policies::failure_schedule::FailureSchedule;
use rankguard_policies::job::{CopyPlacement, ElasticLimits, SimulatedJob, SurvivedFailures, TierCosts};
use rankguard_policies::outcome::TimeBreakdown;
use rankguard_policies::policy::{FailureStatistics, IntervalPolicy};
use rankguard_policies::random::RandomGenerator;
use rankguard_policies::run::run;
use rankguard_policies::synthetic::TraceParameters;
use rankguard_policies::trace::{FailureTrace, NodeFailure};

fn rate(per_node_hour: f64) -> RateBelief {
    RateBelief {
        failures: 2.0,
        node_hours: 2.0 / per_node_hour,
    }
}

fn rates(of: &[(FailureExtent, f64)]) -> FailureRates {
    let mut rates = FailureRates::default();
    of.iter()
        .for_each(|(scope, per_hour)| rates.insert(*scope, rate(*per_hour)));
    rates
}

fn tier(name: &str, blocking_s: f64, latency_s: f64, restore_s: f64, survives: SurvivedFailures) -> TierCosts {
    TierCosts {
        name: name.to_owned(),
        blocking_s,
        latency_s,
        restore_s,
        survives,
    }
}

fn three_tiers(stride: u32) -> Vec<TierCosts> {
    let peers = SurvivedFailures::Peers(CopyPlacement { copies: 2, stride });
    vec![
        tier("arena", 0.5, 0.5, 2.0, SurvivedFailures::Process),
        tier("peer", 2.0, 20.0, 10.0, peers),
        tier("store", 10.0, 120.0, 90.0, SurvivedFailures::All),
    ]
}

fn known(job: &SimulatedJob, weather: &FailureSchedule) -> FailureStatistics {
    let strikes: Vec<_> = weather.strikes().collect();
    let share = |tier: &TierCosts| {
        let outlived = |strike: &&(f64, &rankguard_policies::failure_schedule::JobFailure)| {
            tier.survives.outlives(&strike.1.lost, job.nodes)
        };
        (strikes.iter().filter(outlived).count() as f64 + 0.5) / (strikes.len() as f64 + 1.0)
    };
    FailureStatistics {
        rate: (strikes.len() as f64).max(0.5) / weather.span_s,
        covers: job.tiers.iter().map(share).collect(),
        prior: rate(1e-3),
    }
}

fn outcome(
    job: &SimulatedJob,
    weather: &FailureSchedule,
    policy: IntervalPolicy,
    known: &FailureStatistics,
) -> TimeBreakdown {
    run(job, weather, policy, known, 3).unwrap()
}

#[derive(Debug, Clone)]
struct Case {
    job: SimulatedJob,
    synthetic: TraceParameters,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let cluster = (4_u32..40, 0.4..1.6_f64, 1_u32..8, 60.0..40_000.0_f64, 0.3..3.0_f64);
    let job = (0_u32..4, any::<bool>(), 1_u32..5, 0.0..200.0_f64, 0.0..400.0_f64);
    (cluster, job, any::<u64>()).prop_map(|(cluster, job, seed)| {
        let (nodes, shape, domain, repair_s, often) = cluster;
        let (spares, elastic, unit, detect_s, restart_s) = job;
        let spares = spares.min(nodes - 1);
        let per_hour = often / f64::from(nodes);
        Case {
            job: SimulatedJob {
                nodes: nodes - spares,
                spares,
                step_s: 3.0,
                tiers: three_tiers(domain),
                detect_s,
                restart_s,
                reshard_s: 15.0,
                elastic: elastic.then_some(ElasticLimits { unit, least: 1 }),
                in_flight: 1,
            },
            synthetic: TraceParameters {
                nodes,
                span_s: 3.0 * 86_400.0,
                rates: rates(&[
                    (FailureExtent::Process, per_hour / 2.0),
                    (FailureExtent::Node, per_hour / 3.0),
                    (FailureExtent::Domain, per_hour / 6.0),
                ]),
                shape,
                domain,
                repair_s,
            },
            seed,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Every second has exactly one use, and no policy exceeds the bound that knows every failure.
    #[test]
    fn time_adds_up_and_no_policy_beats_the_bound(case in cases()) {
        let trace = case.synthetic.trace(&mut RandomGenerator::new(case.seed)).unwrap();
        let weather = FailureSchedule::of(&trace, &case.job);
        let known = known(&case.job, &weather);
        let bound = outcome(&case.job, &weather, IntervalPolicy::Oracle, &known);
        for policy in IntervalPolicy::USUAL {
            let found = outcome(&case.job, &weather, policy, &known);
            prop_assert!((found.parts() - found.wall_s).abs() < 1e-6 * found.wall_s, "{policy}: {found:?}");
            prop_assert!(found.work_s <= found.useful_s + 1e-6);
            prop_assert!(found.work_s <= bound.work_s + 1e-6 * found.wall_s, "{policy}: {found:?} {bound:?}");
            prop_assert_eq!(found.failures as usize, weather.strikes().count());
            prop_assert!(found.restarts <= found.failures);
            let wasted: f64 = found.causes.iter().map(|cause| cause.seconds).sum();
            prop_assert!(wasted <= found.wall_s - found.useful_s + 1e-6 * found.wall_s);
            if case.job.elastic.is_none() {
                prop_assert!((found.work_s - found.useful_s).abs() < 1e-6 * found.wall_s);
            }
        }
    }

    /// The same seed gives the same comparison, to the last digit.
    #[test]
    fn comparisons_are_reproducible(case in cases()) {
        let ask = || PolicyExperiment {
            job: &case.job,
            source: ScheduleSource::Synthetic(&case.synthetic),
            policies: &[IntervalPolicy::Daly, IntervalPolicy::Adaptive],
            replicates: 2,
            seed: case.seed,
            prior: rate(1e-3),
        }.compare().unwrap();
        prop_assert_eq!(ask(), ask());
    }
}

/// Daly's own setting: checkpoints of 5 min, restarts of 10 min, exponential failures, spares for everything.
fn daly_setting(mtbf_s: f64, days: f64) -> (SimulatedJob, TraceParameters) {
    let job = SimulatedJob {
        nodes: 1,
        spares: 0,
        step_s: 1.0,
        tiers: vec![tier("store", 300.0, 300.0, 0.0, SurvivedFailures::All)],
        detect_s: 0.0,
        restart_s: 600.0,
        reshard_s: 0.0,
        elastic: None,
        in_flight: 1,
    };
    let synthetic = TraceParameters {
        nodes: 1,
        span_s: days * 86_400.0,
        rates: rates(&[(FailureExtent::Process, 3_600.0 / mtbf_s)]),
        shape: 1.0,
        domain: 1,
        repair_s: 0.0,
    };
    (job, synthetic)
}

/// Wall over work at 24 h, 6 h and 15 min between failures: 1.0958, 1.2204 and 5.0083 by the model.
#[test]
fn wall_over_work_is_that_of_the_model() {
    for (mtbf_s, days, model, within) in [
        (86_400.0, 40_000.0, 1.0958, 0.003),
        (21_600.0, 20_000.0, 1.2204, 0.004),
        (900.0, 4_000.0, 5.0083, 0.03),
    ] {
        let (job, synthetic) = daly_setting(mtbf_s, days);
        let trace = synthetic.trace(&mut RandomGenerator::new(1)).unwrap();
        let weather = FailureSchedule::of(&trace, &job);
        let found = outcome(&job, &weather, IntervalPolicy::Exact, &known(&job, &weather));
        let ratio = found.wall_s / found.work_s;
        assert!((ratio / model - 1.0).abs() < within, "{mtbf_s}: {ratio} {model}");
    }
}

/// For exponential failures the best of many intervals lies where the formulas put it.
#[test]
fn the_best_interval_of_the_simulation_is_near_the_formulas() {
    let mtbf_s = 21_600.0;
    let (job, synthetic) = daly_setting(mtbf_s, 30_000.0);
    let trace = synthetic.trace(&mut RandomGenerator::new(2)).unwrap();
    let weather = FailureSchedule::of(&trace, &job);
    let known = known(&job, &weather);
    let exact = interval::exact(300.0, mtbf_s);
    let work = |interval: f64| outcome(&job, &weather, IntervalPolicy::Fixed(interval), &known).work_s;
    let tried: Vec<f64> = (-12..=12).map(|at| exact * 1.15_f64.powi(at)).collect();
    let best = tried
        .iter()
        .copied()
        .max_by(|one, other| work(*one).total_cmp(&work(*other)))
        .unwrap();
    // The optimum is flat: 35 % beside it costs less than a percent of what failures cost.
    assert!((best / exact).ln().abs() < 0.3, "{best} {exact}");
    for policy in [IntervalPolicy::Young, IntervalPolicy::Daly, IntervalPolicy::Exact] {
        let found = outcome(&job, &weather, policy, &known).work_s;
        assert!(found > 0.995 * work(best), "{policy}: {found} {}", work(best));
    }
    assert!(work(exact * 5.0) < 0.95 * work(best) && work(exact / 5.0) < 0.95 * work(best));
}

#[test]
fn copies_in_other_domains_survive_what_takes_a_domain() {
    let synthetic = TraceParameters {
        nodes: 64,
        span_s: 30.0 * 86_400.0,
        rates: rates(&[(FailureExtent::Domain, 2e-3)]),
        shape: 1.0,
        domain: 8,
        repair_s: 600.0,
    };
    let share = |stride| {
        let job = SimulatedJob {
            nodes: 56,
            spares: 8,
            step_s: 3.0,
            tiers: three_tiers(stride),
            detect_s: 10.0,
            restart_s: 60.0,
            reshard_s: 0.0,
            elastic: None,
            in_flight: 1,
        };
        let ask = PolicyExperiment {
            job: &job,
            source: ScheduleSource::Synthetic(&synthetic),
            policies: &[IntervalPolicy::MultiLevel],
            replicates: 4,
            seed: 3,
            prior: rate(1e-3),
        };
        let found = ask.compare().unwrap();
        (found.covers[1], found.rows[0].goodput.mean)
    };
    let neighbours = share(1);
    let spread = share(8);
    assert!(neighbours.0 < 0.1 && spread.0 > 0.6, "{neighbours:?} {spread:?}");
    assert!(spread.1 > neighbours.1, "{neighbours:?} {spread:?}");
}

/// An elastic job continues with fewer nodes, and one with spares waits less.
#[test]
fn elasticity_and_spares_save_waiting() {
    let failures = (0..20).map(|at| NodeFailure {
        at_s: 1_000.0 + f64::from(at) * 20_000.0,
        node: at % 8,
        repair_s: 10_000.0,
        cause: 0,
        scope: FailureExtent::Node,
    });
    let trace = FailureTrace::new(8, 400_000.0, vec!["x".to_owned()], failures.collect()).unwrap();
    let job = |nodes, spares, elastic| SimulatedJob {
        nodes,
        spares,
        step_s: 3.0,
        tiers: three_tiers(1),
        detect_s: 10.0,
        restart_s: 60.0,
        reshard_s: 15.0,
        elastic,
        in_flight: 1,
    };
    let run = |job: SimulatedJob| {
        let weather = FailureSchedule::of(&trace, &job);
        outcome(&job, &weather, IntervalPolicy::MultiLevel, &known(&job, &weather))
    };
    let elastic = Some(ElasticLimits { unit: 1, least: 1 });
    let rigid = run(job(8, 0, None));
    let shrinks = run(job(8, 0, elastic));
    let spared = run(job(7, 1, None));
    assert!(rigid.waiting_s > 190_000.0, "{rigid:?}");
    assert!(shrinks.waiting_s < 1.0 && shrinks.resharding_s > 0.0, "{shrinks:?}");
    assert!(
        shrinks.goodput() > 0.9 && shrinks.ettr() > shrinks.goodput(),
        "{shrinks:?}"
    );
    assert!(spared.waiting_s < 1.0 && spared.goodput() > 0.97, "{spared:?}");
}

/// A prior that is sixteen times too low is corrected: the final loss against the true rate is small.
#[test]
fn the_adaptive_policy_comes_near_the_one_that_is_told() {
    let synthetic = TraceParameters {
        nodes: 256,
        span_s: 60.0 * 86_400.0,
        rates: rates(&[(FailureExtent::Process, 3e-4), (FailureExtent::Node, 5e-4)]),
        shape: 1.0,
        domain: 8,
        repair_s: 3_600.0,
    };
    let job = SimulatedJob {
        nodes: 248,
        spares: 8,
        step_s: 3.0,
        tiers: three_tiers(8),
        detect_s: 10.0,
        restart_s: 60.0,
        reshard_s: 15.0,
        elastic: None,
        in_flight: 1,
    };
    let ask = PolicyExperiment {
        job: &job,
        source: ScheduleSource::Synthetic(&synthetic),
        policies: &[
            IntervalPolicy::MultiLevel,
            IntervalPolicy::Adaptive,
            IntervalPolicy::Exact,
            IntervalPolicy::Oracle,
        ],
        replicates: 4,
        seed: 5,
        prior: rate(5e-5),
    };
    let found = ask.compare().unwrap();
    let goodput: Vec<f64> = found.rows.iter().map(|row| row.goodput.mean).collect();
    assert!(goodput[0] - goodput[1] < 0.01, "{goodput:?}");
    assert!(
        goodput[0] > goodput[2],
        "several tiers beat the last one alone: {goodput:?}"
    );
    assert!(goodput[3] >= goodput[0], "{goodput:?}");
    assert_eq!(found.rows[3].behind_bound.mean, 0.0);
    let interval = found.rows[0].goodput;
    assert!(interval.low <= interval.mean && interval.mean <= interval.high);
}
