//! SMART / health information page of an NVMe controller, as laid out by the NVM Express base specification (log page
//! 02h).

use crate::collectors::threshold_evaluator::DeviceReadings;

/// Length of the page, bytes.
pub(super) const PAGE_BYTES: usize = 512;

/// Names of the critical-warning bits, from the lowest.
const WARNINGS: [&str; 6] = [
    "nvme.spare_low",
    "nvme.temperature_warning",
    "nvme.reliability_degraded",
    "nvme.read_only",
    "nvme.backup_failed",
    "nvme.persistent_memory_unreliable",
];

/// Decodes the page.
pub(super) fn read(page: &[u8; PAGE_BYTES]) -> DeviceReadings {
    let mut readings = DeviceReadings::new();
    let mut put = |name: &str, value: f64| {
        readings.insert(name.to_owned(), value);
    };
    for (bit, name) in WARNINGS.iter().enumerate() {
        put(name, f64::from(page[0] >> bit & 1));
    }
    let kelvin = u16::from_le_bytes([page[1], page[2]]);
    // 0 means unknown.
    if kelvin > 0 {
        put("nvme.temperature", f64::from(kelvin) - 273.0);
    }
    put("nvme.spare_percent", f64::from(page[3]));
    put("nvme.percentage_used", f64::from(page[5]));
    put("nvme.unsafe_shutdowns", counter(page, 144));
    put("nvme.media_errors", counter(page, 160));
    readings
}

/// Decodes a counter of 16 bytes, little-endian.
fn counter(page: &[u8; PAGE_BYTES], at: usize) -> f64 {
    let bytes = page.get(at..at + 16).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(f64::NAN, |bytes| u128::from_le_bytes(bytes) as f64)
}

/// Returns a page without a fault: 35 degrees, all spare left, 3 percent used.
#[cfg(test)]
pub(super) fn healthy() -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    page[1..6].copy_from_slice(&[0x34, 0x01, 100, 10, 3]);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_by_its_places() {
        let mut page = healthy();
        page[0] = 0b0000_1001;
        page[144] = 9;
        page[160..162].copy_from_slice(&[1, 2]);
        let readings = read(&page);
        let wanted = [
            ("nvme.spare_low", 1.0),
            ("nvme.temperature_warning", 0.0),
            ("nvme.read_only", 1.0),
            ("nvme.temperature", 35.0),
            ("nvme.spare_percent", 100.0),
            ("nvme.percentage_used", 3.0),
            ("nvme.unsafe_shutdowns", 9.0),
            ("nvme.media_errors", 513.0),
        ];
        for (name, value) in wanted {
            assert_eq!(readings.get(name), Some(&value), "{name}");
        }
        assert_eq!(read(&[0; PAGE_BYTES]).get("nvme.temperature"), None);
        assert_eq!(read(&[0xff; PAGE_BYTES])["nvme.media_errors"], u128::MAX as f64);
    }
}
