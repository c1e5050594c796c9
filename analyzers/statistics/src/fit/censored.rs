//! Lognormal fit of durations of which some are censored.

use super::runs::EqualDurations;
use crate::normal;

/// Returns mean and deviation of the logarithms by Newton's method in `1/sigma` and `mu/sigma`, in which the likelihood
/// has one maximum (Olsen, "Note on the uniqueness of the maximum likelihood estimator for the Tobit model",
/// Econometrica 1978). Starts at the values of the completed durations; logarithms are relative to their mean.
pub(super) fn lognormal(runs: &[EqualDurations], mean_ln: f64, deviation_ln: f64) -> (f64, f64) {
    let mut gamma = 1.0 / deviation_ln;
    let mut beta = 0.0;
    let mut now = slopes(runs, mean_ln, gamma, beta);
    for _ in 0..200 {
        let determinant = now.bb * now.gg - now.bg * now.bg;
        let step_b = (now.gg * now.b - now.bg * now.g) / determinant;
        let step_g = (now.bb * now.g - now.bg * now.b) / determinant;
        let mut share = 1.0;
        // A full step may overshoot; a small enough one always increases the likelihood.
        let next = loop {
            let next_g = gamma - share * step_g;
            let next_b = beta - share * step_b;
            let next = slopes(runs, mean_ln, next_g.max(f64::MIN_POSITIVE), next_b);
            if next_g > 0.0 && next.value >= now.value {
                (gamma, beta) = (next_g, next_b);
                break Some(next);
            }
            share *= 0.5;
            if share < 1e-12 {
                break None;
            }
        };
        let Some(next) = next else {
            break;
        };
        now = next;
        if (share * step_g).abs() < 1e-13 * gamma && (share * step_b).abs() < 1e-13 * (1.0 + beta.abs()) {
            break;
        }
    }
    (mean_ln + beta / gamma, 1.0 / gamma)
}

/// Logarithm of the likelihood without a constant, and its first and second derivatives.
struct LikelihoodSlopes {
    value: f64,
    b: f64,
    g: f64,
    bb: f64,
    bg: f64,
    gg: f64,
}

fn slopes(runs: &[EqualDurations], mean_ln: f64, gamma: f64, beta: f64) -> LikelihoodSlopes {
    let mut sums = LikelihoodSlopes {
        value: 0.0,
        b: 0.0,
        g: 0.0,
        bb: 0.0,
        bg: 0.0,
        gg: 0.0,
    };
    for run in runs {
        let y = run.ln - mean_ln;
        let z = gamma * y - beta;
        let ended = run.ended as f64;
        let running = run.censored as f64;
        sums.value += ended * (gamma.ln() - 0.5 * z * z);
        sums.b += ended * z;
        sums.g += ended * (1.0 / gamma - z * y);
        sums.bb -= ended;
        sums.bg += ended * y;
        sums.gg -= ended * (1.0 / (gamma * gamma) + y * y);
        if run.censored > 0 {
            let hazard = normal::hazard(z);
            let bend = hazard * (hazard - z);
            sums.value += running * normal::ln_above(z);
            sums.b += running * hazard;
            sums.g -= running * hazard * y;
            sums.bb -= running * bend;
            sums.bg += running * bend * y;
            sums.gg -= running * bend * y * y;
        }
    }
    sums
}
