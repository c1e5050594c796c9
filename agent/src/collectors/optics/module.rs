//! Readings of a module, decoded from the pages of its memory. Pure.
//!
//! The pages are those of SFF-8472 (SFP), SFF-8636 (QSFP to QSFP28) and CMIS (QSFP-DD, OSFP), at the offsets of the
//! specifications. Power is in units of a tenth of a microwatt, temperature in 1/256 of a degree. Absent: voltage, bias
//! currents, modules of more than eight lanes.

use crate::collectors::threshold_evaluator::DeviceReadings;

/// Page of 128 bytes of a module's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ModulePage {
    /// Address on the module's bus.
    pub(super) bus: u8,
    pub(super) page: u8,
    /// True for the lower half, which all pages share.
    pub(super) lower: bool,
}

const LOWER: ModulePage = ModulePage {
    bus: 0x50,
    page: 0,
    lower: true,
};

/// Length of a page, bytes.
pub(super) const BYTES: usize = 128;

/// Locations of the readings in one module family. Offsets are those of the specifications: the upper half of a page
/// begins at 128.
struct ReadingMap {
    now: ModulePage,
    temperature: usize,
    lanes_at: ModulePage,
    rx: usize,
    tx: usize,
    lanes: usize,
    limits: ModulePage,
    temperature_high: usize,
    rx_low: usize,
    tx_low: usize,
}

const fn upper(page: u8) -> ModulePage {
    ModulePage {
        bus: 0x50,
        page,
        lower: false,
    }
}

const SFP_DIAGNOSTICS: ModulePage = ModulePage {
    bus: 0x51,
    page: 0,
    lower: true,
};

const SFP: ReadingMap = ReadingMap {
    now: SFP_DIAGNOSTICS,
    temperature: 96,
    lanes_at: SFP_DIAGNOSTICS,
    rx: 104,
    tx: 102,
    lanes: 1,
    limits: SFP_DIAGNOSTICS,
    temperature_high: 4,
    rx_low: 38,
    tx_low: 30,
};

const QSFP: ReadingMap = ReadingMap {
    now: LOWER,
    temperature: 22,
    lanes_at: LOWER,
    rx: 34,
    tx: 50,
    lanes: 4,
    limits: upper(3),
    temperature_high: 132,
    rx_low: 182,
    tx_low: 198,
};

const CMIS: ReadingMap = ReadingMap {
    now: LOWER,
    temperature: 14,
    lanes_at: upper(0x11),
    rx: 186,
    tx: 154,
    lanes: 8,
    limits: upper(2),
    temperature_high: 132,
    rx_low: 198,
    tx_low: 182,
};

/// Returns the map for the identifier, the first byte of every module (SFF-8024).
fn map(identifier: u8) -> Option<&'static ReadingMap> {
    match identifier {
        0x03 => Some(&SFP),
        0x0c | 0x0d | 0x11 => Some(&QSFP),
        0x18 | 0x19 | 0x1e => Some(&CMIS),
        _ => None,
    }
}

