//! Durations of a sample in order, equal ones together: clocks tick, so there are far fewer different ones.

/// Equal durations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Run {
    pub(super) value: f64,
    /// Logarithm of the value.
    pub(super) ln: f64,
    /// How many of them ended.
    pub(super) ended: usize,
    /// How many were still running.
    pub(super) censored: usize,
}

impl Run {
    /// How many there are.
    pub(super) fn all(&self) -> f64 {
        (self.ended + self.censored) as f64
    }
}

/// Positive durations that ended and those that were running, in order.
pub(super) fn runs(mut ended: Vec<f64>, mut running: Vec<f64>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for durations in [&mut ended, &mut running] {
        durations.sort_unstable_by(f64::total_cmp);
    }
    let (mut ended, mut running) = (ended.as_slice(), running.as_slice());
    while let Some(value) = first(ended, running) {
        let run = Run {
            value,
            ln: value.ln(),
            ended: take(&mut ended, value),
            censored: take(&mut running, value),
        };
        runs.push(run);
    }
    runs
}

/// The lesser of two first values.
fn first(one: &[f64], other: &[f64]) -> Option<f64> {
    match (one.first(), other.first()) {
        (Some(one), Some(other)) => Some(one.min(*other)),
        (one, other) => one.or(other).copied(),
    }
}

/// Takes the values equal to this one off the beginning; how many they were.
fn take(values: &mut &[f64], value: f64) -> usize {
    let count = values.iter().take_while(|x| **x == value).count();
    *values = &values[count..];
    count
}
