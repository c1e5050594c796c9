//! The vendor's table of NVLink 5 errors: unit and status (link events: subcode) to severity and actions.
//!
//! From the sheet "XID 144-150 Decode" of the XID catalog of October 2025. Status words are bit sets; units marked
//! `exact` use them as numbers.

/// Severity of an NVLink 5 error, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkSeverity {
    /// Ignored by the vendor's table.
    Ignored,
    /// The link continues.
    NonFatal,
    /// The link is down.
    LinkFatal,
    /// The GPU must be reset.
    Fatal,
}

impl LinkSeverity {
    pub(super) fn is_fatal(self) -> bool {
        self >= Self::LinkFatal
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ignored => "ignorable",
            Self::NonFatal => "non-fatal",
            Self::LinkFatal => "link-fatal",
            Self::Fatal => "fatal",
        }
    }
}

/// Meaning of one status value or subcode.
#[derive(Debug)]
pub(super) struct StatusRule {
    /// Bits of the status, or the subcode of a link event.
    code: u32,
    pub(super) severity: LinkSeverity,
    /// `hardware`, `software`, `firmware`, a combination, or `not said`.
    pub(super) origin: &'static str,
    immediate: &'static str,
    pub(super) investigate: &'static str,
}

impl StatusRule {
    /// Returns the vendor's immediate action, then its investigation step.
    pub(super) fn action(&self) -> String {
        if self.immediate == self.investigate {
            return self.immediate.to_owned();
        }
        format!("{}; then {}", self.immediate, self.investigate)
    }
}

/// Unit of the link hardware.
#[derive(Debug)]
pub(super) struct LinkUnit {
    pub(super) xid: u32,
    /// Unit name in the vendor's table.
    pub(super) name: &'static str,
    /// Unit names in messages.
    pub(super) names: &'static [&'static str],
    /// Unit number before driver R575.
    pub(super) first: u32,
    /// Unit number from driver R575 on.
    pub(super) second: u32,
    /// True if the rules match the subcode of the first word, not the status.
    pub(super) by_subcode: bool,
    /// True if status words are numbers, not bit sets.
    exact: bool,
    rules: &'static [StatusRule],
}

impl LinkUnit {
    /// Returns true if the mnemonic of a message names this unit; the mnemonic may be `GROUP/UNIT`.
    pub(super) fn is_called(&self, printed: &str) -> bool {
        printed == self.name
            || printed
                .split('/')
                .next_back()
                .is_some_and(|last| self.names.contains(&last))
    }

    /// Returns the most severe rule that matches.
    pub(super) fn rule(&self, status: u32, subcode: u32) -> Option<&'static StatusRule> {
        if self.by_subcode {
            return self.rules.iter().find(|rule| rule.code == subcode);
        }
        if self.exact {
            return self.rules.iter().find(|rule| rule.code == status);
        }
        let holds = |rule: &&StatusRule| rule.code == status || (rule.code != 0 && status & rule.code == rule.code);
        self.rules
            .iter()
            .chain([&SOFTWARE])
            .filter(holds)
            .max_by_key(|rule| rule.severity)
    }
}

/// Rule for all units: an error that software injected or defined.
static SOFTWARE: StatusRule = rule(
    0x8000_0000,
    LinkSeverity::NonFatal,
    "software",
    "IGNORE",
    "CONTACT_SUPPORT",
);

const fn rule(
    code: u32,
    severity: LinkSeverity,
    origin: &'static str,
    immediate: &'static str,
    investigate: &'static str,
) -> StatusRule {
    StatusRule {
        code,
        severity,
        origin,
        immediate,
        investigate,
    }
}

const fn ignored(code: u32) -> StatusRule {
    rule(code, LinkSeverity::Ignored, "hardware", "IGNORE", "IGNORE")
}

const fn quiet(code: u32, origin: &'static str) -> StatusRule {
    rule(code, LinkSeverity::NonFatal, origin, "IGNORE", "CONTACT_SUPPORT")
}

const fn ask(code: u32, origin: &'static str, investigate: &'static str) -> StatusRule {
    rule(code, LinkSeverity::NonFatal, origin, "XID_154_EVAL", investigate)
}

const fn fatal(code: u32, origin: &'static str) -> StatusRule {
    rule(code, LinkSeverity::Fatal, origin, "RESET_GPU", "CONTACT_SUPPORT")
}

