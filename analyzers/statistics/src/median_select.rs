//! Median of a sample without sorting all of it.
//!
//! A subsample gives bounds that contain the median with high probability; only the values within them are sorted
//! (Floyd and Rivest 1975).

use std::cmp::Ordering;

use crate::marks::{MatchBits, TOGETHER};

/// Minimum size of a subsample that gives bounds.
const FEW: usize = 1 << 6;
/// Share of values up to which widening the bounds costs less than another pass over all values.
const WIDER: f64 = 0.1;

/// Returns the median of finite values, at least one; the mean of the two middle ones for an even number.
pub(crate) fn middle(values: &[f64]) -> f64 {
    let mut near = NearbyValues::of(&[values], values.len(), None);
    near.add(values);
    near.middle()
        .unwrap_or_else(|| between(values.to_vec(), values.len(), 0))
}

/// Returns the median of each of several slices of finite values (`None` for an empty one), and of all of them, at
/// least one value in total.
pub(crate) fn middles(parts: &[&[f64]]) -> (Vec<Option<f64>>, f64) {
    let count = parts.iter().map(|part| part.len()).sum();
    let mut near_all = NearbyValues::of(parts, count, None);
    let each = parts.iter().map(|part| {
        if part.is_empty() {
            return None;
        }
        let mut near = NearbyValues::of(&[part], part.len(), Some(&near_all));
        near.add(part);
        near_all.add_part(part, &near);
        Some(near.middle().unwrap_or_else(|| between(part.to_vec(), part.len(), 0)))
    });
    let each = each.collect();
    let all = near_all.middle();
    (each, all.unwrap_or_else(|| between(parts.concat(), count, 0)))
}

/// Returns the stride of the subsample; a larger subsample costs more than it saves.
fn step(count: usize) -> usize {
    // An odd stride does not align with patterns of period two.
    (count as f64).cbrt() as usize | 1
}

/// Values within inclusive bounds, and the number of values below them.
#[derive(Debug)]
struct NearbyValues {
    /// Total number of values.
    count: usize,
    low: f64,
    high: f64,
    less: usize,
    near: Vec<f64>,
}

impl NearbyValues {
    /// Creates empty bounds from a subsample of the slices. The bounds `beside` are included if few values lie between,
    /// so that a second pass over all values is not needed for them.
    fn of(parts: &[&[f64]], count: usize, beside: Option<&Self>) -> Self {
        let step = step(count);
        let mut some = Vec::with_capacity(count / step + parts.len());
        parts.iter().for_each(|part| some.extend(part.iter().step_by(step)));
        Self::around(some, count, beside)
    }

    /// Computes bounds for the median of `count` values from a subsample; a subsample that is too small gives infinite
    /// ones.
    fn around(mut some: Vec<f64>, count: usize, beside: Option<&Self>) -> Self {
        let (mut low, mut high, mut share) = if some.len() < FEW {
            (f64::NEG_INFINITY, f64::INFINITY, 1.0)
        } else {
            // Four times the expected deviation of the subsample's median.
            let off = 2 * some.len().isqrt();
            let from = some.len() / 2 - off;
            let (_, low, above) = some.select_nth_unstable_by(from, less_first);
            let (_, high, _) = above.select_nth_unstable_by(2 * off - 1, less_first);
            (*low, *high, 2.0 * off as f64 / some.len() as f64)
        };
        if let Some(beside) = beside {
            let wide_low = low.min(beside.low);
            let wide_high = high.max(beside.high);
            let between = some.iter().filter(|x| (wide_low..=wide_high).contains(*x)).count();
            let wide_share = between as f64 / some.len() as f64;
            if wide_share < share + WIDER {
                (low, high, share) = (wide_low, wide_high, wide_share);
            }
        }
        Self {
            count,
            low,
            high,
            less: 0,
            // Allocated once, because growing copies the content repeatedly.
            near: Vec::with_capacity((1.1 * share * count as f64) as usize),
        }
    }

