#![allow(clippy::unwrap_used)]

use super::*;

/// Builds a sysfs tree with one RDMA device and one interface.
fn fixture() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let port = dir.path().join("class/infiniband/mlx5_0/ports/1");
    fs::create_dir_all(port.join("counters")).unwrap();
    fs::create_dir_all(port.join("hw_counters")).unwrap();
    fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
    fs::write(port.join("rate"), "400 Gb/sec (4X NDR)\n").unwrap();
    fs::write(port.join("counters/link_downed"), "3\n").unwrap();
    fs::write(port.join("counters/symbol_error"), "0\n").unwrap();
    fs::write(port.join("hw_counters/packet_seq_err"), "garbage\n").unwrap();
    let interface = dir.path().join("class/net/ens1");
    fs::create_dir_all(interface.join("device")).unwrap();
    fs::write(interface.join("operstate"), "up\n").unwrap();
    fs::write(interface.join("carrier_changes"), "7\n").unwrap();
    let veth = dir.path().join("class/net/veth12");
    fs::create_dir_all(&veth).unwrap();
    fs::write(veth.join("operstate"), "up\n").unwrap();
    dir
}

/// Returns the first poll of a new tree.
fn look(sysfs: &Path) -> NicValues {
    again(&mut AdapterTree::new(sysfs))
}

fn again(tree: &mut AdapterTree) -> NicValues {
    tree.refresh();
    tree.values()
}

fn check(change: impl FnOnce(&Path), expect: &[(&str, &str, f64, Option<&str>)]) {
    let dir = fixture();
    let mut tree = AdapterTree::new(dir.path());
    let before = again(&mut tree);
    change(&dir.path().join("class"));
    let found = changes(&before, &again(&mut tree));
    let told: Vec<_> = found
        .iter()
        .map(|c| {
            let class = c.marks.first().map(|mark| mark.class.as_str());
            (c.device.as_str(), c.metric.as_str(), c.value, class)
        })
        .collect();
    assert_eq!(told, expect);
}

#[test]
fn a_quiet_adapter_is_no_news() {
    check(|_| {}, &[]);
}

#[test]
fn a_look_is_different_when_a_value_is() {
    let dir = fixture();
    let mut tree = AdapterTree::new(dir.path());
    assert!(tree.refresh() && !tree.refresh());
    let state = dir.path().join("class/infiniband/mlx5_0/ports/1/state");
    fs::write(&state, "1: DOWN\n").unwrap();
    assert!(tree.refresh() && !tree.refresh());
    fs::write(&state, "").unwrap();
    assert!(tree.refresh() && !tree.refresh());
    fs::remove_dir_all(dir.path().join("class/net/ens1")).unwrap();
    assert!(tree.refresh());
}

#[test]
fn a_port_that_leaves_active_is_down_and_its_counter_a_flap() {
    check(
        |class| {
            fs::write(class.join("infiniband/mlx5_0/ports/1/state"), "1: DOWN\n").unwrap();
            fs::write(class.join("infiniband/mlx5_0/ports/1/counters/link_downed"), "4\n").unwrap();
        },
        &[
            ("mlx5_0", "nic.link_downed port 1", 4.0, Some("nic-link-flap")),
            ("mlx5_0", "nic.port_state port 1", 1.0, Some("nic-link-down")),
        ],
    );
}

#[test]
fn a_counter_at_the_end_of_its_range_is_not_known() {
    check(
        |class| {
            let counters = class.join("infiniband/mlx5_0/ports/1/counters");
            fs::write(counters.join("symbol_error"), "4294967295\n").unwrap();
        },
        &[],
    );
}

#[test]
fn a_value_that_could_not_be_read_once_is_compared_with_the_one_before() {
    let dir = fixture();
    let counter = dir.path().join("class/infiniband/mlx5_0/ports/1/counters/link_downed");
    let first = look(dir.path());
    fs::remove_file(&counter).unwrap();
    let second = look(dir.path());
    assert_eq!(changes(&first, &second), []);
    let known = remember(first, second);
    fs::write(&counter, "4\n").unwrap();
    let found = changes(&known, &look(dir.path()));
    assert_eq!((found.len(), found[0].value), (1, 4.0));
}

#[test]
fn a_symbol_error_is_a_sample_and_a_reset_counter_is_nothing() {
    check(
        |class| {
            fs::write(class.join("infiniband/mlx5_0/ports/1/counters/symbol_error"), "2\n").unwrap();
            fs::write(class.join("infiniband/mlx5_0/ports/1/counters/link_downed"), "0\n").unwrap();
        },
        &[("mlx5_0", "nic.symbol_error port 1", 2.0, None)],
    );
}

#[test]
fn an_interface_goes_down_and_virtual_ones_do_not_count() {
    check(
        |class| {
            fs::write(class.join("net/ens1/operstate"), "down\n").unwrap();
            fs::write(class.join("net/veth12/operstate"), "down\n").unwrap();
        },
        &[("ens1", "nic.operstate_up", 0.0, Some("nic-link-down"))],
    );
}

