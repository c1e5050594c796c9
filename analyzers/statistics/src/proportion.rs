//! Proportions of a count.

use serde::Serialize;

use crate::normal;

/// Proportion with its interval (Wilson 1927), which is within 0 and 1 and valid for small counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ProportionEstimate {
    /// Number of matching items.
    pub part: u64,
    /// Number of all items.
    pub whole: u64,
    /// `part / whole`.
    pub share: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl ProportionEstimate {
    /// Computes the proportion with an interval of confidence `level`; `None` for an empty whole, or if the
    /// part exceeds it.
    pub fn new(part: u64, whole: u64, level: f64) -> Option<Self> {
        Self::at(level)(part, whole)
    }

    /// Returns a function for many proportions, which computes the interval width, the costly part, once.
    pub fn at(level: f64) -> impl Fn(u64, u64) -> Option<Self> {
        let z = normal::half_width(level);
        move |part, whole| {
            let there = whole > 0 && part <= whole;
            there.then(|| Self::of(part, whole, z))
        }
    }

    /// Computes an interval of `z` standard errors.
    fn of(part: u64, whole: u64, z: f64) -> Self {
        let n = whole as f64;
        let share = part as f64 / whole as f64;
        let middle = (share + z * z / (2.0 * n)) / (1.0 + z * z / n);
        let half = z / (1.0 + z * z / n) * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
        Self {
            part,
            whole,
            share,
            // Exact ends for none and all, which rounding would miss.
            low: if part == 0 { 0.0 } else { (middle - half).max(0.0) },
            high: if part == whole { 1.0 } else { (middle + half).min(1.0) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Newcombe (1998), table I: 81 of 263 is 0.2553 to 0.3662, 0 of 20 is 0 to 0.1611.
    #[test]
    fn published_intervals() {
        let many = ProportionEstimate::new(81, 263, 0.95).expect("a share");
        assert!(
            (many.low - 0.2553).abs() < 1e-4 && (many.high - 0.3662).abs() < 1e-4,
            "{many:?}"
        );
        let none = ProportionEstimate::new(0, 20, 0.95).expect("a share");
        assert!(none.low == 0.0 && (none.high - 0.1611).abs() < 1e-4, "{none:?}");
        assert_eq!(ProportionEstimate::new(2, 1, 0.95), None);
    }
}
