//! Efficiency of a run: effective training time ratio and wasted time per failure.

/// Returns the wasted time of one failure as GEMINI (SOSP 2023) counts it: the image in progress, half an interval, the
/// retrieval; `t_ckpt + 1 / (2 f) + t_retrieve` for `f` images per second. Seconds.
pub fn wasted_per_failure(checkpoint_s: f64, frequency: f64, retrieve_s: f64) -> f64 {
    checkpoint_s + 0.5 / frequency + retrieve_s
}

/// Returns the highest image frequency that GEMINI allows, per second: one at a time, and at most one per step.
pub fn highest_frequency(checkpoint_s: f64, step_s: f64) -> f64 {
    1.0 / checkpoint_s.max(step_s)
}

/// Returns the first-order ratio `1 / (1 + C/T + λ (D + R + L + T/2))` for one level: cost, interval, failures per
/// second, and the seconds of detection, restart and latency.
pub fn first_order(cost_s: f64, interval_s: f64, rate: f64, detect_s: f64, restart_s: f64, latency_s: f64) -> f64 {
    1.0 / (1.0 + cost_s / interval_s + rate * (detect_s + restart_s + latency_s + 0.5 * interval_s))
}

/// Returns the estimate of arXiv 2410.21680: `(1 - λ (u0 + T/2)) / (1 + w/T)`, with `u0` the restart overhead and `w`
/// the time that an image blocks; never below 0.
pub fn kokolis(cost_s: f64, interval_s: f64, rate: f64, restart_s: f64) -> f64 {
    ((1.0 - rate * (restart_s + 0.5 * interval_s)) / (1.0 + cost_s / interval_s)).max(0.0)
}

/// Converts an overhead over work to the effective training time ratio.
pub fn of_overhead(overhead_over_work: f64) -> f64 {
    1.0 / (1.0 + overhead_over_work)
}