#[test]
fn an_adapter_that_vanishes_is_a_fault() {
    check(
        |class| fs::remove_dir_all(class.join("infiniband/mlx5_0")).unwrap(),
        &[("mlx5_0", "nic.present", 0.0, Some("nic-fault"))],
    );
}

#[test]
fn an_adapter_that_comes_is_seen_at_the_next_look_and_a_port_of_a_known_one_at_the_next_listing() {
    let dir = fixture();
    let rdma = dir.path().join("class/infiniband");
    let mut tree = AdapterTree::new(dir.path());
    assert_eq!(again(&mut tree).len(), 2);
    fs::create_dir_all(rdma.join("mlx5_1")).unwrap();
    fs::write(rdma.join("mlx5_1/hca_type"), "MT4129\n").unwrap();
    assert_eq!(again(&mut tree).get("mlx5_1"), Some(&BTreeMap::new()));
    assert_eq!(tree.models()["mlx5_1"], "MT4129");
    fs::create_dir_all(rdma.join("mlx5_1/ports/1")).unwrap();
    fs::write(rdma.join("mlx5_1/ports/1/state"), "4: ACTIVE\n").unwrap();
    let looks = (0..20).position(|_| !again(&mut tree)["mlx5_1"].is_empty());
    assert!(looks.is_some_and(|looks| looks < 10), "{looks:?}");
}

#[test]
fn files_that_vanish_between_two_looks_are_not_known_and_harm_nothing() {
    let dir = fixture();
    let mut tree = AdapterTree::new(dir.path());
    let before = again(&mut tree);
    fs::remove_dir_all(dir.path().join("class/infiniband/mlx5_0/ports")).unwrap();
    let after = (0..20).map(|_| again(&mut tree)).last().unwrap();
    assert_eq!(after["mlx5_0"], BTreeMap::new());
    assert_eq!((changes(&before, &after), lost(&before, &after)), (vec![], vec![]));
    fs::remove_dir_all(dir.path().join("class")).unwrap();
    assert_eq!(again(&mut tree), NicValues::new());
}

#[test]
fn a_negative_counter_is_not_known() {
    check(
        |class| fs::write(class.join("infiniband/mlx5_0/ports/1/counters/link_downed"), "-1\n").unwrap(),
        &[],
    );
}

#[test]
fn every_class_that_is_marked_stands_in_the_catalogue() {
    let known = rankguard_faults::Catalogue::builtin();
    for class in [
        "nic-link-down",
        "nic-link-flap",
        "nic-fault",
        "network-slow",
        "network-packet-error",
        "disk-full",
        "gpu-thermal",
        "power-fault",
        "gpu-ecc-uncorrectable",
        "gpu-row-remap-pending",
        "gpu-row-remap-failure",
        "gpu-fallen-off-bus",
        "gpu-driver-fault",
    ] {
        assert!(known.class(&rankguard_model::ClassId::from(class)).is_some(), "{class}");
    }
}

#[test]
fn a_counter_that_ends_or_goes_back_is_a_gap() {
    let dir = fixture();
    let before = look(dir.path());
    let counters = dir.path().join("class/infiniband/mlx5_0/ports/1/counters");
    fs::write(counters.join("symbol_error"), "4294967295\n").unwrap();
    fs::write(counters.join("link_downed"), "1\n").unwrap();
    let now = look(dir.path());
    let told = lost(&before, &now);
    let wanted = [
        "nic.symbol_error port 1 of mlx5_0 stands at the end of its range and counts no more until it is reset",
        "counters of mlx5_0 were reset: nic.link_downed port 1 from 3 to 1; what they missed is not known",
    ];
    assert_eq!(told.iter().map(|(_, what)| what.as_str()).collect::<Vec<_>>(), wanted);
    // The counter does not move: no new report, and its value after a reset is not growth.
    let known = remember(before, now);
    assert_eq!(lost(&known, &look(dir.path())), []);
    fs::write(counters.join("symbol_error"), "5\n").unwrap();
    assert_eq!(changes(&known, &look(dir.path())), []);
}

#[test]
fn statistics_of_drivers_are_judged_by_their_names() {
    let at = |counter: &str, value: f64| {
        NicValues::from([("ens1".to_owned(), BTreeMap::from([(format!("nic.{counter}"), value)]))])
    };
    let class = |counter: &str| {
        let found = changes(&at(counter, 7.0), &at(counter, 8.0));
        found
            .first()
            .map(|change| change.marks.first().map(|mark| mark.class.to_string()))
    };
    assert_eq!(class("tx_pause_storm_error_events"), Some(Some("nic-fault".to_owned())));
    assert_eq!(class("link_down_events_phy"), Some(Some("nic-link-flap".to_owned())));
    assert_eq!(class("rx_discards_phy"), Some(None));
    assert_eq!(class("rx_prio3_pause_duration"), None);
    assert!(is_wanted("rx_prio3_pause_duration") && is_wanted("rx_crc_errors_phy") && !is_wanted("rx_bytes"));
}
