//! Indexes of times in ascending order.

use std::borrow::Cow;

/// Indexes of the finite times of a slice in ascending order; sorted input, such as a log, needs no index. Equal times
/// retain the order of the slice.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeOrder {
    len: usize,
    /// Sorted indexes; `None` if the slice itself is sorted.
    order: Option<Vec<u32>>,
}

impl TimeOrder {
    /// Sorts a slice of at most 2^32 times.
    pub fn of(times: &[f64]) -> Self {
        if in_order(times) {
            return Self {
                len: times.len(),
                order: None,
            };
        }
        let order = ranked(times);
        Self {
            len: order.len(),
            order: Some(order),
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the slice index of the time with a rank, from 0.
    pub fn row(&self, rank: usize) -> usize {
        self.order.as_ref().map_or(rank, |order| order[rank] as usize)
    }

    /// Returns the sorted slice indexes; `None` if the slice itself is sorted.
    pub(crate) fn rows(&self) -> Option<&[u32]> {
        self.order.as_deref()
    }

    /// Returns the finite times in ascending order.
    pub(crate) fn moments<'a>(&self, times: &'a [f64]) -> Cow<'a, [f64]> {
        match &self.order {
            None => times.into(),
            Some(rows) => rows.iter().map(|row| times[*row as usize]).collect(),
        }
    }
}

/// Block size of the order check.
const TOGETHER: usize = 1 << 12;

/// Returns true if all times are finite and ascending.
fn in_order(times: &[f64]) -> bool {
    let finite = |time: Option<&f64>| time.is_none_or(|time| time.is_finite());
    // NaN fails every comparison, and infinities could only be at the ends.
    let ends = finite(times.first()) && finite(times.last());
    let before = times;
    let after = times.get(1..).unwrap_or_default();
    let mut parts = before.chunks(TOGETHER).zip(after.chunks(TOGETHER));
    // No early exit within a block, so that comparisons are vectorised.
    let rises = |(before, after): (&[f64], &[f64])| before.iter().zip(after).fold(true, |all, (a, b)| all & (a <= b));
    ends && parts.all(rises)
}

/// Returns true if all times are finite; no early exit within a block, so that checks are vectorised.
fn all_finite(times: &[f64]) -> bool {
    let finite = |times: &[f64]| times.iter().fold(true, |all, time| all & time.is_finite());
    times.chunks(TOGETHER).all(finite)
}

/// Sorts the indexes of finite times, stable for equal times. Times of one history differ in few bits; only those are
/// sorted by, the lowest first.
fn ranked(times: &[f64]) -> Vec<u32> {
    let all_finite = all_finite(times);
    let finite = |time: &&f64| all_finite || time.is_finite();
    let first = times.iter().find(finite).map_or(0, |time| rising(*time));
    let differ = times.iter().filter(finite);
    let differ = differ.fold(0, |differ, time| differ | (rising(*time) ^ first));
    let mut shift = differ.trailing_zeros() % u64::BITS;
    let with_row = |shift: u32, row: u32, time: f64| rising(time) >> shift << ROW | u64::from(row);
    let numbers = (0..).zip(times).map(|(row, time)| with_row(shift, row, *time));
    let mut numbers = by_digits(numbers.collect(), differ >> shift);
    while let Some(rest) = differ.checked_shr(shift + ROW).filter(|rest| *rest > 0) {
        shift += ROW;
        for number in &mut numbers {
            let row = *number as u32;
            *number = with_row(shift, row, times[row as usize]);
        }
        numbers = by_digits(numbers, rest);
    }
    let mut rows: Vec<u32> = numbers.iter().map(|number| *number as u32).collect();
    if !all_finite {
        // Values that are not finite may sort anywhere; the others are in order without them.
        rows.retain(|row| times[*row as usize].is_finite());
    }
    rows
}

/// Bits of a row index, below as many bits of its time.
const ROW: u32 = u32::BITS;
/// Maximum bits of a radix digit.
const DIGIT: u32 = 11;
const DIGITS: usize = 1 << DIGIT;
/// Maximum number of digits above the row index.
const PASSES: usize = ROW.div_ceil(DIGIT) as usize;

/// Sorts numbers by the bits above their row index, stable; they must not differ in higher bits.
fn by_digits(mut numbers: Vec<u64>, differ: u64) -> Vec<u64> {
    let bits = (u64::BITS - differ.leading_zeros()).min(ROW);
    let passes = bits.div_ceil(DIGIT).max(1);
    // Digits of equal width: a narrow top digit repeats between neighbours, which serialises its counter updates.
    let width = bits.div_ceil(passes);
    let used = 1 << width;
    let digit = |number: u64, pass: usize| (number >> (ROW + pass as u32 * width)) as usize & ((used - 1) % DIGITS);
    // All digits are counted in one pass, so that the updates are independent.
    let mut begins = [[0_u32; DIGITS]; PASSES];
    let mut ends = [[0_u32; DIGITS]; PASSES];
    let (pairs, middle) = from_both_ends(&numbers);
    for (one, other) in pairs {
        for pass in 0..PASSES {
            begins[pass][digit(*one, pass)] += 1;
            ends[pass][digit(*other, pass)] += 1;
        }
    }
    if let Some(number) = middle {
        (0..PASSES).for_each(|pass| begins[pass][digit(*number, pass)] += 1);
    }
    let mut ordered = vec![0; numbers.len()];
    for (pass, (begins, ends)) in begins.iter_mut().zip(&mut ends).enumerate().take(passes as usize) {
        let mut behind = 0;
        for (begin, end) in begins.iter_mut().zip(ends.iter_mut()).take(used) {
            let count = *begin + *end;
            *begin = behind;
            behind += count;
            *end = behind;
        }
        deal(&numbers, &mut ordered, begins, ends, |number| digit(number, pass));
        std::mem::swap(&mut numbers, &mut ordered);
    }
    numbers
}

