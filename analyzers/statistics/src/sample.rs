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
        Self::of_parts(&[values])
    }

    /// The same of values that lie in several slices.
    pub fn of_parts(parts: &[&[f64]]) -> Option<Self> {
        let sum = summed(parts, |x| x);
        if sum.is_finite() {
            return Self::of_finite(parts, sum);
        }
        let finite: Vec<f64> = parts
            .iter()
            .copied()
            .flatten()
            .copied()
            .filter(|x| x.is_finite())
            .collect();
        Self::of_finite(&[&finite], summed(&[&finite], |x| x))
    }

    fn of_finite(parts: &[&[f64]], sum: f64) -> Option<Self> {
        let count: usize = parts.iter().map(|part| part.len()).sum();
        let first = *parts.iter().find_map(|part| part.first())?;
        let min = folded(parts, first, |x| x, |one, other| if other < one { other } else { one });
        let max = folded(parts, first, |x| x, |one, other| if other > one { other } else { one });
        let mean = sum / count as f64;
        let squares = summed(parts, |x| (x - mean) * (x - mean));
        let variance = if count > 1 { squares / (count - 1) as f64 } else { 0.0 };
        Some(Self {
            count,
            mean,
            median: median(parts, count, min, max),
            deviation: variance.sqrt(),
            c2: (mean != 0.0).then(|| variance / (mean * mean)),
            min,
            max,
            sum,
        })
    }
}

fn summed(parts: &[&[f64]], term: impl Fn(f64) -> f64) -> f64 {
    folded(parts, 0.0, term, |sum, x| sum + x)
}

/// A term of each value, put together in lanes that do not wait for each other.
fn folded(parts: &[&[f64]], begin: f64, term: impl Fn(f64) -> f64, join: impl Fn(f64, f64) -> f64) -> f64 {
    let mut lanes = [begin; 8];
    for part in parts {
        let (whole, rest) = part.as_chunks::<8>();
        for few in whole {
            for (lane, x) in lanes.iter_mut().zip(few) {
                *lane = join(*lane, term(*x));
            }
        }
        for (lane, x) in lanes.iter_mut().zip(rest) {
            *lane = join(*lane, term(*x));
        }
    }
    lanes.into_iter().fold(begin, join)
}

/// Bins of the histogram that finds the middle of many values, and how many are many.
const BINS: usize = 1 << 12;
const MANY: usize = 4 * BINS;
/// From here on up to twice as much, numbers are whole.
const WHOLE: f64 = (1_u64 << 52) as f64;

/// The middle of so many finite values, at least one, without putting all in order: of many only those are looked at that
/// lie in the bins of the middle ones.
fn median(parts: &[&[f64]], count: usize, min: f64, max: f64) -> f64 {
    let (below, above) = ((count - 1) / 2, count / 2);
    let scale = (BINS - 1) as f64 / (max - min);
    if count < MANY || !scale.is_normal() {
        return middle(parts.concat(), below, above);
    }
    // Beside 2^52 a number has no room but for its nearest whole, in the lowest bits. That only rises with the value, so a
    // bin's values are neighbours in their order.
    let binned = |x: f64| (x - min) * scale + WHOLE;
    let mut counts = vec![0_u32; BINS];
    for part in parts {
        for x in *part {
            counts[binned(*x).to_bits() as usize % BINS] += 1;
        }
    }
    // The bin of a rank, and how many values lie in bins before it.
    let place = |rank: usize| {
        let (mut bin, mut before) = (0, 0);
        while before + counts[bin] as usize <= rank {
            before += counts[bin] as usize;
            bin += 1;
        }
        (bin, before)
    };
    let ((first, before), (last, _)) = (place(below), place(above));
    let bounds = (first as f64 + WHOLE)..=(last as f64 + WHOLE);
    let is_near = |x: &f64| bounds.contains(&binned(*x));
    let mut near = Vec::new();
    let mut keep = |few: &[f64]| near.extend(few.iter().copied().filter(is_near));
    for part in parts {
        let (whole, rest) = part.as_chunks::<8>();
        // Few are near: eight at a time are seen to have none.
        for few in whole {
            if few.iter().fold(false, |any, x| any | is_near(x)) {
                keep(few);
            }
        }
        keep(rest);
    }
    middle(near, below - before, above - before)
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
            let (one, other) = values.split_at(1_003);
            assert_eq!(Summary::of_parts(&[one, &[], other]), Some(summary));
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
