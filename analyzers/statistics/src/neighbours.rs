//! Failures that come close in time to another at the same place.

use std::collections::BTreeMap;

/// Distance of each failure to the nearest other one of its place; `None` for one that is alone, has no place or no
/// finite time.
pub fn nearest<P: Ord>(failures: &[(Option<P>, f64)]) -> Vec<Option<f64>> {
    let mut places: BTreeMap<&P, Vec<usize>> = BTreeMap::new();
    for (at, (place, time)) in failures.iter().enumerate() {
        if let (Some(place), true) = (place, time.is_finite()) {
            places.entry(place).or_default().push(at);
        }
    }
    let mut nearest = vec![None; failures.len()];
    for members in places.values_mut() {
        members.sort_by(|a, b| failures[*a].1.total_cmp(&failures[*b].1));
        for pair in members.windows(2) {
            let distance = failures[pair[1]].1 - failures[pair[0]].1;
            for at in pair {
                let known: &mut Option<f64> = &mut nearest[*at];
                *known = Some(known.map_or(distance, |known| known.min(distance)));
            }
        }
    }
    nearest
}

/// How many of them have another at the same place at most `window` away.
pub fn close(nearest: &[Option<f64>], window: f64) -> usize {
    nearest
        .iter()
        .filter(|distance| distance.is_some_and(|d| d <= window))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_may_come_before_or_after_and_only_at_the_same_place() {
        let failures = [
            (Some('a'), 10.0),
            (Some('b'), 11.0),
            (Some('a'), 40.0),
            (Some('a'), 45.0),
            (None, 45.0),
        ];
        let found = nearest(&failures);
        assert_eq!(found, [Some(30.0), None, Some(5.0), Some(5.0), None]);
        assert_eq!((close(&found, 30.0), close(&found, 29.0)), (3, 2));
    }
}
