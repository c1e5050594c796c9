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
        let rooms = std::iter::once(&without).chain(counts).map(|count| {
            let begin = behind;
            behind += *count as usize;
            begin..begin
        });
        let mut places: Vec<Range<usize>> = rooms.collect();
        let mut dealt = vec![0.0; labels.len()];
        for (label, value) in labels.iter().zip(values) {
            let place = &mut places[(*label).into()];
            dealt[place.end] = *value;
            // Nobody can guess which are finite: the next value takes the place of one that is not.
            place.end += usize::from(value.is_finite());
        }
        Self { values: dealt, places }
    }

    /// Those without a label, and then those of each.
    pub fn each(&self) -> impl Iterator<Item = &[f64]> {
        self.places.iter().map(|place| &self.values[place.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_has_its_finite_values_in_the_order_of_the_rows() {
        let labels = [3_usize, 0, 1, 3, 1, 0];
        let groups = Groups::of(&labels, &[2, 0, 2], &[1.0, 2.0, f64::NAN, 0.5, 4.0, f64::INFINITY]);
        assert_eq!(
            groups.each().collect::<Vec<_>>(),
            [&[2.0][..], &[4.0], &[], &[1.0, 0.5]]
        );
        assert_eq!(
            Groups::of(&[0_usize; 0], &[], &[]).each().collect::<Vec<_>>(),
            [&[0.0; 0]]
        );
    }
}
