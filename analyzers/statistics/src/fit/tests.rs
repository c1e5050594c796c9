use proptest::prelude::*;

use super::*;

/// Quantiles of a distribution at the middle of equal shares: a fit must recover its parameters closely.
fn quantiles(of: Distribution) -> Vec<f64> {
    let count = 4_000;
    (0..count)
        .map(|i| {
            let p = (f64::from(i) + 0.5) / f64::from(count);
            let mut low = -60.0_f64;
            let mut high = 60.0_f64;
            for _ in 0..100 {
                let middle = 0.5 * (low + high);
                if of.cdf(middle.exp()) < p {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            low.exp()
        })
        .collect()
}

fn close(a: f64, b: f64, relative: f64) {
    assert!((a / b - 1.0).abs() < relative, "{a} {b}");
}

#[test]
fn each_family_finds_itself_and_wins_by_its_criterion() {
    let weibull = Distribution::Weibull {
        shape: 0.6,
        scale: 50.0,
    };
    let sample = DurationSample::new(&quantiles(weibull), ZeroTreatment::Dropped).expect("a sample");
    let Distribution::Weibull { shape, scale } = sample.weibull().distribution else {
        panic!("a Weibull fit")
    };
    close(shape, 0.6, 0.01);
    close(scale, 50.0, 0.01);
    assert_eq!(sample.fit_all()[0].distribution.name(), "Weibull");
    let gamma = Distribution::Gamma { shape: 3.0, scale: 2.0 };
    let sample = DurationSample::new(&quantiles(gamma), ZeroTreatment::Dropped).expect("a sample");
    let Distribution::Gamma { shape, scale } = sample.gamma().expect("none is censored").distribution else {
        panic!("a gamma fit")
    };
    close(shape, 3.0, 0.01);
    close(scale, 2.0, 0.01);
    assert_eq!(sample.fit_all()[0].distribution.name(), "gamma");
    let lognormal = Distribution::Lognormal { mu: 1.5, sigma: 2.4 };
    let sample = DurationSample::new(&quantiles(lognormal), ZeroTreatment::Dropped).expect("a sample");
    assert_eq!(sample.fit_all()[0].distribution.name(), "lognormal");
    assert!(sample.fit_all()[0].ks < 0.001);
}

#[test]
fn zeros_are_dropped_or_replaced_as_asked_and_counted() {
    let durations = [0.0, 1.0, 2.0, -3.0, f64::NAN];
    let dropped = DurationSample::new(&durations, ZeroTreatment::Dropped).expect("a sample");
    let values = |sample: &DurationSample| sample.runs.iter().map(|run| run.value).collect::<Vec<_>>();
    assert_eq!(
        (values(&dropped), dropped.zeros, dropped.refused),
        (vec![1.0, 2.0], 1, 2)
    );
    let replaced = DurationSample::new(&durations, ZeroTreatment::Replaced(1e-6)).expect("a sample");
    assert_eq!(values(&replaced), [1e-6, 1.0, 2.0]);
    assert!(DurationSample::new(&[0.0, 4.0, 4.0], ZeroTreatment::Dropped).is_none());
    assert!(DurationSample::new(&[], ZeroTreatment::Dropped).is_none());
}

/// Lives of a distribution, censored at a limit.
fn cut_at(of: Distribution, limit: f64) -> Vec<ObservedLifetime> {
    let seen = |time: f64| ObservedLifetime {
        time: time.min(limit),
        failed: time < limit,
    };
    quantiles(of).into_iter().map(seen).collect()
}

#[test]
fn each_family_finds_itself_although_half_are_still_running() {
    let exponential = Distribution::Exponential { mean: 7.0 };
    let sample = DurationSample::of_lives(&cut_at(exponential, 4.85), ZeroTreatment::Dropped).expect("a sample");
    assert!((1_900..2_100).contains(&sample.censored), "{}", sample.censored);
    close(sample.exponential().distribution.mean(), 7.0, 0.01);
    let weibull = Distribution::Weibull {
        shape: 0.6,
        scale: 50.0,
    };
    let sample = DurationSample::of_lives(&cut_at(weibull, 27.0), ZeroTreatment::Dropped).expect("a sample");
    let Distribution::Weibull { shape, scale } = sample.weibull().distribution else {
        panic!("a Weibull fit")
    };
    close(shape, 0.6, 0.01);
    close(scale, 50.0, 0.01);
    assert_eq!(sample.fit_all()[0].distribution.name(), "Weibull");
    assert!(sample.fit_all()[0].ks < 0.001 && sample.gamma().is_none());
    let lognormal = Distribution::Lognormal { mu: 1.5, sigma: 2.4 };
    let sample = DurationSample::of_lives(&cut_at(lognormal, 4.0), ZeroTreatment::Dropped).expect("a sample");
    let Distribution::Lognormal { mu, sigma } = sample.lognormal().distribution else {
        panic!("a lognormal fit")
    };
    close(mu, 1.5, 0.01);
    close(sigma, 2.4, 0.01);
}

#[test]
fn lives_that_all_ended_are_durations() {
    let durations = quantiles(Distribution::Gamma { shape: 3.0, scale: 2.0 });
    let lives: Vec<ObservedLifetime> = durations
        .iter()
        .map(|time| ObservedLifetime {
            time: *time,
            failed: true,
        })
        .collect();
    assert_eq!(
        DurationSample::of_lives(&lives, ZeroTreatment::Dropped),
        DurationSample::new(&durations, ZeroTreatment::Dropped)
    );
    let running = [1.0, 2.0, 3.0].map(|time| ObservedLifetime { time, failed: false });
    assert!(DurationSample::of_lives(&running, ZeroTreatment::Dropped).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// At a maximum, no small step in either parameter increases the likelihood.
    #[test]
    fn no_step_from_a_fit_is_likelier(durations in prop::collection::vec(1e-3..1e5_f64, 3..60)) {
        let sample = DurationSample::new(&durations, ZeroTreatment::Dropped).expect("a sample");
        let of = |d: Distribution| durations.iter().map(|x| d.ln_density(*x)).sum::<f64>();
        let slack = 1e-7 * durations.len() as f64;
        for (up, down) in [(1.001, 1.0), (0.999, 1.0), (1.0, 1.001), (1.0, 0.999)] {
            let weibull = sample.weibull();
            let gamma = sample.gamma().expect("none is censored");
            if let Distribution::Weibull { shape, scale } = weibull.distribution {
                let there = of(Distribution::Weibull { shape: shape * up, scale: scale * down });
                prop_assert!(there <= weibull.ln_likelihood + slack);
            }
            if let Distribution::Gamma { shape, scale } = gamma.distribution {
                let there = of(Distribution::Gamma { shape: shape * up, scale: scale * down });
                prop_assert!(there <= gamma.ln_likelihood + slack);
            }
        }
    }

    /// The same with censored lives, which contribute the probability of lasting longer.
    #[test]
    fn no_step_from_a_censored_fit_is_likelier(
        ended in prop::collection::vec(1e-3..1e5_f64, 3..60),
        running in prop::collection::vec(1e-3..1e5_f64, 1..60),
    ) {
        let life = |failed: bool| move |time: &f64| ObservedLifetime { time: *time, failed };
        let lives: Vec<ObservedLifetime> = ended.iter().map(life(true)).chain(running.iter().map(life(false))).collect();
        let sample = DurationSample::of_lives(&lives, ZeroTreatment::Dropped).expect("a sample");
        let longer = |d: Distribution, x: f64| match d {
            Distribution::Weibull { shape, scale } => -(x / scale).powf(shape),
            Distribution::Lognormal { mu, sigma } => normal::ln_above((x.ln() - mu) / sigma),
            _ => f64::NAN,
        };
        let of = |d: Distribution| {
            let lasted: f64 = running.iter().map(|x| longer(d, *x)).sum();
            lasted + ended.iter().map(|x| d.ln_density(*x)).sum::<f64>()
        };
        let weibull = sample.weibull();
        let lognormal = sample.lognormal();
        for fit in [weibull, lognormal] {
            prop_assert!((of(fit.distribution) / fit.ln_likelihood - 1.0).abs() < 1e-6);
        }
        let slack = 1e-7 * lives.len() as f64;
        for (one, other) in [(1.001, 1.0), (0.999, 1.0), (1.0, 1.001), (1.0, 0.999)] {
            if let Distribution::Weibull { shape, scale } = weibull.distribution {
                let there = of(Distribution::Weibull { shape: shape * one, scale: scale * other });
                prop_assert!(there <= weibull.ln_likelihood + slack);
            }
            if let Distribution::Lognormal { mu, sigma } = lognormal.distribution {
                let there = of(Distribution::Lognormal { mu: mu + one - 1.0, sigma: sigma * other });
                prop_assert!(there <= lognormal.ln_likelihood + slack);
            }
        }
    }

    #[test]
    fn a_change_of_unit_changes_scales_only(durations in prop::collection::vec(1e-2..1e4_f64, 5..60), unit in 1e-3..1e4_f64) {
        let scaled: Vec<f64> = durations.iter().map(|x| x * unit).collect();
        let a = DurationSample::new(&durations, ZeroTreatment::Dropped).expect("one");
        let b = DurationSample::new(&scaled, ZeroTreatment::Dropped).expect("one");
        let shapes = |sample: &DurationSample| match (sample.weibull().distribution, sample.gamma().expect("none is censored").distribution) {
            (Distribution::Weibull { shape: w, .. }, Distribution::Gamma { shape: g, .. }) => (w, g),
            _ => (f64::NAN, f64::NAN),
        };
        let ((aw, ag), (bw, bg)) = (shapes(&a), shapes(&b));
        prop_assert!((aw / bw - 1.0).abs() < 1e-6 && (ag / bg - 1.0).abs() < 1e-6);
    }
}
