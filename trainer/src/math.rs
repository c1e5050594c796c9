//! `exp`, `ln` and powers from additions, multiplications and divisions alone.
//!
//! The system's libm selects its variant by processor (with fused multiply-add or without), so two nodes of one job
//! could round differently. IEEE 754 fixes these four operations and the square root everywhere, and Rust neither
//! fuses nor reorders them.
//! reorders them.

use std::f64::consts::{LN_2, LOG2_E, SQRT_2};

/// Returns e^x for x <= 0, the range of a shifted softmax; relative error below 1e-14.
pub(crate) fn exp(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    let power = (x * LOG2_E + 0.5).floor();
    let rest = x - power * LN_2;
    let mut sum = 1.0;
    for n in (1..=14).rev() {
        sum = 1.0 + rest * sum / f64::from(n);
    }
    // `power` is in -1010..=1: a normal exponent.
    sum * f64::from_bits(((power as i64 + 1023) as u64) << 52)
}

/// Returns the natural logarithm of a normal number of at least 1, the range of a softmax's sum.
pub(crate) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut power = ((bits >> 52) as i64 - 1023) as f64;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        power += 1.0;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for odd in (1..=23).rev().step_by(2) {
        sum = sum * square + 1.0 / f64::from(odd);
    }
    2.0 * s * sum + power * LN_2
}

/// Returns base^exponent, by repeated squaring.
pub(crate) fn power(base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    let mut square = base;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_agrees_with_the_library() {
        for i in 0..7000 {
            let x = -f64::from(i) / 10.0;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-13, "exp({x})");
        }
        assert_eq!(exp(-800.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn ln_agrees_with_the_library() {
        for i in 0..10_000 {
            let x = 1.0 + f64::from(i) / 900.0;
            assert!((ln(x) - x.ln()).abs() < 1e-14 * x.ln().max(1.0), "ln({x})");
        }
    }

    #[test]
    fn powers_agree_with_the_library() {
        for n in 0..2000_u64 {
            let want = 0.999_f64.powi(i32::try_from(n).expect("small"));
            assert!((power(0.999, n) / want - 1.0).abs() < 1e-12);
        }
    }
}
