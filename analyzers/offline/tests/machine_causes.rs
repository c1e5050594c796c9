//! Folders of logs: what a machine, its kernel or its scheduler reports beside the errors that follow from it.

use rankguard_model::Rank;
use rankguard_offline::OfflineCase;

use crate::folders::diagnose;

fn classes(cases: &[OfflineCase]) -> Vec<&str> {
    cases.iter().map(|case| case.class.as_str()).collect()
}

/// Returns true if a line of the reasoning has all parts.
fn has_reason(case: &OfflineCase, parts: &[&str]) -> bool {
    let mut reasons = case.reasoning.iter();
    reasons.any(|reason| parts.iter().all(|part| reason.contains(part)))
}

const RETRIES: &str = "NCCL WARN NET/IB : Got completion from peer 10.7.0.2<40112> with status=12 opcode=0 len=0 \
                       vendor err 129 (Send) hca mlx5_1";

#[test]
fn an_unplugged_cable_explains_the_failed_retries() {
    let losses = [
        "mlx5_core 0000:5e:00.0: Port module event: module 1, Cable unplugged",
        "infiniband mlx5_1: port 1 is DOWN",
        "mlx5_core 0000:5e:00.0 ibs3: Link down",
    ];
    for loss in losses {
        let kernel = format!("2026-05-02T08:00:02.000000+00:00 b7 kernel: {loss}\n");
        let rank = |rank: u32| {
            format!(
                "2026-05-02 08:00:00,000 INFO rank {rank} step 7\n2026-05-02 08:00:31,000 ERROR b{rank}:1:2 [0] {RETRIES}\n"
            )
        };
        let cases = diagnose(&[
            ("b7.kern.log", &kernel),
            ("rank0.log", &rank(0)),
            ("rank8.log", &rank(8)),
        ]);
        assert_eq!(classes(&cases), ["nic-link-down"], "{loss}");
        assert!(
            cases[0].blamed.starts_with("nic ") && cases[0].blamed.ends_with(" of node b7"),
            "{loss}: {}",
            cases[0].blamed
        );
        let follows = ["reports ib-rdma-error", "follows from it"];
        assert!(has_reason(&cases[0], &follows), "{loss}: {:?}", cases[0].reasoning);
    }
}

#[test]
fn a_port_without_a_cable_explains_no_other_failure() {
    // The adapter reports an empty port when its driver is loaded.
    let kernel = "2026-05-02T08:00:02.000000+00:00 b7 kernel: mlx5_core 0000:5e:00.0: Port module event: module 1, Cable \
                  unplugged\n";
    let program = "2026-05-02 08:00:00,000 INFO rank 0 step 7\n2026-05-02 08:00:31,000 ERROR rank 0 KeyError: 'f1'\n";
    let cases = diagnose(&[("b7.kern.log", kernel), ("rank0.log", program)]);
    assert_eq!(classes(&cases), ["key-error"]);
    let late = format!("2026-05-02 08:00:00,000 INFO rank 0 step 7\n2026-05-02 08:30:31,000 ERROR {RETRIES}\n");
    let cases = diagnose(&[("b7.kern.log", kernel), ("rank0.log", &late)]);
    assert!(classes(&cases).contains(&"ib-rdma-error"), "{:?}", classes(&cases));
}

#[test]
fn a_report_of_a_machine_does_not_follow_from_an_error_of_a_connection() {
    let kernel = "2026-05-02T08:00:02.000000+00:00 b7 kernel: mlx5_core 0000:5e:00.0: Port module event: module 1, Cable \
                  unplugged\n";
    let rank = format!("rank 0 step 7\n{RETRIES}\n");
    let cases = diagnose(&[("b7.kern.log", kernel), ("rank0.log", &rank)]);
    let with_link = cases.iter().find(|case| has_reason(case, &["nic-link-down"])).unwrap();
    assert!(
        !has_reason(with_link, &["nic-link-down", "follows from it and"]),
        "{:?}",
        with_link.reasoning
    );
    assert!(
        has_reason(with_link, &["nic-link-down", "does not follow from it"]),
        "{:?}",
        with_link.reasoning
    );
}

#[test]
fn a_bond_without_an_interface_follows_from_the_link_of_its_last_one() {
    let links = [
        "bnxt_en 0000:31:00.0 ens1f0np0: NIC Link is Down",
        "mlx5_core 0000:31:00.0 ens1f0np0: Link down",
    ];
    let rank = "2026-05-02 08:00:00,000 INFO step 7\n2026-05-02 08:00:39,000 ERROR torch.distributed.DistNetworkError: The \
                client socket has timed out after 30000ms while trying to connect to (b7, 29500).\n";
    for link in links {
        let kernel = format!(
            "2026-05-02T08:00:02.000000+00:00 b7 kernel: {link}\n2026-05-02T08:00:02.100000+00:00 b7 kernel: bond0: (slave \
             ens1f0np0): link status definitely down, disabling slave\n2026-05-02T08:00:02.200000+00:00 b7 kernel: bond0: \
             now running without any active interface!\n"
        );
        let cases = diagnose(&[("b7.kern.log", &kernel), ("rank0.log", rank)]);
        assert_eq!(classes(&cases), ["nic-link-down"], "{link}");
        assert_eq!(cases[0].blamed, "nic ens1f0np0 of node b7", "{link}");
        assert!(
            !has_reason(&cases[0], &["does not explain it"]),
            "{link}: {:?}",
            cases[0].reasoning
        );
        assert!(
            has_reason(&cases[0], &["reports nic-fault", "confirms it"]),
            "{link}: {:?}",
            cases[0].reasoning
        );
    }
}
