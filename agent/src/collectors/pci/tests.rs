#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use rankguard_model::NodeId;

use super::*;
use crate::collectors::testing::told;

/// Recorded tree: a GPU and an adapter behind a port each, a virtual function, a sound card.
struct Machine {
    folder: tempfile::TempDir,
    pci: PciCollector,
    tree: PciTree,
    judge: ThresholdEvaluator,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (port, device, class, width) in [
            ("0000:00:01.0", "0000:9b:00.0", "0x030200", "16"),
            ("0000:00:02.0", "0000:c1:00.0", "0x020700", "16"),
            ("0000:00:03.0", "0000:d1:00.0", "0x040300", "4"),
        ] {
            let end = folder.path().join("devices/pci0000:00").join(port);
            for end in [end.clone(), end.join(device)] {
                fs::create_dir_all(&end).unwrap();
                put(&end, "max_link_width", "16\n");
                put(&end, "current_link_width", &format!("{width}\n"));
                put(&end, "max_link_speed", "32.0 GT/s PCIe\n");
                put(&end, "current_link_speed", "32.0 GT/s PCIe\n");
                for (file, sum) in [("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")] {
                    put(
                        &end,
                        &format!("aer_dev_{file}"),
                        &format!("RxErr 0\nTOTAL_ERR_{sum} 0\n"),
                    );
                }
            }
            put(&end.join(device), "class", &format!("{class}\n"));
            let bus = folder.path().join("bus/pci/devices");
            fs::create_dir_all(&bus).unwrap();
            std::os::unix::fs::symlink(end.join(device), bus.join(device)).unwrap();
        }
        let adapter = folder.path().join("bus/pci/devices/0000:c1:00.0");
        fs::create_dir_all(adapter.join("infiniband/mlx5_0")).unwrap();
        let function = folder.path().join("bus/pci/devices/0000:c1:00.1");
        fs::create_dir_all(function.join("physfn")).unwrap();
        put(&function, "class", "0x020700\n");
        put(&function, "current_link_width", "1\n");
        let pci = PciCollector {
            sysfs_root: folder.path().to_owned(),
            interval: Duration::ZERO,
            intake: EvidenceIntake::new(NodeId::from("a")),
            stop: StopFlag::default(),
        };
        let mut machine = Self {
            tree: PciTree::new(folder.path()),
            judge: ThresholdEvaluator::new(rules(), BESIDE),
            pci,
            folder,
        };
        assert_eq!(machine.told(1), [""; 0]);
        machine
    }

    fn put(&self, device: &str, file: &str, text: &str) {
        put(&self.folder.path().join("bus/pci/devices").join(device), file, text);
    }

    fn port(&self, port: &str, file: &str, text: &str) {
        put(&self.folder.path().join("devices/pci0000:00").join(port), file, text);
    }

    /// Polls once a second for this time and returns what is reported.
    fn told(&mut self, seconds: u64) -> Vec<String> {
        for second in 0..seconds {
            let now = clock::steady().after(Duration::from_secs(second));
            self.look(now);
        }
        self.pci.intake.drain().iter().map(told).collect()
    }

    /// Returns the error types in the findings of one poll.
    fn types(&mut self) -> Vec<String> {
        self.look(clock::steady());
        let told = self.pci.intake.drain().into_iter().flat_map(|sighting| sighting.marks);
        let types = |mark: rankguard_model::Classification| {
            let types = mark.fields.get("pci.error_types")?;
            Some(format!("{}: {types}", mark.signature))
        };
        told.filter_map(types).collect()
    }

    fn look(&mut self, now: rankguard_model::Timestamp) {
        self.pci.look(&mut self.tree, &mut self.judge, now);
    }
}

fn put(folder: &Path, file: &str, text: &str) {
    fs::write(folder.join(file), text).unwrap();
}

fn short(told: &[String]) -> Vec<(String, String)> {
    let parts = told.iter().map(|told| {
        let mut parts = told.split(" | ");
        (parts.next().unwrap().to_owned(), parts.next().unwrap().to_owned())
    });
    parts.collect()
}

