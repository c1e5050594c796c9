//! What a sample of numbers looks like.

use serde::Serialize;

/// Moments and order statistics of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Middle value, or the mean of the two middle ones.
    pub median: f64,
    /// Sample standard deviation (divisor n - 1); 0 for one value.
    pub deviation: f64,
    /// Squared coefficient of variation: variance over squared mean; `None` where the mean is 0. An exponential
    /// distribution has 1.
    pub c2: Option<f64>,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Sum.
    pub sum: f64,
}

impl Summary {
    /// Of the finite values; `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut finite: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
        let count = finite.len();
        let first = *finite.first()?;
        let (min, max, sum) = finite.iter().fold((first, first, 0.0), |(min, max, sum), x| {
            (x.min(min), x.max(max), sum + x)
        });
        let mean = sum / count as f64;
        let squares: f64 = finite.iter().map(|x| (x - mean).powi(2)).sum();
        let variance = if count > 1 { squares / (count - 1) as f64 } else { 0.0 };
        Some(Self {
            count,
            mean,
            median: median(&mut finite),
            deviation: variance.sqrt(),
            c2: (mean != 0.0).then(|| variance / (mean * mean)),
            min,
            max,
            sum,
        })
    }
}

/// The middle of at least one value, without putting all in order.
fn median(values: &mut [f64]) -> f64 {
    let (below, above) = ((values.len() - 1) / 2, values.len() / 2);
    let (_, middle, rest) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *middle;
    let high = if above > below {
        rest.iter().copied().min_by(f64::total_cmp)
    } else {
        None
    };
    high.map_or(low, |high| low + 0.5 * (high - low))
}

/// The finite values in order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The value below which a share `q` (0 to 1) of an ordered sample lies, interpolated linearly (type 7 of Hyndman and
/// Fan, the default of R and pandas); NaN for an empty one.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (place - below as f64) * (sorted[above] - sorted[below])
}

/// Differences of neighbours of the finite values in order: times between failures.
pub fn gaps(times: &[f64]) -> Vec<f64> {
    sorted(times).windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_sample() {
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, f64::NAN]).expect("values");
        assert_eq!((summary.count, summary.mean, summary.median), (8, 5.0, 4.5));
        assert!((summary.deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert!((summary.c2.expect("a mean") - 32.0 / 7.0 / 25.0).abs() < 1e-12);
        assert_eq!(Summary::of(&[f64::INFINITY]), None);
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
