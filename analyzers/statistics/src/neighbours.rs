//! Failures that come close in time to another at the same place.

/// Distance of each failure to the nearest other one of its place; `None` for one that is alone, has no place or no
/// finite time. Places are numbered from 0; `places` and `times` are as long as each other.
pub fn nearest(places: &[Option<u32>], times: &[f64]) -> Vec<Option<f64>> {
    let whole = || {
        let rows = places.iter().zip(times).enumerate();
        rows.filter_map(|(at, (place, time))| Some((at, (*place)?, *time)).filter(|_| time.is_finite()))
    };
    let last = whole().map(|(_, place, _)| place as usize).max();
    // Where each place's failures begin among all of them, which are then put there in their order.
    let mut begins = vec![0_usize; last.map_or(0, |last| last + 2)];
    whole().for_each(|(_, place, _)| begins[place as usize + 1] += 1);
    for at in 1..begins.len() {
        begins[at] += begins[at - 1];
    }
    let mut next = begins.clone();
    let mut members = vec![(0, 0.0); begins.last().copied().unwrap_or(0)];
    for (at, place, time) in whole() {
        let slot = &mut next[place as usize];
        members[*slot] = (at, time);
        *slot += 1;
    }
    let mut nearest = vec![None; times.len()];
    for bounds in begins.windows(2) {
        let members = &mut members[bounds[0]..bounds[1]];
        members.sort_by(|one, other| one.1.total_cmp(&other.1));
        for pair in members.windows(2) {
            let distance = pair[1].1 - pair[0].1;
            for (at, _) in pair {
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
        let places = [Some(2), Some(0), Some(2), Some(2), None, Some(0)];
        let times = [10.0, 11.0, 40.0, 45.0, 45.0, f64::NAN];
        let found = nearest(&places, &times);
        assert_eq!(found, [Some(30.0), None, Some(5.0), Some(5.0), None, None]);
        assert_eq!(nearest(&[], &[]), []);
        assert_eq!((close(&found, 30.0), close(&found, 29.0)), (3, 2));
    }
}
