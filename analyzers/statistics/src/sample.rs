//! Descriptive statistics of a sample.

use serde::Serialize;

use crate::median_select::{middle, middles};
use crate::moments::SampleMoments;

/// Moments and order statistics of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SampleSummary {
    /// Number of values.
    pub count: usize,
    pub mean: f64,
    /// Middle value, or the mean of the two middle ones.
    pub median: f64,
    /// Sample standard deviation (divisor n - 1); `None` for one value.
    pub deviation: Option<f64>,
    /// Squared coefficient of variation: variance over squared mean; `None` for one value, or if the mean is 0. An
    /// exponential distribution has 1.
    pub c2: Option<f64>,
    pub min: f64,
    pub max: f64,
    pub sum: f64,
}

impl SampleSummary {
    /// Summarises the finite values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let moments = SampleMoments::of(values);
        // A value that is not finite makes the sum not finite.
        if moments.sum.is_finite() {
            return (!values.is_empty()).then(|| Self::with(moments, middle(values)));
        }
        let finite: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
        (!finite.is_empty()).then(|| Self::with(SampleMoments::of(&finite), middle(&finite)))
    }

    /// Summarises each of several slices of finite values, and all of them together.
    pub fn of_each(parts: &[&[f64]]) -> (Vec<Option<Self>>, Option<Self>) {
        let moments: Vec<SampleMoments> = parts.iter().map(|part| SampleMoments::of(part)).collect();
        let all = moments.iter().copied().fold(SampleMoments::NONE, SampleMoments::join);
        if all.count == 0 {
            return (vec![None; parts.len()], None);
        }
        let (medians, median) = middles(parts);
        let each = moments.into_iter().zip(medians);
        let each = each.map(|(moments, median)| Some(Self::with(moments, median?)));
        (each.collect(), Some(Self::with(all, median)))
    }

    /// Summarises values with these moments, at least one.
    fn with(moments: SampleMoments, median: f64) -> Self {
        let count = moments.count;
        let mean = moments.mean();
        let variance = (count > 1).then(|| moments.squares / (count - 1) as f64);
        Self {
            count,
            mean,
            median,
            deviation: variance.map(f64::sqrt),
            c2: variance
                .filter(|_| mean != 0.0)
                .map(|variance| variance / (mean * mean)),
            min: moments.min,
            max: moments.max,
            sum: moments.sum,
        }
    }
}

/// Returns the finite values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// Returns the quantile `q` (0 to 1) of a sorted sample, interpolated linearly (type 7 of Hyndman and Fan, the
/// default of R and pandas); NaN for an empty one.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (place - below as f64) * (sorted[above] - sorted[below])
}

/// Returns the differences of consecutive finite values in ascending order: times between failures.
pub fn gaps(times: &[f64]) -> Vec<f64> {
    sorted(times).windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_sample() {
        let summary = SampleSummary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, f64::NAN]).expect("values");
        assert_eq!((summary.count, summary.mean, summary.median), (8, 5.0, 4.5));
        assert!((summary.deviation.expect("a deviation") - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert!((summary.c2.expect("a mean") - 32.0 / 7.0 / 25.0).abs() < 1e-12);
        assert_eq!(SampleSummary::of(&[f64::INFINITY]), None);
        let one = SampleSummary::of(&[3.0]).expect("a value");
        assert_eq!((one.mean, one.deviation, one.c2), (3.0, None, None));
    }

    #[test]
    fn parts_are_summed_up_each_and_together() {
        let one = [2.0, 9.0, 4.0];
        let other = [7.0, 5.0];
        let (each, all) = SampleSummary::of_each(&[&one, &[], &other]);
        assert_eq!(each, [SampleSummary::of(&one), None, SampleSummary::of(&other)]);
        let all = all.expect("values");
        assert_eq!(
            (all.count, all.sum, all.median, all.min, all.max),
            (5, 27.0, 5.0, 2.0, 9.0)
        );
        assert!((all.deviation.expect("a deviation") - 7.3_f64.sqrt()).abs() < 1e-12);
        assert_eq!(SampleSummary::of_each(&[]), (Vec::new(), None));
    }

    #[test]
    fn quantiles_interpolate_like_the_default_of_r() {
        let sorted = [1.0, 2.0, 3.0, 10.0];
        assert_eq!(quantile(&sorted, 0.25), 1.75);
        assert_eq!(quantile(&sorted, 1.0), 10.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn gaps_do_not_ask_for_order() {
        assert_eq!(gaps(&[5.0, 1.0, 1.0]), [0.0, 4.0]);
    }
}
