//! NVLink: active links and error counters.
//!
//! Up to NVLink 4 each link has its own error counters, which cost one driver call each: a few links are read at every
//! poll, and the sums are reported once all have been read. NVLink 5 counts for all links together; the single links
//! are read when a count has grown.

use std::collections::BTreeMap;

use nvml_wrapper::device::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS, NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER,
    NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0,
    NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_15, NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
    NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS, NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS,
    NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS, NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS,
    NVML_FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS, NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER,
    NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS, NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
    NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, NVML_FI_DEV_NVLINK_LINK_COUNT,
};
use nvml_wrapper_sys::bindings::{
    NVML_NVLINK_BER_EXP_SHIFT, NVML_NVLINK_BER_EXP_WIDTH, NVML_NVLINK_BER_MANTISSA_SHIFT,
    NVML_NVLINK_BER_MANTISSA_WIDTH,
};

use super::fields::{self, FieldScope};
use super::reader::DeviceReader;

/// Limit on the number of links, more than any device has, because the driver's number is foreign.
const LINKS_MAX: u32 = 64;

/// Counters of one link, up to NVLink 4.
const OF_A_LINK: [(u32, &str); 3] = [
    (NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, "gpu.nvlink_replays"),
    (NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, "gpu.nvlink_recoveries"),
    (NVML_FI_DEV_NVLINK_ERROR_DL_CRC, "gpu.nvlink_crc_errors"),
];

/// Links with counters that are read in one poll.
const A_LOOK: u32 = 6;

/// Counters of all links together, NVLink 5.
const OF_ALL: [(u32, &str); 10] = [
    (
        NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS,
        "gpu.nvlink_malformed_packets",
    ),
    (
        NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS,
        "gpu.nvlink_buffer_overruns",
    ),
    (NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, "gpu.nvlink_receive_errors"),
    (NVML_FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS, "gpu.nvlink_remote_errors"),
    (
        NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS,
        "gpu.nvlink_integrity_errors",
    ),
    (NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS, "gpu.nvlink_discards"),
    (
        NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
        "gpu.nvlink_recoveries_failed",
    ),
    (
        NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
        "gpu.nvlink_recovery_events",
    ),
    (NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, "gpu.nvlink_effective_errors"),
    (NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, "gpu.nvlink_symbol_errors"),
];

/// Bit error rates of all links, NVLink 5.
const RATES: [(u32, &str); 2] = [
    (NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER, "gpu.nvlink_symbol_ber"),
    (NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, "gpu.nvlink_effective_ber"),
];

/// First field of the histogram of blocks by corrected symbols, 0 to 15 (NVLink 5), that is counted as strained: half
/// of the symbols that can be corrected.
const STRAINED: u32 = NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 + 8;

/// Counters of one device's links between polls.
#[derive(Debug, Default)]
pub(super) struct NvLinkCounters {
    /// First link to read at the next poll.
    next: u32,
    /// Counters of each link at its last read.
    counters: BTreeMap<u32, [Option<f64>; OF_A_LINK.len()]>,
    /// Errors of all links together at the previous poll.
    errors: Option<f64>,
    /// Link with the most errors, once it was determined.
    worst: Option<u32>,
}

impl NvLinkCounters {
    pub(super) fn read(&mut self, device: &Device<'_>, reader: &mut DeviceReader<'_>) -> Result<(), NvmlError> {
        let count = self.all(device, reader)?;
        let mut active = None;
        for link in 0..count {
            let state = reader.call("read the NVLink state", || device.link_wrapper_for(link).is_active())?;
            if let Some(state) = state {
                active = Some(active.unwrap_or(0.0) + f64::from(u8::from(state)));
            }
        }
        if let Some(active) = active {
            reader.put("gpu.nvlinks_active", active);
        }
        self.some(device, reader, count)?;
        if let Some(worst) = self.worst {
            reader.put("gpu.nvlink_worst", f64::from(worst));
        }
        Ok(())
    }