/// Distributes numbers by a digit into the ranges given by `begins` and `ends`, stable.
fn deal(
    numbers: &[u64],
    ordered: &mut [u64],
    begins: &mut [u32; DIGITS],
    ends: &mut [u32; DIGITS],
    digit: impl Fn(u64) -> usize,
) {
    let mut put = |place: u32, number: u64| ordered[place as usize] = number;
    let mut next = |number: u64| {
        let begin = &mut begins[digit(number)];
        *begin += 1;
        *begin - 1
    };
    let mut last = |number: u64| {
        let end = &mut ends[digit(number)];
        *end -= 1;
        *end
    };
    let (pairs, middle) = from_both_ends(numbers);
    for (one, other) in pairs {
        put(next(*one), *one);
        put(last(*other), *other);
    }
    middle.into_iter().for_each(|number| put(next(*number), *number));
}

/// Pairs numbers from the front with numbers from the back; an odd middle one is returned separately. Neighbours often
/// share a digit, which serialises counter updates; pairing keeps two updates independent.
fn from_both_ends(numbers: &[u64]) -> (impl Iterator<Item = (&u64, &u64)>, Option<&u64>) {
    let (front, back) = numbers.split_at(numbers.len() / 2);
    let middle = back.first().filter(|_| back.len() > front.len());
    (front.iter().zip(back.iter().rev()), middle)
}

/// Maps a time to an unsigned number of the same order: sets the sign bit of a positive one, inverts a negative one.
fn rising(moment: f64) -> u64 {
    let bits = moment.to_bits();
    let negative = 0_u64.wrapping_sub(bits >> 63);
    bits ^ (negative | 1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(times: &[f64]) -> Vec<usize> {
        let order = TimeOrder::of(times);
        (0..order.len()).map(|rank| order.row(rank)).collect()
    }

    #[test]
    fn moments_in_order_stay_where_they_are_and_others_are_put_in_order() {
        assert_eq!(TimeOrder::of(&[1.0, 2.0, 2.0]).order, None);
        assert_eq!(rows(&[1.0, 2.0, 2.0]), [0, 1, 2]);
        assert_eq!(rows(&[2.0, 1.0, 2.0, 1.0]), [1, 3, 0, 2]);
        assert!(TimeOrder::of(&[]).is_empty());
    }

    #[test]
    fn any_moments_come_in_the_order_of_a_stable_sort() {
        // Integers, fractions with all bits, and both signs; some twice.
        let moment = |at: u32, step: f64| f64::from(at * 7_919 % 5_003) * step - 2.5e3 * step;
        for (step, far) in [(60.0, 1.1e9), (0.1, 0.0), (1e-300, 0.0), (1e300, 0.0)] {
            let times: Vec<f64> = (0..10_006).map(|at| moment(at, step) + far).collect();
            let mut wanted: Vec<usize> = (0..times.len()).collect();
            wanted.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
            assert_eq!(rows(&times), wanted, "{step}");
        }
        assert_eq!(rows(&[1.0, 0.0, -0.0, 0.0, -1.0]), [4, 2, 1, 3, 0]);
    }

    #[test]
    fn order_is_looked_for_across_moments_that_are_looked_at_together() {
        let mut times: Vec<f64> = (0..3 * TOGETHER as u32).map(f64::from).collect();
        assert!(in_order(&times));
        times.swap(TOGETHER - 1, TOGETHER);
        assert!(!in_order(&times));
    }

    #[test]
    fn what_is_not_finite_is_no_moment_wherever_it_stands() {
        assert_eq!(rows(&[f64::NAN, 1.0, f64::INFINITY]), [1]);
        assert_eq!(rows(&[f64::NEG_INFINITY, 1.0, 3.0]), [1, 2]);
        assert_eq!(rows(&[f64::NAN]), [0; 0]);
        // Among times that differ in more bits than fit above a row index.
        let times = [0.3, f64::NAN, -7e9, f64::INFINITY, 0.1, 0.2, 0.1];
        assert_eq!(rows(&times), [2, 4, 6, 5, 0]);
        assert_eq!(*TimeOrder::of(&times).moments(&times), [-7e9, 0.1, 0.1, 0.2, 0.3]);
    }
}
