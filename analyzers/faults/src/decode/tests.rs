//! Messages as drivers print them, in the forms of public logs and of fixtures of other projects.

use rankguard_model::{ClassId, Role};

use super::{DecodedMessage, DriverVersion, decode};
use crate::Catalogue;
use crate::signature::CodeKind;

fn xid(number: u32, text: &str) -> DecodedMessage {
    decode(Catalogue::builtin().xids(), CodeKind::Xid, number, text, None)
}

fn with_driver(number: u32, text: &str, driver: &str) -> DecodedMessage {
    decode(
        Catalogue::builtin().xids(),
        CodeKind::Xid,
        number,
        text,
        DriverVersion::parse(driver),
    )
}

fn sxid(number: u32, text: &str) -> DecodedMessage {
    decode(Catalogue::builtin().sxids(), CodeKind::Sxid, number, text, None)
}

fn check(decoded: &DecodedMessage, fields: &[(&str, &str)]) {
    for (name, value) in fields {
        assert_eq!(
            decoded.fields.get(*name).map(String::as_str),
            Some(*value),
            "{name} of {decoded:?}"
        );
    }
}

#[test]
fn driver_versions_are_read_from_the_lines_that_modules_write() {
    let check = |text: &str, expect: &str| {
        assert_eq!(
            DriverVersion::parse(text).map(|version| version.to_string()).as_deref(),
            Some(expect),
            "{text}"
        );
    };
    check("570.86.15", "570.86.15");
    check(
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.20  Release Build  (builder@535ef2dedada)  Mon May 11 08:47:15 UTC 2026",
        "580.126.20",
    );
    check(
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024",
        "550.144.03",
    );
    check(
        "[    4.149195] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  430.50  Thu Sep  5 22:36:31 CDT 2019",
        "430.50",
    );
    check(
        "NVRM version: NVIDIA UNIX aarch64 Kernel Module  575.57.08  Sat May 24 07:00:00 UTC 2025",
        "575.57.08",
    );
    for text in [
        "",
        "570",
        "12.4.1",
        "NVIDIA UNIX Kernel Module",
        "1.2.3.4",
        "NVRM: loading NVIDIA UNIX 99999999999.1",
    ] {
        assert_eq!(DriverVersion::parse(text), None, "{text}");
    }
    assert!(DriverVersion::parse("570.86.15") < DriverVersion::parse("575.51.03"));
}

