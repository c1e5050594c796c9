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
    /// Of rows with these labels, numbered from 0, of which so many have each, and with these values.
    pub fn of(labels: &[Option<u32>], counts: &[u64], values: &[f64]) -> Self {
        let without = labels.len() as u64 - counts.iter().sum::<u64>();
        let mut behind = 0;
        let rooms = std::iter::once(&without).chain(counts).map(|count| {
            let begin = behind;
            behind += *count as usize;
            begin..begin
        });
        let mut places: Vec<Range<usize>> = rooms.collect();
        let mut dealt = vec![0.0; labels.len()];
        for (label, value) in labels.iter().zip(values).filter(|(_, value)| value.is_finite()) {
            let place = &mut places[label.map_or(0, |label| label as usize + 1)];
            dealt[place.end] = *value;
            place.end += 1;
        }
        Self { values: dealt, places }
    }

    /// Those of a label.
    pub fn labelled(&self, label: u32) -> &[f64] {
        self.place(label as usize + 1)
    }

    /// Those without a label.
    pub fn without(&self) -> &[f64] {
        self.place(0)
    }

    fn place(&self, place: usize) -> &[f64] {
        &self.values[self.places.get(place).cloned().unwrap_or_default()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_has_its_finite_values_in_the_order_of_the_rows() {
        let labels = [Some(2), None, Some(0), Some(2), Some(0), None];
        let groups = Groups::of(&labels, &[2, 0, 2], &[1.0, 2.0, f64::NAN, 0.5, 4.0, f64::INFINITY]);
        let found = [0, 1, 2, 3].map(|label| groups.labelled(label).to_vec());
        assert_eq!(found, [vec![4.0], vec![], vec![1.0, 0.5], vec![]]);
        assert_eq!(groups.without(), [2.0]);
        assert!(Groups::of(&[], &[], &[]).without().is_empty());
    }
}
