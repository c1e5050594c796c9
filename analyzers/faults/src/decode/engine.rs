//! Engines, channels and the GPU's system processor: XID 13, 31, 43, 45, 119, 120.

use super::DecodedMessage;
use super::text::{after, number, word};

pub(super) fn refine(xid: u32, text: &str, decoded: &mut DecodedMessage) {
    match xid {
        13 => exception(text, decoded),
        31 => page_fault(text, decoded),
        119 => rpc_timeout(text, decoded),
        120 => processor_crash(text, decoded),
        _ => {
            if let Some(channel) = after(text, "Ch ").and_then(word) {
                decoded.set("channel", channel);
            }
        }
    }
}

/// Decodes `Graphics SM Warp Exception on (GPC 3, TPC 2, SM 1): Out Of Range Address`, and the register dump below
/// it, `Graphics Exception: ESR 0x546fb0=0x11f000e 0x546fb4=0x24 ...`
fn exception(text: &str, decoded: &mut DecodedMessage) {
    for (name, field) in [("(GPC ", "gpc"), ("TPC ", "tpc"), ("SM ", "sm")] {
        if let Some(value) = text
            .match_indices(name)
            .find_map(|(at, _)| number(&text[at + name.len()..]))
        {
            decoded.set(field, value);
        }
    }
    let kind = after(text, "Exception on (").and_then(|said| said.split_once("): "));
    if let Some(kind) = kind
        .map(|(_, kind)| kind.trim())
        .filter(|kind| !kind.is_empty() && kind.len() <= 80)
    {
        decoded.set("exception", kind);
    }
    // The register dump after an exception names no unit, only the unit's state words.
    if let Some(registers) = after(text, "ESR ").filter(|registers| registers.len() <= 120) {
        decoded.set("esr", registers.trim());
    }
    let at = match (decoded.fields.get("gpc"), decoded.fields.get("tpc")) {
        (Some(gpc), Some(tpc)) => format!(" on GPC {gpc}, TPC {tpc}"),
        _ => String::new(),
    };
    let kind = decoded
        .fields
        .get("exception")
        .map_or_else(String::new, |kind| format!(": {kind}"));
    decoded.sentence = format!("exception of the compute engine{at}{kind}").into();
}

/// Decodes `MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7fc1_4e000000. Fault is of type FAULT_PDE
/// ACCESS_TYPE_VIRT_READ`
fn page_fault(text: &str, decoded: &mut DecodedMessage) {
    if let Some(engine) = after(text, "ENGINE ").and_then(word) {
        decoded.set("engine", engine);
    }
    let client = text.split_whitespace().find(|word| word.contains("CLIENT_"));
    if let Some(client) = client {
        decoded.set("client", client);
    }
    if let Some(address) = after(text, "faulted @ ").and_then(word) {
        decoded.set("address", address.trim_end_matches('.').replace('_', ""));
    }
    let kind = text.split_whitespace().find(|word| word.starts_with("FAULT_"));
    let access = text.split_whitespace().find(|word| word.starts_with("ACCESS_TYPE_"));
    if let Some(kind) = kind {
        decoded.set("fault", kind);
    }
    if let Some(access) = access {
        decoded.set("access", access);
    }
    let verb = match access {
        Some(access) if access.contains("WRITE") => "write to",
        Some(access) if access.contains("ATOMIC") => "atomic access to",
        Some(access) if access.contains("READ") => "read of",
        _ => "access to",
    };
    let why = match kind {
        Some("FAULT_PDE" | "FAULT_PTE") => "an address that is not mapped",
        Some("FAULT_RO_VIOLATION") => "memory that is read-only",
        _ => "an address that the GPU may not touch",
    };
    decoded.sentence = format!("page fault: {verb} {why}").into();
}

/// Decodes `Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL)
/// (0x20801813 0x4c).`
fn rpc_timeout(text: &str, decoded: &mut DecodedMessage) {
    if let Some(seconds) = after(text, "Timeout after ").and_then(number) {
        decoded.set("timeout_s", seconds);
    }
    if let Some(gpu) = after(text, "response from GPU").and_then(number) {
        decoded.set("gpu_index", gpu);
    }
    if let Some(said) = after(text, "Expected function ") {
        if let Some(function) = number(said) {
            decoded.set("function", function);
        }
        let mut brackets = said.split('(').skip(1).filter_map(|part| part.split(')').next());
        if let Some(name) = brackets.next().filter(|name| name.len() <= 40) {
            decoded.set("function_name", name);
        }
        if let Some(arguments) = brackets.next().filter(|arguments| arguments.len() <= 60) {
            decoded.set("arguments", arguments);
        }
    }
    let waited = decoded
        .fields
        .get("timeout_s")
        .map_or_else(String::new, |s| format!(" for {s} s"));
    let call = decoded
        .fields
        .get("function_name")
        .map_or_else(String::new, |name| format!(" to {name}"));
    decoded.sentence = format!("the GPU's system processor did not answer{call}{waited}").into();
}

/// Decodes `GSP task exception: load access fault` or `GSP task timeout @ pc:0x..., task: 1`
fn processor_crash(text: &str, decoded: &mut DecodedMessage) {
    if let Some(task) = after(text, "task: ").and_then(number) {
        decoded.set("task", task);
    }
    if let Some(cause) = after(text, "cause:").and_then(word) {
        decoded.set("cause", cause);
    }
    let kind = after(text, "GSP task exception:").map(|kind| kind.split('(').next().unwrap_or(kind).trim());
    if let Some(kind) = kind.filter(|kind| !kind.is_empty() && kind.len() <= 60) {
        decoded.set("exception", kind);
        decoded.sentence = format!("the GPU's system processor crashed: {kind}").into();
    } else if after(text, "GSP task timeout").is_some() {
        decoded.set("exception", "task timeout");
        decoded.sentence = "a task of the GPU's system processor timed out".into();
    }
}
