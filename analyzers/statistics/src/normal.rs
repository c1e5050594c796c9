//! The standard normal distribution, through the incomplete gamma function: `erf(x) = P(1/2, x²)`.

use crate::special::{gamma_p, gamma_q, ln_gamma_p_inverse};

/// Returns the probability of a value up to `z`.
pub(crate) fn cdf(z: f64) -> f64 {
    if z < 0.0 {
        0.5 * gamma_q(0.5, 0.5 * z * z)
    } else {
        0.5 + 0.5 * gamma_p(0.5, 0.5 * z * z)
    }
}

/// Threshold above which the asymptotic series gives the upper tail, because the direct formula underflows.
const FAR: f64 = 25.0;

/// Returns the logarithm of the probability of a value above `z`.
pub(crate) fn ln_above(z: f64) -> f64 {
    if z < FAR {
        return cdf(-z).ln();
    }
    let inverse = 1.0 / (z * z);
    let series = 1.0 - inverse * (1.0 - 3.0 * inverse * (1.0 - 5.0 * inverse));
    -0.5 * z * z - (z * (2.0 * std::f64::consts::PI).sqrt()).ln() + series.ln()
}

/// Returns the density at `z` over the probability of a value above it.
pub(crate) fn hazard(z: f64) -> f64 {
    let ln_density = -0.5 * z * z - 0.5 * (2.0 * std::f64::consts::PI).ln();
    (ln_density - ln_above(z)).exp()
}

/// Returns the probability of a value at least this far from 0, on either side.
pub(crate) fn two_sided(z: f64) -> f64 {
    gamma_q(0.5, 0.5 * z * z)
}

/// Returns half the width, in standard errors, of an interval of confidence `level` (0 to 1).
pub(crate) fn half_width(level: f64) -> f64 {
    let square = ln_gamma_p_inverse(0.5, level.clamp(0.0, 1.0 - 1e-12)).exp();
    (2.0 * square).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_above_goes_on_where_its_probability_is_no_number() {
        assert!((ln_above(0.0) - 0.5_f64.ln()).abs() < 1e-15);
        assert!((hazard(0.0) - (2.0 / std::f64::consts::PI).sqrt()).abs() < 1e-12);
        let near = ln_above(FAR - 1e-9);
        let far = ln_above(FAR + 1e-9);
        assert!((near / far - 1.0).abs() < 1e-9, "{near} {far}");
        assert!((hazard(1e3) - 1_000.001).abs() < 1e-5);
    }

    #[test]
    fn the_values_are_those_of_the_tables() {
        assert_eq!(half_width(0.0), 0.0);
        assert!((half_width(0.95) - 1.959_963_984_540_054).abs() < 1e-9);
        assert!((half_width(0.99) - 2.575_829_303_548_901).abs() < 1e-9);
        assert!((cdf(0.0) - 0.5).abs() < 1e-15);
        assert!((cdf(1.0) - 0.841_344_746_068_542_9).abs() < 1e-12);
        assert!((cdf(-3.0) - 0.001_349_898_031_630_095).abs() < 1e-13);
    }
}
