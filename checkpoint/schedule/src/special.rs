//! Special functions that the standard library lacks: logarithm of the gamma function, incomplete gamma function.

/// Lanczos coefficients for g = 7, n = 9; relative error below 1e-14 for positive arguments.
const LANCZOS: [f64; 9] = [
    0.999_999_999_999_809_9,
    676.520_368_121_885_1,
    -1_259.139_216_722_402_8,
    771.323_428_777_653_1,
    -176.615_029_162_140_6,
    12.507_343_278_686_905,
    -0.138_571_095_265_720_12,
    9.984_369_578_019_572e-6,
    1.505_632_735_149_311_6e-7,
];

/// Returns `ln Γ(x)` for `x > 0`.
pub fn ln_gamma(x: f64) -> f64 {
    if x < 0.5 {
        // Reflection formula, accurate for small arguments.
        let sine = (std::f64::consts::PI * x).sin();
        return (std::f64::consts::PI / sine).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let shifted = x + 7.5;
    let sum = LANCZOS
        .iter()
        .enumerate()
        .skip(1)
        .fold(LANCZOS[0], |sum, (at, c)| sum + c / (x + at as f64));
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * shifted.ln() - shifted + sum.ln()
}

/// Returns the regularised lower incomplete gamma function `P(a, x)`, for `a > 0` and `x >= 0`: the distribution
/// function at `x` of a Gamma variable with shape `a` and rate 1.
pub fn gamma_p(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        0.0
    } else if x < a + 1.0 {
        series(a, x) * factor(a, x)
    } else {
        1.0 - continued_fraction(a, x) * factor(a, x)
    }
}

/// Returns the upper function `Q(a, x) = 1 - P(a, x)`. For `x >= a + 1` it is computed without subtraction, so results
/// near 0 keep their relative accuracy.
pub fn gamma_q(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        1.0
    } else if x < a + 1.0 {
        1.0 - series(a, x) * factor(a, x)
    } else {
        continued_fraction(a, x) * factor(a, x)
    }
}

/// Returns the logarithm of the `x` with `P(a, x) = p`, for `a > 0` and `p` between 0 and 1.
///
/// Newton's method on the logarithm of `P` as a function of `ln x`, which is concave: a step from the left never
/// overshoots, so the iteration converges from any start. Steps are corrected for curvature if the correction is small
/// (Halley's method).
pub fn ln_gamma_p_inverse(a: f64, p: f64) -> f64 {
    let ln_p = p.ln();
    let ln_gamma = ln_gamma(a);
    // P(a, x) lies below x^a / Γ(a + 1), so the solution lies above this bound.
    let lowest = (ln_p + ln_gamma + a.ln()) / a;
    // Wilson and Hilferty (1931): the cube root of a Gamma variable is nearly normal.
    let root = 1.0 - 1.0 / (9.0 * a) + normal_quantile(p) / (3.0 * a.sqrt());
    let mut ln_x = if root > 0.0 {
        lowest.max(a.ln() + 3.0 * root.ln())
    } else {
        lowest
    };
    for _ in 0..MOST_STEPS {
        let x = ln_x.exp();
        let ln_factor = a * ln_x - x - ln_gamma;
        // Logarithm of P(a, x) at the current x, and the reciprocal of its slope in ln x.
        let (ln_found, over_slope) = if x < a + 1.0 {
            let sum = series(a, x);
            (sum.ln() + ln_factor, sum)
        } else {
            let factor = ln_factor.exp();
            let above = continued_fraction(a, x) * factor;
            ((-above).ln_1p(), (1.0 - above) / factor)
        };
        let line = (ln_found - ln_p) * over_slope;
        let bend = 0.5 * line * (a - x - 1.0 / over_slope);
        let step = if bend.abs() < 0.25 { line / (1.0 - bend) } else { line };
        if !step.is_finite() {
            break;
        }
        ln_x = (ln_x - step).max(lowest);
        // The error after a step is about the cube of the error before it, times `a`: below f64 precision.
        if step.abs() * (1.0 + a).cbrt() < 2e-5 {
            break;
        }
    }
    ln_x
}

/// Maximum number of iterations of [`ln_gamma_p_inverse`]; 1 to 3 suffice unless `p` is near 0 or 1.
const MOST_STEPS: u32 = 60;

