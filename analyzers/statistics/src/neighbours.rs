//! Failures that come close in time to another at the same place.

/// Distance of each failure to the nearest other one of its place, in the order of places and times; without those that
/// are alone, have no place or no finite time. Places are numbered from 0; `places` and `times` are as long as each other.
pub fn nearest(places: &[Option<u32>], times: &[f64]) -> Vec<f64> {
    let whole = || {
        let rows = places.iter().zip(times).filter(|(_, time)| time.is_finite());
        rows.filter_map(|(place, time)| Some(((*place)? as usize, *time)))
    };
    let last = whole().map(|(place, _)| place).max();
    // Where each place's failures begin among all of them, which are then put there in their order.
    let mut begins = vec![0_usize; last.map_or(0, |last| last + 2)];
    whole().for_each(|(place, _)| begins[place + 1] += 1);
    for at in 1..begins.len() {
        begins[at] += begins[at - 1];
    }
    let mut next = begins.clone();
    let mut members = vec![0.0; begins.last().copied().unwrap_or(0)];
    for (place, time) in whole() {
        members[next[place]] = time;
        next[place] += 1;
    }
    let mut nearest = Vec::with_capacity(members.len());
    for bounds in begins.windows(2) {
        let times = &mut members[bounds[0]..bounds[1]];
        times.sort_by(f64::total_cmp);
        let Some(last) = times.windows(2).last().map(|pair| pair[1] - pair[0]) else {
            continue;
        };
        let mut before = f64::INFINITY;
        for pair in times.windows(2) {
            let after = pair[1] - pair[0];
            nearest.push(after.min(before));
            before = after;
        }
        nearest.push(last);
    }
    nearest
}

/// How many of them have another at the same place at most `window` away.
pub fn close(nearest: &[f64], window: f64) -> usize {
    nearest.iter().filter(|distance| **distance <= window).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_may_come_before_or_after_and_only_at_the_same_place() {
        let places = [Some(2), Some(0), Some(2), Some(2), None, Some(0)];
        let times = [10.0, 11.0, 40.0, 45.0, 45.0, f64::NAN];
        let found = nearest(&places, &times);
        assert_eq!(found, [30.0, 5.0, 5.0]);
        assert!(nearest(&[], &[]).is_empty());
        assert_eq!((close(&found, 30.0), close(&found, 29.0)), (3, 2));
    }
}
