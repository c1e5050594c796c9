//! The middle of a sample, found without putting all of it in order.
//!
//! Some of the values tell between which bounds it lies, all but surely, and only what lies there is put in order
//! (Floyd and Rivest 1975).

use crate::marks::{Marks, TOGETHER};

/// Fewer values than this tell no bounds.
const FEW: usize = 1 << 6;

/// The middle of so many finite values that lie in several slices, at least one: the mean of the two middle ones where their
/// number is even.
pub(crate) fn middle(parts: &[&[f64]], count: usize) -> f64 {
    let step = step(count);
    let mut some = Vec::with_capacity(count / step + parts.len());
    parts.iter().for_each(|part| some.extend(part.iter().step_by(step)));
    let mut near = Near::around(some, count);
    parts.iter().for_each(|part| near.add(part));
    near.middle(count).unwrap_or_else(|| between(parts.concat(), count, 0))
}

/// Of how many values one is looked at: to look at more costs more than it saves.
fn step(count: usize) -> usize {
    // An odd step does not fall in with what comes by twos.
    (count as f64).cbrt() as usize | 1
}

/// Values between two bounds, these too, and how many others are less.
#[derive(Debug)]
struct Near {
    low: f64,
    high: f64,
    less: usize,
    near: Vec<f64>,
}

impl Near {
    /// Bounds between which the middle of so many values lies, as some of them tell; all lie between those that too few tell.
    fn around(mut some: Vec<f64>, count: usize) -> Self {
        let (low, high, share) = if some.len() < FEW {
            (f64::NEG_INFINITY, f64::INFINITY, 1.0)
        } else {
            // Four times as far as the middle of so many is expected to be off.
            let off = 2 * some.len().isqrt();
            let from = some.len() / 2 - off;
            let (_, low, above) = some.select_nth_unstable_by(from, f64::total_cmp);
            let (_, high, _) = above.select_nth_unstable_by(2 * off - 1, f64::total_cmp);
            let (low, high) = (*low, *high);
            (low, high, 2.0 * off as f64 / some.len() as f64)
        };
        Self {
            low,
            high,
            less: 0,
            // Room at once: what grows is moved again and again.
            near: Vec::with_capacity((1.1 * share * count as f64) as usize),
        }
    }

    fn add(&mut self, values: &[f64]) {
        // Of a known number, as many as it can, the processor asks several at a time.
        let (whole, rest) = values.as_chunks::<TOGETHER>();
        whole.iter().for_each(|few| self.add_few(few));
        self.add_few(rest);
    }

    #[inline(always)]
    fn add_few(&mut self, few: &[f64]) {
        let (low, high) = (self.low, self.high);
        let near = Marks::of(few.iter().map(|x| {
            let less = *x < low;
            self.less += usize::from(less);
            !less & (*x <= high)
        }));
        near.for_each(|at| self.near.push(few[at]));
    }

    /// The middle of so many values that were added; none where the bounds do not hold it.
    fn middle(self, count: usize) -> Option<f64> {
        let holds = self.less <= (count - 1) / 2 && count / 2 < self.less + self.near.len();
        holds.then(|| between(self.near, count, self.less))
    }
}

/// The middle of so many values, of which these lie behind so many that are less.
fn between(mut values: Vec<f64>, count: usize, less: usize) -> f64 {
    let (below, above) = ((count - 1) / 2 - less, count / 2 - less);
    let (_, middle, rest) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *middle;
    let high = if above > below {
        rest.iter().copied().min_by(f64::total_cmp)
    } else {
        None
    };
    high.map_or(low, |high| low + 0.5 * (high - low))
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
            // Most are small, many are equal, one is far away.
            let value = |at: usize| (at * 7_919 % 5_003) as f64;
            let mut values: Vec<f64> = (0..count).map(|at| value(at).powi(2) / 64.0).collect();
            values[count / 3] = 1e12;
            let (one, other) = values.split_at(count / 5);
            assert_eq!(middle(&[one, &[], other], count), wanted(&values), "{count}");
            values.sort_by(f64::total_cmp);
            assert_eq!(middle(&[&values], count), wanted(&values), "{count} in order");
            values.fill(7.0);
            assert_eq!(middle(&[&values], count), 7.0, "{count} equal ones");
        }
    }

    #[test]
    fn bounds_that_do_not_hold_the_middle_say_so_and_it_is_found_all_the_same() {
        let count = 30_000;
        let is_looked_at = |at: &usize| at.is_multiple_of(step(count));
        let values: Vec<f64> = (0..count)
            .map(|at| if is_looked_at(&at) { 1e9 } else { (at % 100) as f64 })
            .collect();
        let mut near = Near::around(vec![1e9; FEW], count);
        near.add(&values);
        assert_eq!(near.middle(count), None);
        assert_eq!(middle(&[&values], count), wanted(&values));
    }
}
