//! Kolmogorov-Smirnov distance of a fitted and the observed distribution function, without evaluation at every point.

use super::runs::EqualDurations;

/// Duration with the observed distribution function just before it and at it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DistributionPoint {
    x: f64,
    before: f64,
    at: f64,
}

/// Returns the steps of the observed distribution function (Kaplan and Meier's).
pub(super) fn points(runs: &[EqualDurations]) -> Vec<DistributionPoint> {
    let all: usize = runs.iter().map(|run| run.ended + run.censored).sum();
    let any_censored = runs.iter().any(|run| run.censored > 0);
    let mut gone = 0;
    let mut ended = 0;
    let mut survival = 1.0;
    let mut points = Vec::with_capacity(runs.len());
    for run in runs {
        if run.ended > 0 {
            let before = ended as f64 / all as f64;
            ended += run.ended;
            let at = ended as f64 / all as f64;
            let after = survival * (1.0 - run.ended as f64 / (all - gone) as f64);
            points.push(if any_censored {
                DistributionPoint {
                    x: run.value,
                    before: 1.0 - survival,
                    at: 1.0 - after,
                }
            } else {
                DistributionPoint {
                    x: run.value,
                    before,
                    at,
                }
            });
            survival = after;
        }
        gone += run.ended + run.censored;
    }
    points
}

/// Returns the largest gap. Both functions are monotonic, so between two points the gap is at most the difference of
/// the higher end of one and the lower end of the other; a span where that is below the largest gap so far is
/// skipped.
pub(super) fn largest(points: &[DistributionPoint], cdf: impl Fn(f64) -> f64) -> f64 {
    let gap = |point: &DistributionPoint, p: f64| (p - point.before).abs().max((point.at - p).abs());
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return 0.0;
    };
    let ends = (cdf(first.x), cdf(last.x));
    let mut most = gap(first, ends.0).max(gap(last, ends.1));
    let mut open = vec![((0, ends.0), (points.len() - 1, ends.1))];
    while let Some((low, high)) = open.pop() {
        let between = (high.1 - points[low.0].at).max(points[high.0].before - low.1);
        if high.0 - low.0 < 2 || between <= most {
            continue;
        }
        let at = low.0 + (high.0 - low.0) / 2;
        let middle = (at, cdf(points[at].x));
        most = most.max(gap(&points[at], middle.1));
        open.push((low, middle));
        open.push((middle, high));
    }
    most
}

#[cfg(test)]
mod tests {
    use super::super::runs::runs;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_gap_that_asking_everywhere_finds(
            ended in prop::collection::vec(1_u32..400, 2..300),
            running in prop::collection::vec(1_u32..400, 0..50),
            mean in 1.0..500.0_f64,
        ) {
            let seconds = |values: &[u32]| values.iter().copied().map(f64::from).collect::<Vec<_>>();
            let points = points(&runs(seconds(&ended), seconds(&running)));
            let cdf = |x: f64| -(-x / mean).exp_m1();
            let everywhere = points.iter().fold(0.0_f64, |most, point| {
                let p = cdf(point.x);
                most.max((p - point.before).abs()).max((point.at - p).abs())
            });
            prop_assert_eq!(largest(&points, cdf), everywhere);
        }
    }

    #[test]
    fn few_points_are_asked() {
        let durations: Vec<f64> = (1..=100_000)
            .map(|at| -(1.0 - f64::from(at) / 100_001.0).ln() * 3.0)
            .collect();
        let points = points(&runs(durations, Vec::new()));
        let asked = std::cell::Cell::new(0);
        largest(&points, |x| {
            asked.set(asked.get() + 1);
            -(-x / 2.5_f64).exp_m1()
        });
        assert!(asked.get() < 10_000, "{}", asked.get());
    }

    #[test]
    fn a_censored_duration_makes_later_steps_larger() {
        let found = points(&runs(vec![1.0, 3.0], vec![2.0, 2.5]));
        assert_eq!(found.len(), 2);
        assert!((found[0].at - 0.25).abs() < 1e-15 && (found[1].before - 0.25).abs() < 1e-15);
        assert!((found[1].at - 1.0).abs() < 1e-15);
    }
}