/// Returns the quantile of the standard normal distribution at `p`, for `0 < p < 1`, to seven digits (AS 241, Wichura
/// 1988): accurate enough for a start value after which one Newton step usually suffices.
fn normal_quantile(p: f64) -> f64 {
    let from_half = p - 0.5;
    if from_half.abs() <= 0.425 {
        let r = 0.180_625 - from_half * from_half;
        let above = 3.387_132_717_9 + r * (50.434_271_938 + r * (159.291_132_02 + r * 59.109_374_72));
        return from_half * above / (1.0 + r * (17.895_169_469 + r * (78.757_757_664 + r * 67.187_563_6)));
    }
    let r = (-p.min(1.0 - p).ln()).sqrt();
    let far = if r <= 5.0 {
        let r = r - 1.6;
        let above = 1.423_437_277_7 + r * (2.756_815_39 + r * (1.306_728_481_6 + r * 0.170_238_211_03));
        above / (1.0 + r * (0.737_001_642_5 + r * 0.120_211_329_75))
    } else {
        let r = r - 5.0;
        let above = 6.657_905_115 + r * (3.081_226_386 + r * (0.428_682_943_37 + r * 0.017_337_203_997));
        above / (1.0 + r * (0.241_978_942_25 + r * 0.012_258_202_635))
    };
    far.copysign(from_half)
}

/// Returns the maximum number of terms of both expansions; near `x = a` each needs a multiple of `sqrt(a)`.
fn terms(a: f64) -> u32 {
    (200.0 + 20.0 * a.sqrt()).min(1e7) as u32
}

/// Returns `x^a exp(-x) / Γ(a)`: the derivative of `P(a, x)` with respect to `ln x`.
pub(crate) fn factor(a: f64, x: f64) -> f64 {
    (a * x.ln() - x - ln_gamma(a)).exp()
}

/// Returns `P(a, x) / factor(a, x)` as a power series; converges fast for `x < a + 1`.
fn series(a: f64, x: f64) -> f64 {
    let mut term = 1.0 / a;
    let mut sum = 1.0 / a;
    let mut n = a;
    for _ in 0..terms(a) {
        n += 1.0;
        term *= x / n;
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    sum
}

/// Returns `Q(a, x) / factor(a, x)` as a continued fraction, by Lentz's method; converges fast for `x > a + 1`.
fn continued_fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / b;
    let mut h = d;
    for i in 1..=terms(a) {
        let i = f64::from(i);
        let an = -i * (i - a);
        b += 2.0;
        let not_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
        d = 1.0 / not_zero(an * d + b);
        c = not_zero(b + an / c);
        let change = d * c;
        h *= change;
        if (change - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    h
}

/// Returns the natural logarithm of the binomial coefficient `n` over `k`, for `k <= n`.
pub(crate) fn ln_choose(n: usize, k: usize) -> f64 {
    let ln_factorial = |n: usize| ln_gamma(n as f64 + 1.0);
    if k == 0 || k == n {
        return 0.0;
    }
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ln_gamma_of_whole_numbers_is_the_factorial() {
        let mut factorial = 1.0_f64;
        for n in 1..60_u32 {
            assert!((ln_gamma(f64::from(n)) - factorial.ln()).abs() < 1e-11, "{n}");
            factorial *= f64::from(n);
        }
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-13);
    }

    /// The three published values of AS 241, and the quantile of one half.
    #[test]
    fn the_normal_distribution_is_undone_to_seven_digits() {
        for (p, z) in [
            (0.25, -0.674_489_750),
            (1e-3, -3.090_232_306),
            (1e-20, -9.262_340_090),
            (0.5, 0.0),
        ] {
            assert!((normal_quantile(p) - z).abs() <= 2e-7 * z.abs(), "{p}");
        }
        assert_eq!(normal_quantile(0.75), -normal_quantile(0.25));
    }

    #[test]
    fn what_the_incomplete_gamma_function_reaches_is_found_again() {
        for a in [0.05, 0.5, 1.0, 7.0, 300.0, 1e6] {
            for p in [1e-6, 0.025, 0.5, 0.975, 0.999_999] {
                let found = gamma_p(a, ln_gamma_p_inverse(a, p).exp());
                // The logarithm of the function's factor is a difference of numbers of the size of a.
                assert!((found / p - 1.0).abs() < 1e-13 * (1.0 + a), "{a} {p}: {found}");
            }
        }
    }

    #[test]
    fn the_incomplete_gamma_function_is_the_poisson_sum() {
        for mean in [0.1_f64, 1.0, 7.5, 40.0, 300.0] {
            let mut term = (-mean).exp();
            let mut sum = 0.0;
            for s in 0..400_u32 {
                sum += term;
                term *= mean / f64::from(s + 1);
                let q = gamma_q(f64::from(s + 1), mean);
                assert!((q - sum).abs() < 1e-10, "{mean} {s}: {q} {sum}");
                assert!((gamma_p(f64::from(s + 1), mean) + q - 1.0).abs() < 1e-10);
            }
        }
    }
}
