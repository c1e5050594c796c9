//! Mapping of values to coordinates, and readable ticks.

/// Linear axis with clamped ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinearAxis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl LinearAxis {
    /// Maps values `low..=high` to coordinates `from..=to`. An empty or invalid range is widened to avoid a division by
    /// zero.
    pub(super) fn new(low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = if low.is_finite() { low } else { 0.0 };
        let high = if high.is_finite() && high > low {
            high
        } else {
            low + 1.0
        };
        Self { low, high, from, to }
    }

    /// Returns the coordinate of a value; values beyond the axis map to its ends.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// True if a value lies beyond the upper end.
    pub(super) fn is_above(&self, value: f64) -> bool {
        value > self.high
    }

    /// Returns about `count` round values.
    pub(super) fn ticks(&self, count: usize) -> Vec<f64> {
        let step = round_step((self.high - self.low) / count.max(1) as f64);
        let first = (self.low / step).ceil();
        (0..=count * 3)
            .map(|at| (first + at as f64) * step)
            .take_while(|value| *value <= self.high + step * 1e-9)
            .collect()
    }
}

/// Returns the smallest of 1, 2, 5 times a power of ten that is not below `raw`.
fn round_step(raw: f64) -> f64 {
    let base = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * base)
        .find(|step| *step >= raw * 0.999_999)
        .unwrap_or(raw)
}

/// Formats seconds as a tick label.
pub(super) fn seconds(value: f64, span: f64) -> String {
    match span {
        short if short < 300.0 => format!("{} s", number(value)),
        medium if medium < 14_400.0 => format!("{}:{:02}", (value / 60.0) as i64, (value % 60.0) as i64),
        _ => format!("{}:{:02} h", (value / 3600.0) as i64, (value % 3600.0 / 60.0) as i64),
    }
}

/// Formats a number without trailing zeros.
pub(super) fn number(value: f64) -> String {
    let text = match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        medium if medium >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(
            LinearAxis::new(0.0, 47.0, 0.0, 1.0).ticks(5),
            [0.0, 10.0, 20.0, 30.0, 40.0]
        );
        assert_eq!(LinearAxis::new(0.0, 2.3, 0.0, 1.0).ticks(3), [0.0, 1.0, 2.0]);
    }

    #[test]
    fn an_empty_or_broken_range_still_has_places() {
        for axis in [
            LinearAxis::new(3.0, 3.0, 0.0, 10.0),
            LinearAxis::new(f64::NAN, f64::INFINITY, 0.0, 10.0),
        ] {
            assert!(axis.at(3.0).is_finite() && axis.at(f64::MAX) <= 10.0);
            assert!(!axis.ticks(4).is_empty());
        }
    }
}
