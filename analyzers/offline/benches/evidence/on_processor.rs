//! Time on a processor as a criterion measurement.

use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};

/// Measurement of the time that this thread was on a processor.
pub(crate) struct OnProcessor;

impl Measurement for OnProcessor {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
        let nanos = told.split(' ').next().and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.expect("the first number"))
    }

    fn end(&self, begun: Duration) -> Duration {
        self.start() - begun
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}
