//! Sorted durations of a sample with equal ones grouped: clock resolution leaves far fewer distinct ones.

/// Group of equal durations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct EqualDurations {
    pub(super) value: f64,
    /// Logarithm of the value.
    pub(super) ln: f64,
    /// Number of completed durations.
    pub(super) ended: usize,
    /// Number of censored durations.
    pub(super) censored: usize,
}

impl EqualDurations {
    /// Returns the total number.
    pub(super) fn all(&self) -> f64 {
        (self.ended + self.censored) as f64
    }
}

/// Groups positive completed and censored durations in ascending order.
pub(super) fn runs(mut ended: Vec<f64>, mut running: Vec<f64>) -> Vec<EqualDurations> {
    let mut runs: Vec<EqualDurations> = Vec::new();
    for durations in [&mut ended, &mut running] {
        durations.sort_unstable_by(f64::total_cmp);
    }
    let mut ended = ended.as_slice();
    let mut running = running.as_slice();
    while let Some(value) = first(ended, running) {
        let run = EqualDurations {
            value,
            ln: value.ln(),
            ended: take(&mut ended, value),
            censored: take(&mut running, value),
        };
        runs.push(run);
    }
    runs
}

/// Returns the lesser of two first values.
fn first(one: &[f64], other: &[f64]) -> Option<f64> {
    match (one.first(), other.first()) {
        (Some(one), Some(other)) => Some(one.min(*other)),
        (one, other) => one.or(other).copied(),
    }
}

/// Removes leading values equal to `value`; returns their number.
fn take(values: &mut &[f64], value: f64) -> usize {
    let count = values.iter().take_while(|x| **x == value).count();
    *values = &values[count..];
    count
}
