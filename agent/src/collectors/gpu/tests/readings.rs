//! Readings of later devices and drivers: NVLink 5, the fabric, MIG devices, errors of the PCIe link.

use super::{HEALTHY, Rig, place_library};

/// Device of a fabric, with counters for all links together.
const JOINED: &str = "nvlinks * 18\nfabric * 3\nfabric-status * 0\nfabric-health * 426\nfabric-summary * 1\n\
                      nvlink-integrity-errors * 0\nnvlink-symbol-errors * 0\nnvlink-symbol-ber * 271\n\
                      nvlink-recovery-events * 0\nnvlink-recoveries-failed * 0\nnvlink-strained * 0\n";

fn one(class: &str, what: &str) -> String {
    format!("node a, gpu 0000:bb:00 | {class} | {what}")
}

#[test]
fn a_fabric_is_told_by_its_parts_and_when_it_is_well_again() {
    let healthy = format!("{HEALTHY}{JOINED}");
    let mut rig = Rig::with(&healthy);
    rig.settle();
    assert!(rig.told.is_empty(), "{:?}", rig.told);
    // Bandwidth degraded, recovery of the route, no partition; the rest is fine.
    rig.now(&format!(
        "{healthy}fabric-health 1 {}\nfabric-summary 1 2\n",
        0b10_10_01_01 | 4 << 8
    ));
    rig.told(4);
    let wanted = [
        one("fabric-manager-not-ready", "gpu.fabric_misconfigured 3"),
        one("gpu-nvlink-error", "gpu.fabric_degraded 1"),
        one("gpu-nvlink-error", "gpu.fabric_route_recovery 1"),
        one("gpu-nvlink-error", "gpu.fabric_unhealthy 1"),
    ];
    assert_eq!(rig.told, wanted);
    rig.now(&healthy);
    rig.told(8);
    assert!(
        rig.told[4..]
            .iter()
            .all(|told| told.contains("| - |") && told.ends_with(" 0")),
        "{:?}",
        rig.told
    );
    rig.now(&format!("{healthy}fabric-status 0 3\n"));
    assert_eq!(
        rig.told(9)[8],
        "node a, gpu 0000:9b:00 | fabric-manager-not-ready | gpu.fabric_failed 1"
    );
    rig.end();
}

#[test]
fn a_driver_that_knows_only_the_second_form_of_the_question_is_asked_that() {
    let healthy = format!("{HEALTHY}fabric * 3\nfabric-health * 426\n");
    let mut rig = Rig::with(&healthy);
    rig.settle();
    assert!(rig.told.is_empty(), "{:?}", rig.told);
    rig.now(&format!("{healthy}fabric-health 1 {}\n", 0b10_01_10_10 | 1 << 8));
    assert_eq!(rig.told(1)[0], one("gpu-nvlink-error", "gpu.fabric_route_unhealthy 1"));
    rig.end();
}

#[test]
fn bit_errors_and_failed_recoveries_are_told_with_the_link_that_has_them() {
    let healthy = format!("{HEALTHY}{JOINED}nvlink-worst * 11\n");
    let mut rig = Rig::with(&healthy);
    rig.settle();
    // 4 times ten to the power of minus 11.
    rig.now(&format!(
        "{healthy}nvlink-symbol-ber 1 1035\nnvlink-recoveries-failed 1 1\n"
    ));
    rig.told(2);
    assert!(
        rig.told[0].starts_with(&one("gpu-nvlink-error", "gpu.nvlink_symbol_ber 0.0000000000")),
        "{:?}",
        rig.told
    );
    assert_eq!(rig.told[1], one("gpu-nvlink-error", "gpu.nvlink_recoveries_failed 1"));
    assert_eq!(rig.worst.as_deref(), Some("11"));
    rig.end();
}

/// Up to NVLink 4 every link has its own counters: errors of any link count, not only of the first.
#[test]
fn errors_of_the_last_link_are_seen_and_the_link_is_named() {
    let healthy = format!("{HEALTHY}nvlinks * 18\nnvlink-worst * 17\nnvlink-recoveries * 5\n");
    let mut rig = Rig::with(&healthy);
    rig.settle();
    assert!(rig.told.is_empty(), "{:?}", rig.told);
    rig.now(&healthy.replace("nvlink-recoveries * 5", "nvlink-recoveries * 5\nnvlink-recoveries 1 6"));
    assert_eq!(rig.told(1)[0], one("gpu-nvlink-error", "gpu.nvlink_recoveries 6"));
    assert_eq!(rig.worst.as_deref(), Some("17"));
    rig.end();
}

#[test]
fn errors_of_the_pcie_link_and_heat_of_the_memory_are_told() {
    let healthy = format!(
        "{HEALTHY}pcie-fatal * 0\npcie-nonfatal * 2\npcie-corrected * 7\nmemory-temperature * 70\nmemory-limit * 95\n"
    );
    let mut rig = Rig::with(&healthy);
    rig.settle();
    rig.now(&format!(
        "{healthy}pcie-fatal 1 1\npcie-nonfatal 1 3\nmemory-temperature 1 95\npcie-corrected 1 900\n"
    ));
    rig.told(4);
    let wanted = [
        one("gpu-thermal", "gpu.memory_temperature 95"),
        one("pcie-error", "gpu.pcie_nonfatal_errors 3"),
        one("pcie-error", "gpu.pcie_fatal_errors 1"),
        one("pcie-corrected-errors", "gpu.pcie_corrected_errors 900"),
    ];
    assert_eq!(rig.told, wanted);
    rig.end();
}

/// Any call may be missing in the driver, and any number may be invalid.
#[test]
fn an_old_driver_without_these_calls_and_a_driver_that_tells_nonsense_do_no_harm() {
    for old in [true, false] {
        let mut rig = Rig::new();
        place_library(rig.folder.path(), old);
        let nonsense = "nvlinks * 18446744073709551615\nfabric * 255\nfabric-health * 4294967295\nfabric-summary * 255\n\
                        mig * 1\nmig-devices * 4000000000\nmig-pending * 7\nnvlink-worst * 99\nnvlink-symbol-ber * 0\n\
                        retired-uncorrected * 0\nrecovery * 0\nmemory-temperature * 0\n";
        rig.now(&format!("{HEALTHY}{nonsense}"));
        rig.start();
        rig.settle();
        let faults = rig
            .told
            .iter()
            .filter(|told| !told.contains("gpu.fabric_misconfigured"));
        assert_eq!(faults.count(), 0, "{old}: {:?}", rig.told);
        rig.now(&format!("{HEALTHY}{nonsense}ecc 0 3\n"));
        let count = rig.told.len() + 1;
        let told = rig.told(count).last().cloned();
        assert_eq!(
            told.as_deref(),
            Some("node a, gpu 0000:9b:00 | gpu-ecc-uncorrectable | gpu.ecc_uncorrected 3")
        );
        rig.end();
    }
}
