//! Grouping of values by label.

use std::ops::Range;

/// Finite values of each label in one buffer, in row order within a label.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupedValues {
    values: Vec<f64>,
    /// Range without label, then the range of each label; a gap after each range remains for values that are not
    /// finite.
    places: Vec<Range<usize>>,
}

impl GroupedValues {
    /// Groups rows by label (from 1, 0 for none); `counts` is the number of rows of each label.
    pub fn of(labels: &[impl Copy + Into<usize>], counts: &[u64], values: &[f64]) -> Self {
        let without = labels.len() as u64 - counts.iter().sum::<u64>();
        let mut behind = 0;
        let begins = std::iter::once(&without).chain(counts).map(|count| {
            behind += *count as usize;
            behind - *count as usize
        });
        let begins: Vec<usize> = begins.collect();
        let mut next = begins.clone();
        let mut dealt = vec![0.0; labels.len()];
        for (label, value) in labels.iter().zip(values) {
            let next = &mut next[(*label).into()];
            dealt[*next] = *value;
            // Branch-free: the next value overwrites one that is not finite.
            *next += usize::from(is_finite(*value));
        }
        let places = begins.into_iter().zip(next).map(|(begin, end)| begin..end).collect();
        Self { values: dealt, places }
    }

    /// Iterates over the values without label, then those of each label.
    pub fn each(&self) -> impl Iterator<Item = &[f64]> {
        self.places.iter().map(|place| &self.values[place.clone()])
    }
}

/// Same result as the standard library in half the instructions: without the sign bit, infinity is the smallest value
/// that is not finite.
fn is_finite(value: f64) -> bool {
    value.to_bits() << 1 < f64::INFINITY.to_bits() << 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_has_its_finite_values_in_the_order_of_the_rows() {
        let labels = [3_usize, 0, 1, 3, 1, 0, 3];
        let values = [1.0, f64::MIN, f64::NAN, -0.0, 4.0, f64::INFINITY, f64::NEG_INFINITY];
        let groups = GroupedValues::of(&labels, &[2, 0, 3], &values);
        assert_eq!(
            groups.each().collect::<Vec<_>>(),
            [&[f64::MIN][..], &[4.0], &[], &[1.0, -0.0]]
        );
        assert_eq!(
            GroupedValues::of(&[0_usize; 0], &[], &[]).each().collect::<Vec<_>>(),
            [&[0.0; 0]]
        );
    }
}