/// Decodes a module; `page` returns a page of its memory, or none if the module lacks it. A module without light, such
/// as a copper cable, has no power limits and no power readings. Unused lanes, which read 0, are left out unless all
/// lanes read 0.
pub(super) fn read(mut page: impl FnMut(ModulePage) -> Option<Vec<u8>>) -> DeviceReadings {
    let mut readings = DeviceReadings::new();
    let Some(lower) = page(LOWER) else { return readings };
    let Some(map) = lower.first().and_then(|identifier| map(*identifier)) else {
        return readings;
    };
    let mut known: Vec<(ModulePage, Option<Vec<u8>>)> = vec![(LOWER, Some(lower))];
    let mut word = |of: ModulePage, offset: usize| -> Option<u16> {
        if !known.iter().any(|(page, _)| *page == of) {
            let read = page(of);
            known.push((of, read));
        }
        let bytes = known.iter().find(|(page, _)| *page == of)?.1.as_ref()?;
        let at = if of.lower { offset } else { offset.checked_sub(BYTES)? };
        Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
    };
    let degrees = |raw: u16| f64::from(raw.cast_signed()) / 256.0;
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            readings.insert(name.to_owned(), value);
        }
    };
    // A value of exactly 0 is not measured.
    let measured = |raw: &u16| *raw != 0;
    put(
        "nic.module_temperature",
        word(map.now, map.temperature).filter(measured).map(degrees),
    );
    put(
        "nic.module_temperature_high",
        word(map.limits, map.temperature_high).filter(measured).map(degrees),
    );
    for (now, limit, first, low) in [
        (
            "nic.module_rx_power_least",
            "nic.module_rx_power_low",
            map.rx,
            map.rx_low,
        ),
        (
            "nic.module_tx_power_least",
            "nic.module_tx_power_low",
            map.tx,
            map.tx_low,
        ),
    ] {
        let microwatts = |raw: u16| f64::from(raw) / 10.0;
        let Some(low) = word(map.limits, low).filter(measured) else {
            continue;
        };
        let lanes: Vec<u16> = (0..map.lanes)
            .filter_map(|lane| word(map.lanes_at, first + 2 * lane))
            .collect();
        let used = lanes.iter().filter(|raw| measured(raw)).min();
        put(now, used.or(lanes.first()).map(|raw| microwatts(*raw)));
        put(limit, Some(microwatts(low)));
    }
    readings
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use super::*;

    /// Pages of a module, with words at offsets.
    #[derive(Default)]
    struct Memory(BTreeMap<ModulePage, Vec<u8>>);

    impl Memory {
        fn of(identifier: u8) -> Self {
            let mut memory = Self::default();
            memory.page(LOWER)[0] = identifier;
            memory
        }

        fn page(&mut self, page: ModulePage) -> &mut Vec<u8> {
            self.0.entry(page).or_insert_with(|| vec![0; BYTES])
        }

        fn with(mut self, page: ModulePage, offset: usize, words: &[u16]) -> Self {
            let at = if page.lower { offset } else { offset - BYTES };
            for (place, word) in words.iter().enumerate() {
                self.page(page)[at + 2 * place..at + 2 * place + 2].copy_from_slice(&word.to_be_bytes());
            }
            self
        }

        fn told(&self) -> Vec<(String, f64)> {
            let told = read(|page| self.0.get(&page).cloned()).into_iter();
            told.map(|(name, value)| (name.replace("nic.module_", ""), value))
                .collect()
        }
    }

    fn wanted(all: [(&str, f64); 6]) -> Vec<(String, f64)> {
        all.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    #[test]
    fn each_family_keeps_the_same_in_other_places() {
        let all = wanted([
            ("rx_power_least", 500.0),
            ("rx_power_low", 100.0),
            ("temperature", 40.5),
            ("temperature_high", 70.0),
            ("tx_power_least", 900.0),
            ("tx_power_low", 200.0),
        ]);
        let warm = 40 * 256 + 128;
        let hot = 70 * 256;
        let sfp = Memory::of(0x03)
            .with(SFP_DIAGNOSTICS, 96, &[warm])
            .with(SFP_DIAGNOSTICS, 102, &[9_000, 5_000])
            .with(SFP_DIAGNOSTICS, 4, &[hot])
            .with(SFP_DIAGNOSTICS, 30, &[2_000])
            .with(SFP_DIAGNOSTICS, 38, &[1_000]);
        assert_eq!(sfp.told(), all);
        let qsfp = Memory::of(0x11)
            .with(LOWER, 22, &[warm])
            .with(LOWER, 34, &[5_000, 6_000, 7_000, 8_000])
            .with(LOWER, 50, &[9_900, 9_000, 9_100, 9_200])
            .with(upper(3), 132, &[hot])
            .with(upper(3), 182, &[1_000])
            .with(upper(3), 198, &[2_000]);
        assert_eq!(qsfp.told(), all);
        let osfp = Memory::of(0x19)
            .with(LOWER, 14, &[warm])
            .with(upper(0x11), 154, &[9_000, 9_500, 9_500, 9_500])
            .with(upper(0x11), 186, &[6_000, 5_000, 0, 0, 0, 0, 0, 0])
            .with(upper(2), 132, &[hot])
            .with(upper(2), 182, &[2_000])
            .with(upper(2), 198, &[1_000]);
        assert_eq!(osfp.told(), all);
    }

    #[test]
    fn a_module_without_light_has_none_and_one_that_gets_none_says_so() {
        let copper = Memory::of(0x18).with(LOWER, 14, &[0]);
        assert_eq!(copper.told(), []);
        let dark = Memory::of(0x11).with(LOWER, 34, &[0; 4]).with(upper(3), 182, &[1_000]);
        let told = dark.told();
        assert_eq!(told[0], ("rx_power_least".to_owned(), 0.0));
        let cold = Memory::of(0x11).with(LOWER, 22, &[(-5_i16 * 256).cast_unsigned()]);
        assert_eq!(cold.told(), [("temperature".to_owned(), -5.0)]);
    }

    /// Foreign memory: pages that are missing, short or invalid.
    #[test]
    fn what_a_module_does_not_have_is_not_known() {
        assert!(read(|_| None).is_empty());
        for identifier in 0..=u8::MAX {
            for length in [0, 1, 23, 100, BYTES] {
                read(|page| Some(vec![if page == LOWER { identifier } else { 0xff }; length]));
            }
        }
    }
}
