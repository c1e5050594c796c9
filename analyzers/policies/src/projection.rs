//! Projected failure rate and effective training time by job size: Kokolis et al., "Revisiting Reliability in
//! Large-Scale Machine Learning Research Clusters" (HPCA 2025, arXiv 2410.21680).
//!
//! Mean time to failure is `1 / (nodes r)`; the expected effective training time ratio is
//! `(1 - nodes r (u0 + T/2)) / (1 + w/T)` at the interval `T = sqrt(2 w / (nodes r))`.

use rankguard_checkpoint_schedule::{ettr, interval};
use serde::Serialize;

/// GPUs of a node in that study.
pub const GPUS_PER_NODE: u32 = 8;

/// Projection for jobs of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EttrProjection {
    /// GPUs of the job.
    pub gpus: u32,
    /// Mean time to failure of the job in hours.
    pub mttf_h: f64,
    /// Optimal interval in seconds.
    pub interval_s: f64,
    /// Expected effective training time ratio.
    pub ettr: f64,
}

/// Projects jobs of `gpus` GPUs at a failure rate a node-hour; checkpoint stall and restart in seconds.
pub fn project(gpus: u32, per_node_hour: f64, blocking_s: f64, restart_s: f64) -> EttrProjection {
    let nodes = f64::from(gpus) / f64::from(GPUS_PER_NODE);
    let mttf_h = 1.0 / (nodes * per_node_hour);
    let mttf_s = mttf_h * 3_600.0;
    let interval_s = interval::young(blocking_s, mttf_s);
    EttrProjection {
        gpus,
        mttf_h,
        interval_s,
        ettr: ettr::kokolis(blocking_s, interval_s, 1.0 / mttf_s, restart_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published: 6.50 failures per 1,000 node-days; 47.7 days at 8 GPUs and 7.9 h at 1,024 were observed, 1.8 h at
    /// 16,384 and 0.23 h at 131,072 were projected.
    #[test]
    fn times_to_failure_are_the_published_projections() {
        let rate = 6.5 / 24_000.0;
        for (gpus, published, within) in [(16_384, 1.8, 0.05), (131_072, 0.23, 0.01)] {
            let found = project(gpus, rate, 30.0, 300.0).mttf_h;
            assert!((found - published).abs() < within, "{gpus}: {found}");
        }
    }
}