    /// Reads the number of links, and the counters for all of them.
    fn all(&mut self, device: &Device<'_>, reader: &mut DeviceReader<'_>) -> Result<u32, NvmlError> {
        let histogram = STRAINED..=NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_15;
        let mut wanted = vec![(NVML_FI_DEV_NVLINK_LINK_COUNT, FieldScope::Device)];
        let named = OF_ALL.iter().chain(&RATES).map(|(field, _)| *field);
        wanted.extend(named.chain(histogram).map(|field| (field, FieldScope::Links)));
        let Some(found) = reader.call("read the NVLink counters", || fields::values(device, &wanted))? else {
            return Ok(0);
        };
        let mut found = found.into_iter();
        let count = found.next().flatten().map_or(0, |count| count as u32).min(LINKS_MAX);
        let mut errors = None;
        for (_, name) in OF_ALL {
            if let Some(value) = found.next().flatten() {
                reader.put(name, value);
                errors = Some(errors.unwrap_or(0.0) + value);
            }
        }
        for (_, name) in RATES {
            if let Some(code) = found.next().flatten() {
                reader.put(name, bit_error_rate(code as u64));
            }
        }
        if let Some(strained) = found.flatten().reduce(|sum, more| sum + more) {
            reader.put("gpu.nvlink_strained_blocks", strained);
        }
        let grown = matches!((self.errors, errors), (Some(before), Some(now)) if now > before);
        self.errors = errors.or(self.errors);
        if grown {
            self.find_worst(device, reader, count)?;
        }
        Ok(count)
    }

    /// Reads the counters of every single link and finds the worst.
    fn find_worst(&mut self, device: &Device<'_>, reader: &DeviceReader<'_>, count: u32) -> Result<(), NvmlError> {
        let of_link = |link| OF_ALL.map(|(field, _)| (field, FieldScope::Link(link)));
        let wanted: Vec<(u32, FieldScope)> = (0..count).flat_map(of_link).collect();
        let found = reader.call("read the counters of NVLinks", || fields::values(device, &wanted))?;
        let found = found.unwrap_or_default();
        let sums = found.chunks(OF_ALL.len()).map(|link| link.iter().flatten().sum());
        self.worst = most((0..count).zip(sums)).or(self.worst);
        Ok(())
    }

    /// Reads the counters of the next links in turn.
    fn some(&mut self, device: &Device<'_>, reader: &mut DeviceReader<'_>, count: u32) -> Result<(), NvmlError> {
        if count == 0 {
            return Ok(());
        }
        let turn: Vec<u32> = (0..A_LOOK.min(count)).map(|step| (self.next + step) % count).collect();
        self.next = (self.next + A_LOOK) % count;
        let of_link = |link: &u32| OF_A_LINK.map(|(field, _)| (field, FieldScope::Link(*link)));
        let wanted: Vec<(u32, FieldScope)> = turn.iter().flat_map(of_link).collect();
        let found = reader.call("read the counters of NVLinks", || fields::values(device, &wanted))?;
        let found = found.unwrap_or_default();
        for (link, values) in turn.iter().zip(found.chunks_exact(OF_A_LINK.len())) {
            let mut counters = [None; OF_A_LINK.len()];
            counters.copy_from_slice(values);
            self.counters.insert(*link, counters);
        }
        self.counters.retain(|link, _| *link < count);
        if self.counters.len() < count as usize {
            return Ok(());
        }
        for (place, (_, name)) in OF_A_LINK.iter().enumerate() {
            let values = self.counters.values().filter_map(|counters| counters[place]);
            if let Some(sum) = values.reduce(|sum, more| sum + more) {
                reader.put(name, sum);
            }
        }
        let sums = self
            .counters
            .iter()
            .map(|(link, counters)| (*link, counters.iter().flatten().sum()));
        self.worst = most(sums).or(self.worst);
        Ok(())
    }
}

/// Returns the link with the greatest sum, or none if all are 0.
fn most(sums: impl Iterator<Item = (u32, f64)>) -> Option<u32> {
    let most = sums.max_by(|(_, one), (_, two)| one.total_cmp(two));
    most.filter(|(_, sum)| *sum > 0.0).map(|(link, _)| link)
}

/// Decodes a bit error rate: a mantissa, and a negative power of ten.
fn bit_error_rate(code: u64) -> f64 {
    let part = |shift: u32, mask: u32| (code >> shift) & u64::from(mask);
    let mantissa = part(NVML_NVLINK_BER_MANTISSA_SHIFT, NVML_NVLINK_BER_MANTISSA_WIDTH);
    let exponent = part(NVML_NVLINK_BER_EXP_SHIFT, NVML_NVLINK_BER_EXP_WIDTH);
    mantissa as f64 * 10.0_f64.powi(-i32::try_from(exponent).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes of DCGM's own test of the same conversion.
    #[test]
    fn rates_are_unpacked() {
        for (code, rate) in [(1025, 0.4), (2048, 8.0), (3072, 12.0), (513, 0.2), (0, 0.0)] {
            assert!((bit_error_rate(code) - rate).abs() < 1e-12, "{code}");
        }
        assert!((bit_error_rate(0x10c) / 1e-12 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nobody_is_worst_among_those_without_errors() {
        assert_eq!(most([(0, 0.0), (1, 0.0)].into_iter()), None);
        assert_eq!(most([(0, 1.0), (1, 5.0), (2, 0.0)].into_iter()), Some(1));
    }
}
