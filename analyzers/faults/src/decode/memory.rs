//! Memory of the GPU: XID 48, 63, 64, 92, 94, 95, 171, 172.

use rankguard_model::{ClassId, Role};

use super::DecodedMessage;
use super::text::{after, number, word};
use crate::classes;

pub(super) fn refine(xid: u32, text: &str, decoded: &mut DecodedMessage) {
    match xid {
        48 => double_bit(text, decoded),
        63 | 64 => retirement(xid, text, decoded),
        92 => {
            if let Some(partition) = after(text, "partition ").and_then(number) {
                decoded.set("partition", partition);
            }
        }
        94 | 95 => containment(xid, text, decoded),
        171 => decoded.set("memory", "DRAM"),
        _ => decoded.set("memory", "SRAM"),
    }
}

fn double_bit(text: &str, decoded: &mut DecodedMessage) {
    let memory = if after(text, "framebuffer").is_some() {
        Some("framebuffer")
    } else if after(text, "SRAM").is_some() || after(text, "L2 cache").is_some() {
        Some("on-chip")
    } else {
        None
    };
    if let Some(memory) = memory {
        decoded.set("memory", memory);
    }
    for name in ["partition", "subpartition"] {
        // "subpartition" contains "partition": the match must begin a word.
        let found = text
            .match_indices(name)
            .find(|(at, _)| text[..*at].ends_with([' ', ',']));
        if let Some(value) = found.and_then(|(at, _)| number(&text[at + name.len()..])) {
            decoded.set(name, value);
        }
    }
    let at = match (decoded.fields.get("partition"), decoded.fields.get("subpartition")) {
        (Some(partition), Some(sub)) => format!(", partition {partition}, subpartition {sub}"),
        _ => String::new(),
    };
    decoded.sentence = format!(
        "uncorrectable double-bit error in {}{at}",
        memory.unwrap_or("GPU memory")
    )
    .into();
}

/// Decodes the replacement of memory: rows are remapped from Ampere on, pages were retired before.
fn retirement(xid: u32, text: &str, decoded: &mut DecodedMessage) {
    let page = after(text, "row remapper").is_none() && after(text, "page ").is_some();
    let what = if page { "page" } else { "row" };
    decoded.set("unit", what);
    let address = text.split(['(', ')', ' ']).find(|part| part.starts_with("0x"));
    if let Some(address) = address {
        decoded.set("address", address);
    }
    if xid == 64 {
        decoded.sentence = format!("a faulty memory {what} could not be replaced").into();
        return;
    }
    if let Some(when) = ["reset", "reboot"].into_iter().find(|when| after(text, when).is_some()) {
        decoded.set("pending", when);
        decoded.sentence = format!("a faulty memory {what} will be replaced at the next {when}").into();
    } else if after(text, "failed").is_some() || after(text, "error").is_some() {
        // Some drivers log the failure under this number too.
        decoded.class = ClassId::from(classes::GPU_ROW_REMAP_FAILURE);
        (decoded.role, decoded.confidence) = (Role::Root, 0.85);
        decoded.sentence = format!("a faulty memory {what} could not be replaced").into();
    } else {
        decoded.sentence = format!("a faulty memory {what} is recorded for replacement").into();
    }
}

/// Decodes `Contained: SM (0x1). RST: No, D-RST: No`
fn containment(xid: u32, text: &str, decoded: &mut DecodedMessage) {
    let contained = xid == 94;
    let said = after(text, if contained { "Contained:" } else { "Uncontained:" });
    if let Some(said) = said {
        let unit = said.split(['(', '.']).next().unwrap_or_default().trim();
        if !unit.is_empty() && unit.len() <= 40 {
            decoded.set("unit", unit);
        }
    }
    let mut reset = Vec::new();
    for (name, field) in [("D-RST:", "drain_and_reset"), ("RST:", "reset")] {
        // "D-RST:" contains "RST:": the shorter one must not follow a dash.
        let found = text.match_indices(name).find(|(at, _)| !text[..*at].ends_with('-'));
        let value = found.and_then(|(at, _)| word(&text[at + name.len()..]));
        if let Some(value) = value.map(|value| value.trim_end_matches('.').to_ascii_lowercase()) {
            if value == "yes" {
                reset.push(if field == "reset" { "reset" } else { "drain and reset" });
            }
            decoded.set(field, value);
        }
    }
    let who = if contained {
        "only its own process dies"
    } else {
        "the whole GPU is suspect"
    };
    let unit = decoded
        .fields
        .get("unit")
        .map_or_else(String::new, |unit| format!(" in {unit}"));
    let ask = if reset.is_empty() {
        String::new()
    } else {
        format!("; the driver asks for {}", reset.join(", "))
    };
    let kind = if contained { "contained" } else { "uncontained" };
    decoded.sentence = format!("{kind} memory error{unit}: {who}{ask}").into();
}
