//! Derivatives of the logarithm of the gamma function, in addition to the functions of checkpoint schedules.

pub(crate) use rankguard_checkpoint_schedule::special::{gamma_p, gamma_q, ln_gamma, ln_gamma_p_inverse};

/// Returns `ψ(x)`, the derivative of `ln Γ`, for `x > 0`: the recurrence up to 8, then the asymptotic series.
pub(crate) fn digamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 8.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = inverse * (1.0 / 12.0 - inverse * (1.0 / 120.0 - inverse * (1.0 / 252.0 - inverse / 240.0)));
    sum + x.ln() - 0.5 / x - series
}

/// Returns `ψ'(x)` for `x > 0` by the same method.
pub(crate) fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 8.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = inverse * (1.0 / 6.0 - inverse * (1.0 / 30.0 - inverse * (1.0 / 42.0 - inverse / 30.0)));
    sum + 1.0 / x + 0.5 * inverse + series / x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_derivatives_at_one_are_eulers_constant_and_a_sixth_of_pi_squared() {
        assert!((digamma(1.0) + 0.577_215_664_901_532_9).abs() < 1e-10);
        assert!((trigamma(1.0) - std::f64::consts::PI.powi(2) / 6.0).abs() < 1e-9);
    }

    #[test]
    fn they_are_the_slopes_of_the_function() {
        for x in [0.05, 0.4, 1.7, 6.0, 55.0] {
            let h = 1e-5 * x;
            let slope = (ln_gamma(x + h) - ln_gamma(x - h)) / (2.0 * h);
            assert!((digamma(x) / slope - 1.0).abs() < 1e-6, "{x}");
            let slope = (digamma(x + h) - digamma(x - h)) / (2.0 * h);
            assert!((trigamma(x) / slope - 1.0).abs() < 1e-6, "{x}");
        }
    }
}