const fn down(code: u32, origin: &'static str, investigate: &'static str) -> StatusRule {
    rule(code, LinkSeverity::LinkFatal, origin, "RESET_GPU", investigate)
}

const HW: &str = "hardware";
const SW: &str = "software";
const BOTH: &str = "hardware or software";

static SAW: [StatusRule; 6] = [
    quiet(0x1, HW),
    fatal(0x2, HW),
    ignored(0x4),
    quiet(0x8, HW),
    fatal(0x10, HW),
    ignored(0x20),
];

static REMAP: [StatusRule; 10] = [
    ask(0x1, SW, "CONTACT_SUPPORT"),
    ask(0x2, SW, "CONTACT_SUPPORT"),
    ask(0x4, SW, "CHECK_NVLINK_FAILURE_FLOW"),
    ask(0x8, SW, "CHECK_NVLINK_FAILURE_FLOW"),
    ask(0x10, SW, "CHECK_NVLINK_FAILURE_FLOW"),
    ask(0x20, SW, "CHECK_NVLINK_FAILURE_FLOW"),
    fatal(0x40, HW),
    fatal(0x80, HW),
    ignored(0x100),
    ignored(0x200),
];

static RSPCOL: [StatusRule; 2] = [ignored(0x1), fatal(0x2, HW)];

static RXPIPE: [StatusRule; 4] = [
    rule(0x1, LinkSeverity::NonFatal, SW, "IGNORE", "CONTACT_SUPPORT, RESET_GPU"),
    rule(0x2, LinkSeverity::NonFatal, SW, "IGNORE", "CONTACT_SUPPORT, RESET_GPU"),
    rule(0x4, LinkSeverity::NonFatal, SW, "IGNORE", "CONTACT_SUPPORT, RESET_GPU"),
    quiet(0x8, BOTH),
];

static SRC_TRACK: [StatusRule; 6] = [
    fatal(0x1, HW),
    ignored(0x2),
    ask(0x4, BOTH, "IGNORE"),
    ask(0x8, BOTH, "IGNORE"),
    fatal(0x10, HW),
    fatal(0x20, HW),
];

static TAGSTATE: [StatusRule; 5] = [
    ignored(0x1),
    fatal(0x2, HW),
    ignored(0x1_0000),
    fatal(0x2_0000, HW),
    fatal(0x10_0000, HW),
];

static TLW: [StatusRule; 3] = [ignored(0x1), quiet(0x2, HW), fatal(0x4, HW)];

static TREX: [StatusRule; 1] = [quiet(0x1, SW)];

static INT: [StatusRule; 1] = [down(0, BOTH, "SYMPATHETIC_REPORT_SOLO")];

static BER: [StatusRule; 4] = [
    rule(
        0,
        LinkSeverity::NonFatal,
        HW,
        "IGNORE",
        "INVESTIGATE_LINK_SI_AND_CABLES",
    ),
    rule(
        1,
        LinkSeverity::NonFatal,
        HW,
        "IGNORE",
        "INVESTIGATE_LINK_SI_AND_CABLES",
    ),
    rule(
        2,
        LinkSeverity::NonFatal,
        HW,
        "IGNORE",
        "INVESTIGATE_LINK_SI_AND_CABLES",
    ),
    rule(
        3,
        LinkSeverity::NonFatal,
        HW,
        "IGNORE",
        "INVESTIGATE_LINK_SI_AND_CABLES",
    ),
];

static LINK: [StatusRule; 21] = [
    down(0, BOTH, "SYMPATHETIC_REPORT_SOLO"),
    down(1, BOTH, "REPORT_ISSUE (if seen >1 per day)"),
    down(2, BOTH, "INVESTIGATE_LINK_SI"),
    down(4, HW, "INVESTIGATE_LINK_SI"),
    down(10, HW, "INVESTIGATE_LINK_SI"),
    down(15, SW, "INVESTIGATE_SW_USER"),
    down(16, SW, "INVESTIGATE_SW_USER_LINK_SI"),
    down(17, SW, "INVESTIGATE_SW_USER"),
    down(18, SW, "INVESTIGATE_SW_USER_LINK_SI"),
    down(21, BOTH, "INVESTIGATE_PEER_DEVICE"),
    down(22, SW, "INVESTIGATE_SW_USER"),
    down(32, BOTH, "INVESTIGATE_PEER_DEVICE"),
    down(33, BOTH, "INVESTIGATE_PEER_DEVICE"),
    down(34, BOTH, "INVESTIGATE_PEER_DEVICE"),
    down(35, HW, "INVESTIGATE_PEER_DEVICE"),
    down(36, BOTH, "INVESTIGATE_PEER_DEVICE"),
    down(37, BOTH, "INVESTIGATE_PEER_DEVICE"),
    rule(38, LinkSeverity::LinkFatal, BOTH, "IGNORE", "INVESTIGATE_SW/USER"),
    rule(40, LinkSeverity::Fatal, SW, "IGNORE", "INVESTIGATE_HOST"),
    down(42, HW, "INVESTIGATE_LINK_SI_AND_CABLES"),
    down(43, HW, "INVESTIGATE_LINK_SI_AND_CABLES"),
];

