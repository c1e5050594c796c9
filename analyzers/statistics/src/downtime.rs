//! Unions of intervals: a node with two open faults counts as down once.

use std::collections::BTreeMap;

/// Returns the union of intervals `(from, to)`, sorted and disjoint. Intervals of no or negative length, or with
/// an end that is not finite, are ignored.
pub fn union(intervals: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<(f64, f64)> = intervals
        .iter()
        .copied()
        .filter(|(from, to)| from.is_finite() && to.is_finite() && from < to)
        .collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut union: Vec<(f64, f64)> = Vec::new();
    for (from, to) in sorted {
        match union.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => union.push((from, to)),
        }
    }
    union
}

/// Returns the total time that the intervals cover within a window.
pub fn covered(intervals: &[(f64, f64)], window: (f64, f64)) -> f64 {
    union(intervals)
        .iter()
        .map(|(from, to)| (to.min(window.1) - from.max(window.0)).max(0.0))
        .sum()
}

/// Returns the covered time of each node.
pub fn covered_by_node<N: Ord + Clone>(intervals: &[(N, f64, f64)], window: (f64, f64)) -> BTreeMap<N, f64> {
    let mut nodes: BTreeMap<N, Vec<(f64, f64)>> = BTreeMap::new();
    for (node, from, to) in intervals {
        nodes.entry(node.clone()).or_default().push((*from, *to));
    }
    nodes
        .into_iter()
        .map(|(node, intervals)| (node, covered(&intervals, window)))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn overlaps_count_once_and_the_window_cuts() {
        let intervals = [
            (5.0, 6.0),
            (1.0, 3.0),
            (2.0, 4.0),
            (4.0, 4.5),
            (9.0, 8.0),
            (f64::NAN, 1.0),
        ];
        assert_eq!(union(&intervals), [(1.0, 4.5), (5.0, 6.0)]);
        assert_eq!(covered(&intervals, (2.0, 5.5)), 3.0);
        let nodes = [("a", 0.0, 2.0), ("b", 0.0, 1.0), ("a", 1.0, 3.0)];
        assert_eq!(
            covered_by_node(&nodes, (0.0, 10.0)),
            BTreeMap::from([("a", 3.0), ("b", 1.0)])
        );
    }

    proptest! {
        #[test]
        fn the_union_covers_what_any_interval_covers(
            intervals in prop::collection::vec((0_u32..60, 0_u32..60), 0..30)
        ) {
            let real: Vec<(f64, f64)> = intervals.iter().map(|(a, b)| (f64::from(*a), f64::from(*b))).collect();
            let covered = covered(&real, (0.0, 60.0));
            let cells = (0..60).filter(|cell| intervals.iter().any(|(a, b)| a <= cell && cell < b)).count();
            prop_assert_eq!(covered, cells as f64);
        }
    }
}
