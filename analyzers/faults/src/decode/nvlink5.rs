//! XID 144 to 150: status words of an NVLink of generation 5.
//!
//! The first word holds unit, link and subcode, in one layout before driver R575 and in another from R575 on; the
//! second is the error status. The driver's version selects the layout; without it, the mnemonic in the message does.
//! The mnemonic is also the check: a unit number that contradicts it is reported as `unit_mismatch`.

use rankguard_model::Role;

use super::nvlink5_rules::{LinkSeverity, LinkUnit, StatusRule, UNITS};
use super::text::{bits, number, word, words};
use super::{DecodedMessage, DriverVersion};

/// First driver branch with the second layout.
const SECOND_LAYOUT: u32 = 575;

/// Bit layout of the first status word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusLayout {
    /// Before R575: class in bits 4 to 0, unit in 9 to 5, link in 17 to 13.
    First,
    /// From R575 on: unit in bits 6 to 0, link in 14 to 10.
    Second,
}

impl StatusLayout {
    fn unit(self, info: u32) -> u32 {
        match self {
            Self::First => bits(info, 9, 5),
            Self::Second => bits(info, 6, 0),
        }
    }

    fn link(self, info: u32) -> u32 {
        match self {
            Self::First => bits(info, 17, 13),
            Self::Second => bits(info, 14, 10),
        }
    }

    fn number_of(self, unit: &LinkUnit) -> u32 {
        match self {
            Self::First => unit.first,
            Self::Second => unit.second,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::First => "v1",
            Self::Second => "v2",
        }
    }

    /// Returns the unit that the first word names, among those of the event number.
    fn unit_of(self, xid: u32, info: u32) -> Option<&'static LinkUnit> {
        if self == Self::First && bits(info, 4, 0) != class_of(xid) {
            return None;
        }
        UNITS
            .iter()
            .find(|unit| unit.xid == xid && self.number_of(unit) == self.unit(info))
    }
}

/// Returns the class number in the lowest bits of the first layout: 1 for XID 144 and so on, 0 for 150.
fn class_of(xid: u32) -> u32 {
    if xid == 150 { 0 } else { xid.saturating_sub(143) }
}

pub(super) fn refine(xid: u32, text: &str, driver: Option<DriverVersion>, decoded: &mut DecodedMessage) {
    let Some((printed, said)) = printed_unit(xid, text) else {
        return;
    };
    let fatal = word(said).map(|severity| severity.eq_ignore_ascii_case("fatal"));
    if let Some(fatal) = fatal {
        decoded.set("severity", if fatal { "fatal" } else { "non-fatal" });
    }
    let link = said.split_once("Link").and_then(|(_, said)| number(said));
    if let Some(link) = link {
        decoded.set("link", link);
    }
    let words = words(said, 6);
    let info = words.first().copied();
    let by_driver = driver.map(|driver| {
        if driver.branch >= SECOND_LAYOUT {
            StatusLayout::Second
        } else {
            StatusLayout::First
        }
    });
    let layout = info.map(|info| {
        by_driver.unwrap_or_else(|| {
            let fits = StatusLayout::First.unit_of(xid, info);
            if fits.is_some_and(|unit| unit.is_called(printed)) {
                StatusLayout::First
            } else {
                StatusLayout::Second
            }
        })
    });
    let by_word = layout.zip(info).and_then(|(layout, info)| layout.unit_of(xid, info));
    let by_name = UNITS.iter().find(|unit| unit.xid == xid && unit.is_called(printed));
    // In the first layout two pipes share a number; the name distinguishes them.
    let unit = by_name.or(by_word);
    decoded.set("unit", unit.map_or(printed, |unit| unit.name));
    if let (Some(layout), Some(info)) = (layout, info) {
        decoded.set("layout", layout.name());
        let agrees = by_name.is_none_or(|unit| layout.number_of(unit) == layout.unit(info));
        if !agrees {
            decoded.set("unit_mismatch", layout.unit(info));
        }
        if link.is_none() && agrees && !said.contains("Link -1") {
            decoded.set("link", layout.link(info));
        }
    }
    let status = words.get(1).copied();
    let subcode = info.map(|info| bits(info, 25, 20));
    if let Some(status) = status {
        decoded.set("error_status", format!("{status:#010x}"));
    }
    if let Some(subcode) = subcode.filter(|_| unit.is_some_and(|unit| unit.by_subcode)) {
        decoded.set("subcode", subcode);
    }
    let rule = unit.and_then(|unit| unit.rule(status?, subcode?));
    judge(unit, rule, fatal, decoded);
}

/// Returns the mnemonic of the message (`NETIR_LINK_EVT`, `TLW_RX/TLW_RX_PIPE0`) and the text after it.
fn printed_unit(xid: u32, text: &str) -> Option<(&str, &str)> {
    let known = UNITS.iter().filter(|unit| unit.xid == xid).flat_map(|unit| unit.names);
    let at = known.filter_map(|name| text.find(name)).min()?;
    let rest = text.get(at..)?;
    let end = rest.find([' ', ',', '\t']).unwrap_or(rest.len());
    Some((&rest[..end], &rest[end..]))
}

fn judge(
    unit: Option<&LinkUnit>,
    rule: Option<&StatusRule>,
    printed_fatal: Option<bool>,
    decoded: &mut DecodedMessage,
) {
    let severity = rule.map(|rule| rule.severity);
    let name = unit.map_or("NVLink 5", |unit| unit.name);
    let fatal = severity.map_or(printed_fatal, |severity| Some(severity.is_fatal()));
    (decoded.role, decoded.confidence) = match (severity, fatal) {
        (Some(LinkSeverity::Ignored), _) => (Role::Noise, 0.7),
        (Some(LinkSeverity::NonFatal), _) => (Role::Confirmation, 0.6),
        (Some(_), _) => (Role::Root, 0.9),
        (None, Some(false)) => (Role::Confirmation, 0.55),
        (None, _) => (Role::Root, 0.8),
    };
    let link = decoded
        .fields
        .get("link")
        .map_or_else(String::new, |link| format!(" on link {link}"));
    let Some(rule) = rule else {
        let severity = match printed_fatal {
            Some(true) => "fatal",
            Some(false) => "non-fatal",
            None => "of unknown severity",
        };
        decoded.sentence = format!("{name}{link}: {severity} error that the vendor's table does not list").into();
        return;
    };
    decoded.vendor_action = rule.action().into();
    decoded.set("origin", rule.origin);
    if rule.investigate.contains("SYMPATHETIC") {
        // The same fault appears on other GPUs of the fabric; a join may demote this one.
        decoded.set("sympathetic", "yes");
        decoded.confidence = 0.65;
    }
    if rule.investigate == "INVESTIGATE_PEER_DEVICE" {
        decoded.set("blame", "peer");
        decoded.confidence = 0.7;
    }
    let peer = if decoded.fields.contains_key("blame") {
        "; the device at the other end is the source"
    } else {
        ""
    };
    decoded.sentence = format!("{name}{link}: {} error ({}){peer}", rule.severity.name(), rule.origin).into();
}
