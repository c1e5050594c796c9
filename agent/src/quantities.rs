//! Formats of quantities.

/// Formats bytes in GiB with one decimal.
pub(crate) fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}
