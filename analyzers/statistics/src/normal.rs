//! The standard normal distribution, through the incomplete gamma function: `erf(x) = P(1/2, x²)`.

use crate::special::{gamma_p, gamma_q};

/// Probability of a value up to `z`.
pub(crate) fn cdf(z: f64) -> f64 {
    if z < 0.0 {
        0.5 * gamma_q(0.5, 0.5 * z * z)
    } else {
        0.5 + 0.5 * gamma_p(0.5, 0.5 * z * z)
    }
}

/// Probability of a value at least this far from 0, on either side.
pub(crate) fn two_sided(z: f64) -> f64 {
    gamma_q(0.5, 0.5 * z * z)
}

/// Half the width, in standard errors, of an interval that holds the truth with probability `level` (0 to 1).
pub(crate) fn half_width(level: f64) -> f64 {
    let outside = 1.0 - level.clamp(0.0, 1.0 - 1e-12);
    let (mut low, mut high) = (0.0, 10.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if two_sided(middle) > outside {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_are_those_of_the_tables() {
        assert!((half_width(0.95) - 1.959_963_984_540_054).abs() < 1e-9);
        assert!((half_width(0.99) - 2.575_829_303_548_901).abs() < 1e-9);
        assert!((cdf(0.0) - 0.5).abs() < 1e-15);
        assert!((cdf(1.0) - 0.841_344_746_068_542_9).abs() < 1e-12);
        assert!((cdf(-3.0) - 0.001_349_898_031_630_095).abs() < 1e-13);
    }
}
