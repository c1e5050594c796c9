//! Optimal work interval between two checkpoints of one level.
//!
//! Failures occur at a constant rate. `M` is the mean time between failures of the *job* (that of a node divided by the
//! number of nodes), `C` the cost of one checkpoint to the trainer, `R` the cost of a restart. All times are seconds.
//!
//! Sources: Young 1974; Daly 2006 (first and higher order); Vaidya 1997 for a cost and a latency that differ; the
//! closed form is the stationary point of Daly's exact model.

/// Returns Young's interval, `sqrt(2 C M)`.
pub fn young(cost_s: f64, mtbf_s: f64) -> f64 {
    (2.0 * cost_s * mtbf_s).sqrt()
}

/// Returns Daly's first-order interval, `sqrt(2 C (M + R)) - C`, at least 0.
pub fn daly_first_order(cost_s: f64, restart_s: f64, mtbf_s: f64) -> f64 {
    ((2.0 * cost_s * (mtbf_s + restart_s)).sqrt() - cost_s).max(0.0)
}

/// Returns Daly's higher-order interval: `sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C` if `C < 2 M`, else
/// `M`.
pub fn daly(cost_s: f64, mtbf_s: f64) -> f64 {
    if cost_s >= 2.0 * mtbf_s {
        return mtbf_s;
    }
    let part = cost_s / (2.0 * mtbf_s);
    young(cost_s, mtbf_s) * (1.0 + part.sqrt() / 3.0 + part / 9.0) - cost_s
}

/// Returns the exact optimum, `M (1 + W0(-e^(-C/M - 1)))` with Lambert's W; it depends on neither restart nor latency.
///
/// With `x = T / M` and `c = C / M` it is the root of `x + ln(1 - x) = -c` in `[0, 1)`, which is solved here directly:
/// Lambert's form loses all digits near `c = 0`, the usual range.
pub fn exact(cost_s: f64, mtbf_s: f64) -> f64 {
    let c = cost_s / mtbf_s;
    if c <= 0.0 {
        return 0.0;
    }
    if !c.is_finite() {
        return if mtbf_s > 0.0 { mtbf_s } else { 0.0 };
    }
    // Bisection guarantees termination; Newton's step accelerates it. Beyond c = 40 the root is 1 in f64.
    let mut low = 0.0_f64;
    let mut high = 1.0_f64;
    let mut x = (2.0 * c).sqrt().min(1.0 - (-c - 1.0).exp()).min(0.999);
    for _ in 0..200 {
        let value = x_plus_ln_1_minus(x) + c;
        if value > 0.0 {
            low = x;
        } else {
            high = x;
        }
        let newton = x + value * (1.0 - x) / x;
        let next = if newton > low && newton < high {
            newton
        } else {
            0.5 * (low + high)
        };
        if (next - x).abs() <= 1e-15 * next || high - low <= f64::EPSILON * high {
            break;
        }
        x = next;
    }
    x * mtbf_s
}

/// Computes `x + ln(1 - x)` without loss of digits near 0.
fn x_plus_ln_1_minus(x: f64) -> f64 {
    if x > 0.02 {
        return x + (-x).ln_1p();
    }
    // -(x^2/2 + x^3/3 + ...): ten terms are exact to the last digit below 0.02.
    let mut power = x * x;
    let mut sum = 0.0;
    for n in 2..12_u32 {
        sum -= power / f64::from(n);
        power *= x;
    }
    sum
}

/// Returns the period of arXiv 2410.18124: `C + sqrt(2 (F + R) C + C^2)`, where `F` is the time to failure.
pub fn availability_period(cost_s: f64, restart_s: f64, mtbf_s: f64) -> f64 {
    cost_s + (2.0 * (mtbf_s + restart_s) * cost_s + cost_s * cost_s).sqrt()
}

/// Returns wall time over work if every checkpoint blocks: `(M / T) e^(R/M) (e^((T + C)/M) - 1)`, at least 1.
pub fn wall_over_work(interval_s: f64, cost_s: f64, restart_s: f64, mtbf_s: f64) -> f64 {
    (mtbf_s / interval_s) * (restart_s / mtbf_s).exp() * ((interval_s + cost_s) / mtbf_s).exp_m1()
}

/// Returns overhead over work if a checkpoint blocks for `cost_s` and is usable `latency_s` after its start:
/// `e^((L - C + R)/M) (e^((T + C)/M) - 1) M / T - 1` (Vaidya). With `L = C` it is [`wall_over_work`] less 1.
pub fn overhead_over_work(interval_s: f64, cost_s: f64, latency_s: f64, restart_s: f64, mtbf_s: f64) -> f64 {
    wall_over_work(interval_s, cost_s, restart_s + (latency_s - cost_s), mtbf_s) - 1.0
}

/// Returns the share of wall time that is not progress: `1 - work / wall`.
pub fn waste(wall_over_work: f64) -> f64 {
    1.0 - 1.0 / wall_over_work
}

/// Returns the exact optimum, raised so that at most `in_flight` snapshots are persisted at a time: `T + C >= L / k`.
pub fn exact_with_latency(cost_s: f64, latency_s: f64, in_flight: u32, mtbf_s: f64) -> f64 {
    exact(cost_s, mtbf_s).max(shortest(cost_s, latency_s, in_flight))
}

/// Returns the shortest interval at which at most `in_flight` snapshots are persisted at a time, seconds.
pub fn shortest(cost_s: f64, latency_s: f64, in_flight: u32) -> f64 {
    (latency_s / f64::from(in_flight.max(1)) - cost_s).max(0.0)
}

/// Returns the total cost of one checkpoint to the trainer: the stall plus the slower steps while it is persisted,
/// seconds.
pub fn blocking_cost(stall_s: f64, slowdown: f64, latency_s: f64) -> f64 {
    stall_s + (slowdown - 1.0).max(0.0) * latency_s
}