#[test]
fn registers_of_an_older_link_become_named_bits() {
    let hardware = xid(
        74,
        "NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    );
    check(
        &hardware,
        &[("link", "6"), ("bits", "reg0.bit16:hardware"), ("error", "hardware")],
    );
    assert_eq!(
        (hardware.class.as_str(), hardware.role),
        ("gpu-nvlink-error", Role::Root)
    );
    assert!(hardware.confidence > 0.9 && hardware.vendor_action.contains("re-seat"));

    let third = xid(
        74,
        "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    );
    check(&third, &[("link", "14"), ("bits", "reg2.bit16:link-error")]);

    let secondary = xid(
        74,
        "NVRM: Xid (PCI:0000:D8:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14(0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    );
    check(&secondary, &[("bits", "reg0.bit20:secondary"), ("sympathetic", "yes")]);
    assert!(secondary.confidence < hardware.confidence);

    let several = xid(
        74,
        "NVLink: fatal error detected on link 3(0x100010, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0)",
    );
    check(
        &several,
        &[
            (
                "bits",
                "reg0.bit4:ecc-parity reg0.bit20:secondary reg4.bit20:ecc-threshold",
            ),
            ("error", "ecc-parity"),
        ],
    );
    assert_eq!(xid(74, "link 1(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)").fields.len(), 0);
    let ignorable = xid(74, "detected on link 1(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)");
    assert_eq!(ignorable.role, Role::Noise);
    let unexplained = xid(74, "detected on link 1(0x0, 0xff, 0x0, 0x0, 0x0, 0xff, 0x1)");
    check(&unexplained, &[("link", "1")]);
    assert!(!unexplained.fields.contains_key("bits"));
    check(&xid(74, "NVLink: fatal error detected on link 2"), &[("link", "2")]);
}

#[test]
fn first_layout_of_nvlink5_is_read_before_r575() {
    let down =
        "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)";
    for decoded in [xid(149, down), with_driver(149, down, "570.86.15")] {
        check(
            &decoded,
            &[
                ("layout", "v1"),
                ("unit", "NETIR_LINK_EVT"),
                ("link", "8"),
                ("subcode", "4"),
                ("severity", "fatal"),
                ("origin", "hardware"),
            ],
        );
        assert_eq!((decoded.class.as_str(), decoded.role), ("gpu-nvlink-error", Role::Root));
        assert_eq!(decoded.vendor_action, "RESET_GPU; then INVESTIGATE_LINK_SI");
        assert!(!decoded.fields.contains_key("unit_mismatch"));
    }
    let peer = xid(
        149,
        "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    );
    check(&peer, &[("link", "9"), ("subcode", "37"), ("blame", "peer")]);
    let rate = xid(
        149,
        "149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)",
    );
    check(
        &rate,
        &[
            ("layout", "v1"),
            ("unit", "NETIR_BER_EVENT"),
            ("link", "3"),
            ("severity", "non-fatal"),
        ],
    );
    assert_eq!(rate.role, Role::Confirmation);
}

#[test]
fn second_layout_of_nvlink5_is_read_from_r575_on() {
    let tracked = "145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 17 (0x04084507 0x00000004 0x00000000 0x00000000)";
    for decoded in [xid(145, tracked), with_driver(145, tracked, "580.126.20")] {
        check(
            &decoded,
            &[
                ("layout", "v2"),
                ("unit", "RLW_SRC_TRACK"),
                ("link", "17"),
                ("error_status", "0x00000004"),
            ],
        );
        assert_eq!(decoded.vendor_action, "XID_154_EVAL; then IGNORE");
        assert!(!decoded.fields.contains_key("unit_mismatch"));
    }
    let cases = [
        (
            144,
            "SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x00000002 0x00000000 0x00000000)",
            Role::Root,
            "RESET_GPU; then CONTACT_SUPPORT",
        ),
        (
            144,
            "SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000001 0x00000001 0x0 0x0)",
            Role::Confirmation,
            "IGNORE; then CONTACT_SUPPORT",
        ),
        (
            145,
            "RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040 0x0 0x0)",
            Role::Root,
            "RESET_GPU; then CONTACT_SUPPORT",
        ),
        (
            145,
            "RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000100 0x0 0x0)",
            Role::Noise,
            "IGNORE",
        ),
        (
            145,
            "RLW_CTRL Nonfatal XC0 i0 Link 00 (0x00000003 0x80000000 0x0 0x0)",
            Role::Confirmation,
            "IGNORE; then CONTACT_SUPPORT",
        ),
        (
            146,
            "TLW_RX/TLW_RX_PIPE1 Fatal XC0 i0 Link 00 (0x0000000b 0x00000004 0x0 0x0)",
            Role::Root,
            "RESET_GPU; then CONTACT_SUPPORT",
        ),
        (
            147,
            "TREX Nonfatal XC0 i0 Link 00 (0x0000000e 0x00000001 0x0 0x0)",
            Role::Confirmation,
            "IGNORE; then CONTACT_SUPPORT",
        ),
        (
            148,
            "NVLPW_CTRL/NVLPW Nonfatal XC0 i0 Link 00 (0x0000000f 0x80000000 0x0 0x0)",
            Role::Confirmation,
            "IGNORE; then CONTACT_SUPPORT",
        ),
        (
            149,
            "NETIR/NETIR_INT Fatal XC0 i0 Link 00 (0x00000018 0x00000000 0x0 0x0)",
            Role::Root,
            "RESET_GPU; then SYMPATHETIC_REPORT_SOLO",
        ),
        (
            149,
            "NETIR_LINK_EVT/NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x02500011 0x00000000 0x0 0x0)",
            Role::Root,
            "RESET_GPU; then INVESTIGATE_PEER_DEVICE",
        ),
        (
            149,
            "NETIR_MFDE_EVENT Nonfatal XC0 i0 Link 00 (0x00000014 0x00000003 0x0 0x0)",
            Role::Noise,
            "IGNORE",
        ),
        (
            150,
            "MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000000 0x0 0x0)",
            Role::Root,
            "RESET_GPU; then CONTACT_SUPPORT",
        ),
    ];
    for (number, text, role, action) in cases {
        let decoded = with_driver(number, &format!("{number}, pid=12, name=python, {text}"), "580.65.06");
        assert_eq!(
            (decoded.role, decoded.vendor_action.as_str()),
            (role, action),
            "{text}: {decoded:?}"
        );
        assert!(!decoded.fields.contains_key("unit_mismatch"), "{text}: {decoded:?}");
    }
}

#[test]
fn a_wrong_layout_shows_as_a_mismatch_and_the_mnemonic_wins() {
    let text = "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)";
    let decoded = with_driver(149, text, "580.65.06");
    check(
        &decoded,
        &[
            ("layout", "v2"),
            ("unit", "NETIR_LINK_EVT"),
            ("link", "8"),
            ("unit_mismatch", "70"),
        ],
    );
}

#[test]
fn a_cut_nvlink5_message_says_what_it_still_holds() {
    let bare = xid(149, "149, NETIR_INT  Fatal   XC0 i0 Link -1");
    check(&bare, &[("unit", "NETIR_INT"), ("severity", "fatal")]);
    assert!(!bare.fields.contains_key("link"), "{bare:?}");
    assert_eq!(bare.role, Role::Root);
    let cut = xid(149, "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6");
    check(&cut, &[("layout", "v1"), ("link", "8")]);
    let none = xid(149, "149, something new");
    assert!(none.fields.is_empty());
    assert_eq!(none.class, ClassId::from("gpu-nvlink-error"));
}

#[test]
fn a_bit_among_others_counts_with_its_worst() {
    let both = with_driver(
        145,
        "145, RLW_REMAP Fatal XC0 i0 Link 02 (0x00000804 0x00000141 0x0)",
        "580.65.06",
    );
    check(&both, &[("link", "2"), ("severity", "fatal"), ("origin", "hardware")]);
    assert_eq!(both.role, Role::Root);
}

#[test]
fn the_driver_says_which_recovery_it_needs() {
    let check_action = |text: &str, recovery: &str, role: Role| {
        let decoded = xid(154, text);
        check(&decoded, &[("recovery", recovery)]);
        assert_eq!(decoded.role, role, "{text}");
    };
    check_action(
        "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        "gpu-reset",
        Role::Confirmation,
    );
    check_action(
        "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        "node-reboot",
        Role::Confirmation,
    );
    check_action(
        "154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)",
        "node-reboot",
        Role::Confirmation,
    );
    check_action(
        "154, GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)",
        "gpu-reset",
        Role::Confirmation,
    );
    check_action(
        "154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)",
        "drain-p2p",
        Role::Confirmation,
    );
    check_action(
        "154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
        "drain-and-reset",
        Role::Confirmation,
    );
    check_action(
        "154, GPU recovery action changed from 0x0 (None) to 0x4",
        "drain-and-reset",
        Role::Confirmation,
    );
    for (to, recovery) in [
        ("0x5 (Recover IMEX Domain)", "recover-imex-domain"),
        ("0x5", "recover-imex-domain"),
        ("0x6 (Bus Reset)", "bus-reset"),
        ("0x6", "bus-reset"),
        ("0x7 (System Reboot)", "system-reboot"),
        ("0x7", "system-reboot"),
    ] {
        check_action(
            &format!("154, GPU recovery action changed from 0x0 (None) to {to}"),
            recovery,
            Role::Confirmation,
        );
    }
    check_action(
        "154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)",
        "none",
        Role::Noise,
    );
    assert!(
        xid(154, "154, GPU recovery action changed from 0x0 (None) to 0x9")
            .fields
            .is_empty()
    );
}

#[test]
fn memory_messages_name_row_page_unit_and_reset() {
    let row = xid(
        63,
        "63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
    );
    check(&row, &[("unit", "row"), ("pending", "reset")]);
    let addressed = xid(
        63,
        "63, pid=2187734, name=python, Row Remapper: New row (0x0000000e9b9107e0) marked for remapping, reset gpu to activate.",
    );
    check(&addressed, &[("address", "0x0000000e9b9107e0")]);
    let page = xid(
        63,
        "63, Dynamic Page Retirement: New page retired, reboot to activate (0x000000000020e4c4)",
    );
    check(
        &page,
        &[
            ("unit", "page"),
            ("pending", "reboot"),
            ("address", "0x000000000020e4c4"),
        ],
    );
    assert_eq!(
        xid(64, "64, Row Remapper: Error writing entry").class,
        ClassId::from("gpu-row-remap-failure")
    );
    let dbe = xid(
        48,
        "48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 6, subpartition 0.",
    );
    check(
        &dbe,
        &[("memory", "framebuffer"), ("partition", "6"), ("subpartition", "0")],
    );
    let contained = xid(94, "94, pid=1, name=python, Contained: SM (0x1). RST: No, D-RST: No");
    check(
        &contained,
        &[("unit", "SM"), ("reset", "no"), ("drain_and_reset", "no")],
    );
    let uncontained = xid(
        95,
        "95, pid=1, name=python, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    );
    check(
        &uncontained,
        &[("unit", "LTC TAG"), ("reset", "yes"), ("drain_and_reset", "no")],
    );
    assert!(
        uncontained.sentence.contains("asks for reset"),
        "{}",
        uncontained.sentence
    );
    check(&xid(172, "172, uncorrectable"), &[("memory", "SRAM")]);
}

#[test]
fn engine_messages_name_unit_address_and_call() {
    let exception = xid(
        13,
        "13, pid=4231, name=python, Graphics SM Warp Exception on (GPC 3, TPC 2, SM 1): Out Of Range Address",
    );
    check(
        &exception,
        &[
            ("gpc", "3"),
            ("tpc", "2"),
            ("sm", "1"),
            ("exception", "Out Of Range Address"),
        ],
    );
    let whole = xid(
        13,
        "kernel: NVRM: Xid (PCI:0000:38:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception: ESR 0x546fb0=0x11f000e 0x546fb4=0x24",
    );
    check(&whole, &[("esr", "0x546fb0=0x11f000e 0x546fb4=0x24")]);
    assert!(!whole.fields.contains_key("exception"));
    let fault = xid(
        31,
        "31, pid=2164, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7fc1_4e000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    );
    check(
        &fault,
        &[
            ("engine", "GRAPHICS"),
            ("client", "GPCCLIENT_T1_0"),
            ("address", "0x7fc14e000000"),
            ("fault", "FAULT_PDE"),
        ],
    );
    assert_eq!(fault.sentence, "page fault: read of an address that is not mapped");
    check(
        &xid(45, "45, pid=1, name=python, Ch 0000000c"),
        &[("channel", "0000000c")],
    );
    let gsp = xid(
        119,
        "119, pid=1263500, name=cache_mgr_main, Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801813 0x4c).",
    );
    check(
        &gsp,
        &[
            ("timeout_s", "6"),
            ("gpu_index", "4"),
            ("function", "76"),
            ("function_name", "GSP_RM_CONTROL"),
            ("arguments", "0x20801813 0x4c"),
        ],
    );
    let crash = xid(
        120,
        "120, pid=2702, name=Xorg, GSP task exception: supervisor timer interrupt (cause:0x8000000000000005)",
    );
    check(
        &crash,
        &[
            ("exception", "supervisor timer interrupt"),
            ("cause", "0x8000000000000005"),
        ],
    );
}

#[test]
fn switch_events_name_port_and_reach() {
    let stall = sxid(
        12028,
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
    );
    check(&stall, &[("severity", "non-fatal"), ("port", "32"), ("first", "yes")]);
    let down = sxid(20034, "20034, Fatal, Link 30 LTSSM Fault Up");
    check(&down, &[("severity", "fatal"), ("port", "30")]);
    assert_eq!(down.role, Role::Root);
    let continued = sxid(20034, "20034, Severity 1 Engine instance 60 Sub-engine instance 00");
    assert_eq!(continued.role, Role::Noise);
    let unknown = sxid(99999, "99999, Non-fatal, Link 3 something");
    assert_eq!(
        (unknown.class.as_str(), unknown.role),
        ("unknown-sxid-99999", Role::Confirmation)
    );
}

#[test]
fn a_number_that_nobody_knows_keeps_it_in_its_name() {
    let decoded = xid(9999, "9999, pid=1, something");
    assert_eq!(decoded.class, ClassId::from("unknown-xid-9999"));
    assert!(decoded.fields.is_empty() && decoded.vendor_action.is_empty());
}

proptest::proptest! {
    #[test]
    fn foreign_text_never_panics(number in 0_u32..200, text in "\\PC{0,200}", tail in "(on link [0-9]{1,22}\\()?(0x[0-9a-f]{0,12}[, ]{0,3}){0,9}") {
        let text = format!("{number}, {text} {tail}");
        let decoded = xid(number, &text);
        proptest::prop_assert!((0.0..=1.0).contains(&decoded.confidence));
        sxid(number, &text);
        DriverVersion::parse(&text);
    }

    #[test]
    fn any_words_of_a_known_unit_are_decoded(
        xid_number in 144_u32..=150,
        unit in proptest::sample::select(vec!["SAW_MVB", "RLW_REMAP", "TLW_RX/TLW_RX_PIPE0", "TREX", "NVLPW_CTRL", "NETIR_LINK_EVT", "MSE_WATCHDOG"]),
        info: u32,
        status: u32,
        branch in 500_u32..700,
    ) {
        let text = format!("{unit} Fatal XC0 i0 Link 05 ({info:#010x} {status:#010x})");
        let decoded = with_driver(xid_number, &text, &format!("{branch}.10.01"));
        proptest::prop_assert!(decoded.fields.get("link").is_none_or(|link| link == "5"));
    }
}

#[test]
fn a_channel_torn_down_because_of_another_event_speaks_of_that_event() {
    let torn = xid(45, "45, pid=4711, name=python3, Ch 00000001 caused by previous Xid 149");
    let cause = xid(149, "149");
    check(&torn, &[("channel", "00000001"), ("caused_by", "149")]);
    assert_eq!((&torn.class, torn.role), (&cause.class, cause.role));
    assert!(torn.confidence < cause.confidence, "it is told second-hand");
    assert_eq!(xid(45, "45, pid=4711, name=python3, Ch 00000008").role, Role::Cascade);
}
