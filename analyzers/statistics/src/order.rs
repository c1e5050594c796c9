//! Moments in the order of time.

/// Which places of a slice of moments hold finite ones, in order; nothing is put in order where all are already, as in a
/// log. What happened at the same moment stays in the order of the slice.
#[derive(Debug, Clone, PartialEq)]
pub struct InTime {
    len: usize,
    /// None where the slice itself is in order.
    order: Option<Vec<u32>>,
}

impl InTime {
    /// Of a slice of no more than 2^32 moments.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place in the slice of the moment of a rank, from 0.
    pub fn row(&self, rank: usize) -> usize {
        self.order.as_ref().map_or(rank, |order| order[rank] as usize)
    }

    /// The places of the slice in order of time; none where they are in order as they stand.
    pub(crate) fn rows(&self) -> Option<&[u32]> {
        self.order.as_deref()
    }
}

/// Moments that are looked at together for their order.
const TOGETHER: usize = 1 << 12;

/// Whether all are finite, and none is less than the one before it.
fn in_order(times: &[f64]) -> bool {
    let finite = |time: Option<&f64>| time.is_none_or(|time| time.is_finite());
    // What is not a number has no order, and the infinite would stand at the ends.
    let ends = finite(times.first()) && finite(times.last());
    let (before, after) = (times, times.get(1..).unwrap_or_default());
    let mut parts = before.chunks(TOGETHER).zip(after.chunks(TOGETHER));
    // No part ends early: so several pairs are compared at a time.
    let rises = |(before, after): (&[f64], &[f64])| before.iter().zip(after).fold(true, |all, (a, b)| all & (a <= b));
    ends && parts.all(rises)
}

/// The places of the finite moments in the order of time, those of the same moment in the order of the slice. Moments of one
/// history differ in few of their bits, and only those are looked at, the lowest first.
fn ranked(times: &[f64]) -> Vec<u32> {
    let number = |row: u32| rising(times[row as usize]);
    let mut rows = Vec::with_capacity(times.len());
    rows.extend(
        (0..)
            .zip(times)
            .filter(|(_, time)| time.is_finite())
            .map(|(row, _)| row),
    );
    let first = rows.first().map_or(0, |row| number(*row));
    let differ = rows.iter().fold(0, |differ, row| differ | (number(*row) ^ first));
    let mut shift = differ.trailing_zeros();
    while let Some(rest) = differ.checked_shr(shift).filter(|rest| *rest > 0) {
        let bits = (u64::BITS - rest.leading_zeros()).min(ROW);
        let with_row = |row: &u32| number(*row) >> shift << ROW | u64::from(*row);
        let ordered = by_digits(rows.iter().map(with_row).collect(), bits);
        rows.clear();
        rows.extend(ordered.iter().map(|number| *number as u32));
        shift += ROW;
    }
    rows
}

/// Bits of a row, behind as many of its moment.
const ROW: u32 = u32::BITS;
/// Bits of a digit.
const DIGIT: u32 = 11;
const DIGITS: usize = 1 << DIGIT;

/// Numbers in the order of so many bits above their rows; equal ones stay in their order.
fn by_digits(mut numbers: Vec<u64>, bits: u32) -> Vec<u64> {
    let mut ordered = vec![0; numbers.len()];
    for shift in (ROW..ROW + bits).step_by(DIGIT as usize) {
        let digit = |number: u64| (number >> shift) as usize % DIGITS;
        let mut places = [0_u32; DIGITS];
        numbers.iter().for_each(|number| places[digit(*number)] += 1);
        let mut behind = 0;
        for place in &mut places {
            behind += std::mem::replace(place, behind);
        }
        for number in &numbers {
            let place = &mut places[digit(*number)];
            ordered[*place as usize] = *number;
            *place += 1;
        }
        std::mem::swap(&mut numbers, &mut ordered);
    }
    numbers
}

/// A number that is greater where the moment is: the bits of a positive one as they are but for the sign, those of a negative one
/// the other way round.
fn rising(moment: f64) -> u64 {
    let bits = moment.to_bits();
    let negative = 0_u64.wrapping_sub(bits >> 63);
    bits ^ (negative | 1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(times: &[f64]) -> Vec<usize> {
        let order = InTime::of(times);
        (0..order.len()).map(|rank| order.row(rank)).collect()
    }

    #[test]
    fn moments_in_order_stay_where_they_are_and_others_are_put_in_order() {
        assert_eq!(InTime::of(&[1.0, 2.0, 2.0]).order, None);
        assert_eq!(rows(&[1.0, 2.0, 2.0]), [0, 1, 2]);
        assert_eq!(rows(&[2.0, 1.0, 2.0, 1.0]), [1, 3, 0, 2]);
        assert!(InTime::of(&[]).is_empty());
    }

    #[test]
    fn any_moments_come_in_the_order_of_a_stable_sort() {
        // Whole ones, ones with all bits of a fraction, and ones on both sides of zero; some twice.
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
    }
}
