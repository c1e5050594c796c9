//! Estimates from failure records, from slices of numbers to numbers.
//!
//! - [`order`]: moments in the order of time; [`groups`]: values by label.
//! - [`sample`]: mean, median, deviation, squared coefficient of variation, quantiles.
//! - [`fit`]: exponential, Weibull, lognormal and gamma by maximum likelihood, and how well they fit; the first three of
//!   durations of which some are still running, too.
//! - [`kaplan_meier`], [`log_rank`], [`cox`]: lifetimes of which some are still running.
//! - [`rate`]: failures over exposure with exact intervals and a Gamma posterior; [`proportion`]: shares.
//! - [`bootstrap`]: intervals of anything, from a seed.
//! - [`bursts`]: records that belong to one incident; [`neighbours`]: failures that come close to another.
//! - [`spatial`]: whether failures lie anywhere, or in some cells more than exposure says.
//! - [`downtime`]: unions of intervals and what they cover.
//!
//! Invariants: pure (no clock, randomness, files, sockets); the same input gives the same output, a bootstrap the same
//! seed. Input that has no answer (nothing to fit, a value that is not finite) gives `None` or an error, not NaN.
//!
//! Absent: gamma fits with censoring, durations known only from below or within an interval, p-values of
//! the Kolmogorov-Smirnov distance (its table does not hold where parameters were fitted to the same data), covariates
//! that change with time.

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
mod middle;
mod moments;
pub mod neighbours;
mod normal;
pub mod order;
pub mod proportion;
pub mod rate;
pub mod sample;
pub mod spatial;
mod special;
