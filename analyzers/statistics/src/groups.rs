//! Values by what their rows are labelled with.

use std::ops::Range;

/// The finite values of each label, all in one buffer, each label's in the order of the rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Groups {
    values: Vec<f64>,
    /// Where those without a label lie, then those of each label: with room behind for values that are not finite.
    places: Vec<Range<usize>>,
}

impl Groups {
    /// Of rows with these labels, numbered from 1 with 0 for none, of which so many have each, and with these values.
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
            // Nobody can guess which are finite: the next value takes the place of one that is not.
            *next += usize::from(is_finite(*value));
        }
        let places = begins.into_iter().zip(next).map(|(begin, end)| begin..end).collect();
        Self { values: dealt, places }
    }

    /// Those without a label, and then those of each.
    pub fn each(&self) -> impl Iterator<Item = &[f64]> {
        self.places.iter().map(|place| &self.values[place.clone()])
    }
}

/// What the standard library says, in half the instructions: without its sign, the infinite one is the first that is not.
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
        let groups = Groups::of(&labels, &[2, 0, 3], &values);
        assert_eq!(
            groups.each().collect::<Vec<_>>(),
            [&[f64::MIN][..], &[4.0], &[], &[1.0, -0.0]]
        );
        assert_eq!(
            Groups::of(&[0_usize; 0], &[], &[]).each().collect::<Vec<_>>(),
            [&[0.0; 0]]
        );
    }
}