static MFDE: [StatusRule; 5] = [
    fatal(1, BOTH),
    rule(3, LinkSeverity::Ignored, "not said", "IGNORE", "IGNORE"),
    fatal(4, BOTH),
    fatal(5, BOTH),
    fatal(7, BOTH),
];

static MSE: [StatusRule; 1] = [fatal(0, "firmware")];

const fn unit(
    xid: u32,
    name: &'static str,
    names: &'static [&'static str],
    (first, second): (u32, u32),
    rules: &'static [StatusRule],
) -> LinkUnit {
    LinkUnit {
        xid,
        name,
        names,
        first,
        second,
        by_subcode: false,
        exact: false,
        rules,
    }
}

const fn exact(unit: LinkUnit) -> LinkUnit {
    LinkUnit { exact: true, ..unit }
}

const fn by_subcode(unit: LinkUnit) -> LinkUnit {
    LinkUnit {
        by_subcode: true,
        ..unit
    }
}

/// All units. If two share a number in the first layout, the mnemonic of the message distinguishes them.
pub(super) static UNITS: [LinkUnit; 19] = [
    unit(144, "SAW_MVB", &["SAW_MVB"], (1, 1), &SAW),
    unit(145, "RLW_CTRL", &["RLW_CTRL"], (3, 3), &[]),
    unit(145, "RLW_REMAP", &["RLW_REMAP"], (4, 4), &REMAP),
    unit(145, "RLW_RSPCOL", &["RLW_RSPCOL"], (5, 5), &RSPCOL),
    unit(145, "RLW_RXPIPE", &["RLW_RXPIPE"], (6, 6), &RXPIPE),
    unit(145, "RLW_SRC_TRACK", &["RLW_SRC_TRACK"], (7, 7), &SRC_TRACK),
    unit(145, "RLW_TAGSTATE", &["RLW_TAGSTATE"], (8, 8), &TAGSTATE),
    unit(146, "TLW_CTRL", &["TLW_CTRL"], (9, 9), &TLW),
    unit(146, "TLW_RX_PIPE0", &["TLW_RX_PIPE0", "TLW_RX"], (10, 10), &TLW),
    unit(146, "TLW_RX_PIPE1", &["TLW_RX_PIPE1"], (10, 11), &TLW),
    unit(146, "TLW_TX_PIPE0", &["TLW_TX_PIPE0", "TLW_TX"], (11, 12), &TLW),
    unit(146, "TLW_TX_PIPE1", &["TLW_TX_PIPE1"], (11, 13), &TLW),
    unit(147, "TREX", &["TREX"], (12, 14), &TREX),
    unit(148, "NVLPW_CTRL", &["NVLPW_CTRL", "NVLPW"], (0, 15), &[]),
    exact(unit(149, "NETIR_INT", &["NETIR_INT", "NETIR"], (0, 24), &INT)),
    exact(unit(149, "NETIR_BER_EVENT", &["NETIR_BER_EVENT"], (17, 19), &BER)),
    by_subcode(unit(
        149,
        "NETIR_LINK_EVT",
        &["NETIR_LINK_EVT", "NETIR_LINK_DOWN"],
        (14, 17),
        &LINK,
    )),
    exact(unit(149, "NETIR_MFDE_EVENT", &["NETIR_MFDE_EVENT"], (18, 20), &MFDE)),
    exact(unit(150, "MSE_WATCHDOG", &["MSE_WATCHDOG"], (0, 0), &MSE)),
];