    /// Adds values in blocks.
    fn add(&mut self, values: &[f64]) {
        // Blocks of constant size are vectorised.
        let (whole, rest) = values.as_chunks::<TOGETHER>();
        whole.iter().for_each(|few| self.add_few(few));
        self.add_few(rest);
    }

    #[inline(always)]
    fn add_few(&mut self, few: &[f64]) {
        let low = self.low;
        let high = self.high;
        let near = MatchBits::of(few.iter().map(|x| {
            let less = *x < low;
            self.less += usize::from(less);
            !less & (*x <= high)
        }));
        near.for_each(|at| self.near.push(few[at]));
    }

    /// Adds values that `added` holds already: if its bounds contain these, only the values within them are examined.
    fn add_part(&mut self, values: &[f64], added: &Self) {
        if added.low <= self.low && self.high <= added.high {
            self.less += added.less;
            self.add(&added.near);
        } else {
            self.add(values);
        }
    }

    /// Returns the median of all added values; `None` if it lies outside the bounds.
    fn middle(self) -> Option<f64> {
        let less = self.less;
        let count = self.count;
        let holds = less <= (count - 1) / 2 && count / 2 < less + self.near.len();
        holds.then(|| between(self.near, count, less))
    }
}

/// Returns the median of `count` values, given that `less` of them are below `values`.
fn between(mut values: Vec<f64>, count: usize, less: usize) -> f64 {
    let below = (count - 1) / 2 - less;
    let above = count / 2 - less;
    let (_, middle, rest) = values.select_nth_unstable_by(below, less_first);
    let low = *middle;
    let high = if above > below {
        rest.iter().copied().min_by(less_first)
    } else {
        None
    };
    high.map_or(low, |high| low + 0.5 * (high - low))
}

/// Compares finite values in fewer instructions than a total order that handles NaN.
fn less_first(a: &f64, b: &f64) -> Ordering {
    a.partial_cmp(b).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(values: &[f64]) -> f64 {
        let mut ordered = values.to_vec();
        ordered.sort_by(f64::total_cmp);
        0.5 * (ordered[(ordered.len() - 1) / 2] + ordered[ordered.len() / 2])
    }

    #[test]
    fn the_middle_of_many_values_is_the_one_that_order_finds() {
        for count in [1, 2, 3, FEW, 500, 3_000, 40_000, 40_001] {
            // Most values are small, many are equal, one is far away.
            let value = |at: usize| (at * 7_919 % 5_003) as f64;
            let mut values: Vec<f64> = (0..count).map(|at| value(at).powi(2) / 64.0).collect();
            values[count / 3] = 1e12;
            let (one, other) = values.split_at(count / 5);
            let (each, all) = middles(&[one, &[], other]);
            let wanted_of_each = [one, &[], other].map(|part| (!part.is_empty()).then(|| wanted(part)));
            assert_eq!((each, all), (wanted_of_each.to_vec(), wanted(&values)), "{count}");
            // A part with a median far from that of all values gives no bounds for it.
            let far: Vec<f64> = other.iter().map(|x| x + 1e9).collect();
            let (each, all) = middles(&[one, &far]);
            if !one.is_empty() {
                assert_eq!(each, [Some(wanted(one)), Some(wanted(&far))], "{count}");
            }
            assert_eq!(all, wanted(&[one, &far].concat()), "{count}");
            values.sort_by(f64::total_cmp);
            assert_eq!(middle(&values), wanted(&values), "{count} in order");
            values.fill(7.0);
            assert_eq!(middle(&values), 7.0, "{count} equal ones");
        }
    }

    #[test]
    fn bounds_that_do_not_hold_the_middle_say_so_and_it_is_found_all_the_same() {
        let count = 30_000;
        let is_looked_at = |at: &usize| at.is_multiple_of(step(count));
        let values: Vec<f64> = (0..count)
            .map(|at| if is_looked_at(&at) { 1e9 } else { (at % 100) as f64 })
            .collect();
        let mut near = NearbyValues::around(vec![1e9; FEW], count, None);
        near.add(&values);
        assert_eq!(near.middle(), None);
        assert_eq!(middle(&values), wanted(&values));
    }
}
