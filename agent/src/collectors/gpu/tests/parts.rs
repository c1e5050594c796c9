//! MIG devices, through the real wrapper.

use super::*;
use crate::views::MigView;

/// The second device has three partitions; the driver numbers their GPU instances 7, 9 and 3.
const CUT: &str = "mig 0 0\nmig 1 1\nmig-devices 1 3\ngpu-instance 1/0 7\ngpu-instance 1/1 9\ncompute-instance 1/1 1\n\
                   memory 1/0 20000\nmemory-used 1/0 5000\necc 1/0 0\necc 1/1 2\nprocesses 1/0 1\nprocesses 1/1 0\n";

/// Waits until the agent's view of MIG devices satisfies `wanted`.
fn until(rig: &Rig, wanted: impl Fn(&[MigView]) -> bool) -> Vec<MigView> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let parts = rig.intake.board().read().mig_devices;
        if wanted(&parts) {
            return parts;
        }
        assert!(Instant::now() < deadline, "{parts:?}");
        rig.stop.wait(Duration::from_millis(2));
    }
}

#[test]
fn parts_are_devices_of_their_own_under_the_address_of_their_gpu() {
    let mut rig = Rig::with(&format!("{HEALTHY}{CUT}"));
    rig.settle();
    assert!(rig.told.is_empty(), "{:?}", rig.told);
    let parts = until(&rig, |parts| parts.len() == 3);
    let wanted = MigView {
        gpu: "0000:bb:00".to_owned(),
        address: "0000:bb:00/7/0".to_owned(),
        uuid: Some("MIG-00000001-0000-0000-0000-000000000000".to_owned()),
        memory_bytes: Some(20_000),
        memory_used_bytes: Some(5_000),
        ecc_uncorrected: Some(0),
        processes: Some(1),
        synthetic: false,
    };
    let mut addresses: Vec<&str> = parts.iter().map(|part| part.address.as_str()).collect();
    addresses.sort_unstable();
    assert_eq!(addresses, ["0000:bb:00/3/0", "0000:bb:00/7/0", "0000:bb:00/9/1"]);
    assert!(parts.contains(&wanted), "{parts:?}");
    // Values that the third does not report are unknown, which is not a fault.
    let bare = parts.iter().find(|part| part.address == "0000:bb:00/3/0");
    assert_eq!(bare.map(|part| (part.memory_bytes, part.processes)), Some((None, None)));
    rig.end();
}

#[test]
fn errors_of_a_part_are_its_own_finding() {
    let mut rig = Rig::with(&format!("{HEALTHY}{CUT}"));
    rig.settle();
    rig.now(&format!("{HEALTHY}{}", CUT.replace("ecc 1/1 2", "ecc 1/1 3")));
    assert_eq!(
        rig.told(1)[0],
        "node a, gpu 0000:bb:00/9/1 | gpu-ecc-uncorrectable | gpu.ecc_uncorrected 3"
    );
    rig.settle();
    assert_eq!(rig.told.len(), 1, "{:?}", rig.told);
    rig.end();
}

#[test]
fn a_part_that_is_removed_or_made_is_told_and_is_no_fault() {
    let mut rig = Rig::with(&format!("{HEALTHY}{CUT}"));
    rig.settle();
    rig.now(&format!(
        "{HEALTHY}{}",
        CUT.replace("mig-devices 1 3", "mig-devices 1 2")
    ));
    let uuid = "MIG-00000001-0000-0000-0000-000000000002";
    let about = format!("node a, gpu 0000:bb:00/3/0 | - | the MIG device 0000:bb:00/3/0 ({uuid}) is there");
    assert_eq!(rig.told(1)[0], format!("{about} no longer"));
    rig.now(&format!("{HEALTHY}{CUT}"));
    assert_eq!(rig.told(2)[1], about);
    // The MIG devices of a lost GPU disappear and return without reports of their own.
    rig.now(&format!("{HEALTHY}{CUT}error 1 15\n"));
    assert_eq!(
        rig.told(3)[2],
        "node a, gpu 0000:bb:00 | gpu-fallen-off-bus | gpu.lost 1"
    );
    rig.now(&format!("{HEALTHY}{CUT}"));
    assert_eq!(rig.told(4)[3], "node a, gpu 0000:bb:00 | - | gpu.lost 0");
    rig.settle();
    assert_eq!(rig.told.len(), 4, "{:?}", rig.told);
    rig.end();
}

/// A hung call on a MIG device is reported like any other, with its GPU.
#[test]
fn a_part_that_hangs_the_driver_is_named_by_the_call() {
    let mut rig = Rig::impatient(&format!("{HEALTHY}{CUT}"));
    rig.settle();
    rig.now(&format!("{HEALTHY}{CUT}hang compute-instance\n"));
    let told = rig.told(1)[0].clone();
    assert!(
        told.ends_with("in: read a MIG device's compute instance of device 0000:bb:00"),
        "{told}"
    );
    rig.end();
}
