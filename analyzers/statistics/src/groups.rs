//! Values by what their rows are labelled with.

use std::ops::Range;

/// The finite values of each label, all in one buffer, each label's in the order of the rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Groups {
    values: Vec<f64>,
    /// Where the values without a label begin, then where each label's begin, then where the last end.
    begins: Vec<usize>,
}

impl Groups {
    /// Of rows with these labels, numbered from 0, and these values; both are as long as each other.
    pub fn of(labels: &[Option<u32>], values: &[f64]) -> Self {
        let slot = |label: &Option<u32>| label.map_or(0, |label| label as usize + 1);
        let rows = || labels.iter().zip(values).filter(|(_, value)| value.is_finite());
        let mut begins = vec![0_usize; 2];
        for (label, _) in rows() {
            let behind = slot(label) + 1;
            if behind >= begins.len() {
                begins.resize(behind + 1, 0);
            }
            begins[behind] += 1;
        }
        for at in 1..begins.len() {
            begins[at] += begins[at - 1];
        }
        let mut next = begins.clone();
        let mut sorted = vec![0.0; begins[begins.len() - 1]];
        for (label, value) in rows() {
            let next = &mut next[slot(label)];
            sorted[*next] = *value;
            *next += 1;
        }
        Self { values: sorted, begins }
    }

    /// Those of a label.
    pub fn labelled(&self, label: u32) -> &[f64] {
        self.slot(label as usize + 1)
    }

    /// Those without a label.
    pub fn without(&self) -> &[f64] {
        self.slot(0)
    }

    /// All of them.
    pub fn all(&self) -> &[f64] {
        &self.values
    }

    fn slot(&self, slot: usize) -> &[f64] {
        let bounds = self.begins.get(slot).zip(self.begins.get(slot + 1));
        let Range { start, end } = bounds.map_or(0..0, |(start, end)| *start..*end);
        &self.values[start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_has_its_finite_values_in_the_order_of_the_rows() {
        let labels = [Some(2), None, Some(0), Some(2), Some(0), None];
        let groups = Groups::of(&labels, &[1.0, 2.0, f64::NAN, 0.5, 4.0, f64::INFINITY]);
        let found = [0, 1, 2, 3].map(|label| groups.labelled(label).to_vec());
        assert_eq!(found, [vec![4.0], vec![], vec![1.0, 0.5], vec![]]);
        assert_eq!((groups.without(), groups.all().len()), (&[2.0][..], 4));
        assert!(Groups::of(&[], &[]).without().is_empty());
    }
}
