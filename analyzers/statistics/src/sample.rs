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
        // Absent ones are passed over in each pass: a copy without them would cost more than all passes.
        let finite = || values.iter().copied().filter(|x| x.is_finite());
        let (count, first) = (finite().count(), finite().next()?);
        let (min, max) = finite().fold((first, first), |(min, max), x| {
            (if x < min { x } else { min }, if x > max { x } else { max })
        });
        let sum = summed(values, |x| x);
        let mean = sum / count as f64;
        let squares = summed(values, |x| (x - mean).powi(2));
        let variance = if count > 1 { squares / (count - 1) as f64 } else { 0.0 };
        Some(Self {
            count,
            mean,
            median: median(values, count, min, max),
            deviation: variance.sqrt(),
            c2: (mean != 0.0).then(|| variance / (mean * mean)),
            min,
            max,
            sum,
        })
    }
}

/// The sum of a term of each finite value, in lanes that do not wait for each other.
fn summed(values: &[f64], term: impl Fn(f64) -> f64) -> f64 {
    let term = |x: f64| if x.is_finite() { term(x) } else { 0.0 };
    let mut lanes = [0.0; 8];
    let (whole, rest) = values.as_chunks::<8>();
    for chunk in whole {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += term(*x);
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|x| term(*x)).sum::<f64>()
}

/// Bins of the histogram that finds the middle of many values, and how many are many.
const BINS: usize = 1 << 12;
const MANY: usize = 4 * BINS;

/// The middle of so many finite values, at least one, without putting all in order: of many only those are looked at that
/// lie in the bins of the middle ones.
fn median(values: &[f64], count: usize, min: f64, max: f64) -> f64 {
    let finite = || values.iter().copied().filter(|x| x.is_finite());
    let (below, above) = ((count - 1) / 2, count / 2);
    let scale = (BINS - 1) as f64 / (max - min);
    if count < MANY || !scale.is_normal() {
        return middle(finite().collect(), below, above);
    }
    // It only rises with the value, so a bin's values are neighbours in their order.
    let bin = |x: f64| (((x - min) * scale) as usize).min(BINS - 1);
    let mut counts = vec![0_usize; BINS];
    finite().for_each(|x| counts[bin(x)] += 1);
    let mut before = 0;
    let mut place = |rank: usize| {
        let mut upto = 0;
        let at = counts.iter().position(|count| {
            upto += count;
            upto > rank
        });
        let at = at.unwrap_or(BINS - 1);
        before = upto - counts[at];
        at
    };
    let last = place(above);
    let first = place(below);
    let near = finite().filter(|x| (first..=last).contains(&bin(*x)));
    middle(near.collect(), below - before, above - before)
}

/// The mean of the values that two neighbouring places would hold, were all in order.
fn middle(mut values: Vec<f64>, below: usize, above: usize) -> f64 {
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
    fn the_middle_of_many_values_is_the_one_that_order_finds() {
        for count in [MANY, MANY + 1] {
            // Most are small, many are equal, one is far away.
            let value = |at: usize| (at * 7_919 % 5_003) as f64;
            let mut values: Vec<f64> = (0..count).map(|at| value(at).powi(2) / 64.0).collect();
            values[17] = 1e12;
            values.extend([f64::NAN, f64::INFINITY]);
            let ordered = sorted(&values);
            let wanted = 0.5 * (ordered[(count - 1) / 2] + ordered[count / 2]);
            let summary = Summary::of(&values).expect("values");
            assert_eq!((summary.median, summary.max), (wanted, 1e12));
        }
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
