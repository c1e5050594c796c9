//! Statistics of failure records: pure functions from slices of numbers to estimates.
//!
//! - [`order`]: times in ascending order; [`groups`]: values by label.
//! - [`sample`]: mean, median, deviation, squared coefficient of variation, quantiles.
//! - [`fit`]: exponential, Weibull, lognormal and gamma by maximum likelihood, with goodness of fit; the first three
//!   also with censored durations.
//! - [`kaplan_meier`], [`log_rank`], [`cox`]: lifetimes with censoring.
//! - [`rate`]: failures over exposure with exact intervals and a Gamma posterior; [`proportion`]: shares.
//! - [`bootstrap`]: intervals of any statistic, from a seed.
//! - [`bursts`]: records of one incident; [`neighbours`]: failures close to another in time.
//! - [`spatial`]: tests for uniform failures over cells with known exposure.
//! - [`downtime`]: unions of intervals and their coverage.
//!
//! Invariants: pure (no clock, randomness, files, sockets); the same input gives the same output, a bootstrap the same
//! seed. Input without an answer (nothing to fit, a value that is not finite) gives `None` or an error, not NaN.
//!
//! Absent: gamma fits with censoring, left- and interval-censored durations, p-values of the Kolmogorov-Smirnov
//! distance (its table does not hold for parameters fitted to the same data), time-dependent covariates.

pub mod bootstrap;
pub mod bursts;
pub mod cox;
pub mod downtime;
pub mod fit;
pub mod groups;
pub mod kaplan_meier;
pub mod log_rank;
mod marks;
mod matrix;
mod median_select;
mod moments;
pub mod neighbours;
mod normal;
pub mod order;
pub mod proportion;
pub mod rate;
pub mod sample;
pub mod spatial;
mod special;