#[test]
fn a_link_that_is_narrower_or_slower_than_both_ends_can_is_told_and_its_end_too() {
    let mut machine = Machine::new();
    machine.put("0000:c1:00.0", "current_link_width", "8\n");
    machine.put("0000:9b:00.0", "current_link_width", "4\n");
    // A GPU at idle.
    machine.put("0000:9b:00.0", "current_link_speed", "2.5 GT/s PCIe\n");
    let told = machine.told(5);
    let wanted = [
        ("node a, gpu 0000:9b:00", "pcie-link-degraded"),
        ("node a, nic mlx5_0", "pcie-link-degraded"),
    ];
    assert_eq!(
        short(&told),
        wanted.map(|(who, class)| (who.to_owned(), class.to_owned()))
    );
    machine.put("0000:c1:00.0", "current_link_width", "16\n");
    machine.put("0000:9b:00.0", "current_link_width", "16\n");
    assert!(machine.told(1).iter().all(|told| told.contains("| - |")));
    machine.put("0000:c1:00.0", "current_link_speed", "16.0 GT/s PCIe\n");
    let told = machine.told(5);
    assert!(told.len() == 1 && told[0].contains("pci.link_speed"), "{told:?}");
}

#[test]
fn a_card_in_a_narrow_slot_is_as_wide_as_it_can_be() {
    let mut machine = Machine::new();
    machine.port("0000:00:02.0", "max_link_width", "8\n");
    machine.put("0000:c1:00.0", "current_link_width", "8\n");
    // Link limits are read when the devices are listed.
    machine.tree = PciTree::new(machine.folder.path());
    assert_eq!(machine.told(5), [""; 0]);
}

#[test]
fn errors_of_either_end_are_told_as_they_grow_and_corrected_ones_by_their_rate() {
    let mut machine = Machine::new();
    machine.put("0000:c1:00.0", "aer_dev_nonfatal", "DLP 1\nTOTAL_ERR_NONFATAL 1\n");
    machine.port("0000:00:01.0", "aer_dev_fatal", "TLP 2\nTOTAL_ERR_FATAL 2\n");
    machine.put("0000:9b:00.0", "aer_dev_correctable", "BadTLP 599\nTOTAL_ERR_COR 599\n");
    let told = machine.told(1);
    let wanted = [
        ("node a, gpu 0000:9b:00", "pcie-error"),
        ("node a, nic mlx5_0", "pcie-error"),
    ];
    assert_eq!(
        short(&told),
        wanted.map(|(who, class)| (who.to_owned(), class.to_owned()))
    );
    machine.put("0000:9b:00.0", "aer_dev_correctable", "BadTLP 600\nTOTAL_ERR_COR 600\n");
    let told = machine.told(1);
    assert_eq!(short(&told)[0].1, "pcie-corrected-errors");
}

/// The kernel counts by type, and a new listing of the devices forgets nothing.
#[test]
fn a_finding_names_the_types_of_errors_that_have_grown() {
    let mut machine = Machine::new();
    machine.put(
        "0000:c1:00.0",
        "aer_dev_nonfatal",
        "DLP 1\nTLP 0\nTOTAL_ERR_NONFATAL 1\n",
    );
    assert_eq!(machine.types(), ["pci.nonfatal_errors: DLP 1"]);
    machine.port(
        "0000:00:01.0",
        "aer_dev_correctable",
        "RxErr 2\nBadTLP 50\nTOTAL_ERR_COR 52\n",
    );
    machine.told(40);
    machine.port(
        "0000:00:01.0",
        "aer_dev_correctable",
        "RxErr 2\nBadTLP 900\nTOTAL_ERR_COR 902\n",
    );
    assert_eq!(machine.types(), ["pci.port_corrected_errors: BadTLP 900, RxErr 2"]);
    machine.put(
        "0000:c1:00.0",
        "aer_dev_nonfatal",
        "DLP 1\nTLP 3\nTOTAL_ERR_NONFATAL 4\n",
    );
    assert_eq!(machine.types(), ["pci.nonfatal_errors: TLP 3"]);
}

/// Values that are negative, saturated, invalid, all ones or gone are unknown and not reported.
#[test]
fn bad_files_are_not_known() {
    let mut machine = Machine::new();
    for text in ["", "0\n", "63\n", "255\n", "-1\n", "x16\n", "\u{0}\u{fffd}"] {
        machine.put("0000:c1:00.0", "current_link_width", text);
        machine.put("0000:c1:00.0", "current_link_speed", "Unknown\n");
        assert_eq!(machine.told(3), [""; 0], "{text:?}");
    }
    for text in [
        "",
        "TOTAL_ERR_FATAL\n",
        "TOTAL_ERR_FATAL -1\n",
        "TOTAL_ERR_FATAL 99999999999999999999999\n",
    ] {
        machine.put("0000:c1:00.0", "aer_dev_fatal", text);
        assert_eq!(machine.told(2), [""; 0], "{text:?}");
    }
    fs::remove_dir_all(machine.folder.path().join("bus")).unwrap();
    fs::remove_dir_all(machine.folder.path().join("devices")).unwrap();
    for _ in 0..40 {
        assert_eq!(machine.told(1), [""; 0]);
    }
}
